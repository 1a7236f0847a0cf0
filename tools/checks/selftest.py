"""Checks the case writer, the restated modules and the generators' determinism.

    python tools/checks/selftest.py

Plain assertions; exit status 0 only if all hold. The files are read back by the wheel safetensors, which refuses holes,
overlaps and wrong sizes.
"""

import filecmp
import importlib.util
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import safetensors.torch
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "users"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "generators"))
import notebook_modules as notebook  # noqa: E402
from attentive_case import RandomForward, dropout_path, options_of, save_safetensors, write_case  # noqa: E402
from case_support import PARITY_FOLDER, cases_of, emulated_dropout  # noqa: E402

TOOLS = pathlib.Path(__file__).resolve().parents[1]
MHA_OPTIONS = {"d_in": 3, "d_out": 4, "context_length": 6, "dropout": 0.0, "num_heads": 2, "qkv_bias": False}


def parse(path):
    """metadata, {name: tensor}; asserts what safetensors does not: a header and tensors that are aligned."""
    raw = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    assert length % 8 == 0 and raw[8:9] == b"{", path
    header = json.loads(raw[8 : 8 + length])
    metadata, tensors = header.pop("__metadata__"), safetensors.torch.load(raw)
    for name, entry in header.items():
        assert entry["data_offsets"][0] % tensors[name].itemsize == 0, f"{path}: {name} is not aligned"
    return metadata, tensors


def parse_bundle(path):
    """{case: (metadata, {name: tensor})}"""
    return cases_of(path, parse)


def raises(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), f"expected {text!r} in {error!r}"
        return
    raise AssertionError(f"expected {kind.__name__} with {text!r}, nothing was raised")


def check_bytes(folder):
    """Every dtype, scalars, empty and strided tensors are restored; a failed write leaves no file."""
    whole = torch.arange(-3, 9)
    written = {str(dtype)[6:]: whole.to(dtype).reshape(3, 4) for dtype in (torch.float64, torch.float32, torch.int64)}
    written |= {str(dtype)[6:]: whole.to(dtype) for dtype in (torch.int32, torch.int16, torch.int8, torch.float16)}
    written |= {"bfloat16": torch.tensor([1.5, -2.25, float("inf")]).bfloat16(), "bool": torch.tensor([True, False])}
    written |= {"uint8": torch.tensor([0, 255], dtype=torch.uint8), "scalar": torch.tensor(2.5)}
    written |= {"empty": torch.zeros(0, 3), "strided": torch.rand(4, 5).t()[1:], "expanded": torch.rand(1).expand(3)}
    save_safetensors(folder / "bytes.safetensors", written, {"key": "Wert \u00e4"})
    metadata, read = parse(folder / "bytes.safetensors")
    assert metadata == {"key": "Wert \u00e4"}
    assert read.keys() == written.keys()
    for name, value in written.items():
        assert read[name].dtype == value.dtype and torch.equal(read[name], value), name
    complex_tensor = {"x": torch.zeros(2, dtype=torch.complex64)}
    raises(TypeError, "complex64", lambda: save_safetensors(folder / "bad.safetensors", complex_tensor, {}))
    raises(FileNotFoundError, "", lambda: save_safetensors(folder / "no" / "bad.safetensors", written, {}))
    (folder / "taken").mkdir()
    raises(OSError, "taken", lambda: save_safetensors(folder / "taken", written, {}))
    assert sorted(path.name for path in folder.iterdir()) == ["bytes.safetensors", "taken"]


def check_module_case(folder):
    """The tensors of a case are the module's, the gradients are autograd's, and the caller's state is unchanged."""
    torch.manual_seed(5)
    module = notebook.MultiHeadAttention(**MHA_OPTIONS)
    x = torch.rand(2, 5, 3)
    module.eval()
    random_state = torch.get_rng_state()
    path = write_case(folder / "module.safetensors", module, x, init_seed=5, train=True)
    assert torch.equal(random_state, torch.get_rng_state()) and not module.training and not module.dropout.training
    assert x.grad is None and not x.requires_grad and all(p.grad is None for p in module.parameters())

    metadata, tensors = parse(path)
    assert metadata["module"] == "MultiHeadAttention" and metadata["train"] == "true" and metadata["init_seed"] == "5"
    assert json.loads(metadata["options"]) == MHA_OPTIONS and metadata["call"] == "{}"
    assert metadata["torch"] == torch.__version__ and "forward_seed" not in metadata
    assert {name[6:] for name in tensors if name.startswith("state.")} == set(module.state_dict())
    leaf = x.clone().requires_grad_()
    output = module(leaf)
    assert torch.equal(output, tensors["expected.output"]) and torch.equal(x, tensors["input.x"])
    (output * tensors["input.grad_output"]).sum().backward()
    assert torch.equal(leaf.grad, tensors["grad.input.x"])
    for key, parameter in module.named_parameters():
        assert torch.equal(parameter.grad, tensors[f"grad.state.{key}"]), key
    assert not any(name.startswith("grad.state.mask") for name in tensors)

    _, plain = parse(write_case(folder / "plain.safetensors", module, x, grad_output=None))
    assert "input.grad_output" not in plain
    metadata, without = parse(write_case(path, module, x, grads=False))
    assert metadata["grads"] == "false" and not any(name.startswith("grad.") for name in without)
    assert torch.equal(without["expected.output"], output)

    seen = []
    handles = [part.register_forward_hook(lambda *_: seen.append(1)) for part in module.modules()]
    handles.append(module.W_key.weight.register_hook(lambda grad: 2 * grad))
    _, again = parse(write_case(path, module, x, grad_output=None))
    assert seen == [] and all(torch.equal(value, again[name]) for name, value in plain.items())
    for handle in handles:
        handle.remove()
    with torch.autocast("cpu", torch.bfloat16):
        metadata, cast = parse(write_case(path, module, x))
        want = module(x)
    assert metadata["autocast"] == "bfloat16" and torch.equal(cast["expected.output"], want)
    assert cast["input.x"].dtype == cast["grad.state.W_key.weight"].dtype == torch.float32
    wide = parse(write_case(path, module.half(), x.half(), expected_dtype=torch.float64))[1]
    assert wide["state.W_query.weight"].dtype == torch.float16 and wide["expected.output"].dtype == torch.float64
    raises(ValueError, "after seed 6", lambda: write_case(path, module, x.half(), init_seed=6))
    raises(ValueError, "pass options", lambda: write_case(path, torch.nn.Linear(3, 2), x))
    raises(TypeError, "in options", lambda: write_case(path, module, x.half(), options={"d_in": x}))
    raises(ValueError, "grad_output", lambda: write_case(path, module, x.half(), grad_output="ones"))
    raises(TypeError, "missing a required argument", lambda: write_case(path, module))


def check_dropout_case(folder):
    """Active dropout needs a seed, gives the same bytes for it, and the file names the stream that it drew from."""
    module = notebook.CausalAttention(3, 2, 6, 0.5)
    x = torch.rand(2, 6, 3)
    raises(RandomForward, "forward_seed", lambda: write_case(folder / "d.safetensors", module, x))
    assert not (folder / "d.safetensors").exists()
    first = write_case(folder / "d1.safetensors", module, x, forward_seed=9)
    torch.rand(3)
    second = write_case(folder / "d2.safetensors", module, x, forward_seed=9)
    assert filecmp.cmp(first, second, shallow=False)
    assert parse(first)[0]["dropout_path"] == dropout_path()
    torch.manual_seed(9)
    assert torch.equal(module(x), parse(first)[1]["expected.output"])
    torch.manual_seed(9)
    with emulated_dropout(dropout_path()):
        assert torch.equal(module(x), parse(first)[1]["expected.output"])
    # The result of Dropout(0.5) on ones(6, 6) after seed 123: the chapter-3 table, and MKL's on Intel.
    tables = {
        "default": "220220 000202 222202 022002 020202 022220",
        "intel_mkl": "222222 020000 002020 220002 200002 020000",
    }
    for stream, table in tables.items():
        torch.manual_seed(123)
        with emulated_dropout(stream):
            drawn = torch.nn.Dropout(0.5)(torch.ones(6, 6))
        assert " ".join("".join(str(int(v)) for v in row) for row in drawn) == table, stream


def check_torch_names(folder):
    """Names, shared inputs, tensor and plain arguments of PyTorch's own attention; NaN is kept, without gradients."""
    mha = torch.nn.MultiheadAttention(4, 2, batch_first=True, kdim=4)
    x, memory = torch.rand(2, 3, 4), torch.rand(2, 5, 4)
    metadata, tensors = parse(write_case(folder / "mha.safetensors", mha, x, x, x, average_attn_weights=False))
    assert metadata["module"] == "torch.nn.MultiheadAttention"
    assert json.loads(metadata["call"]) == {"average_attn_weights": False}
    options = json.loads(metadata["options"])
    assert options["batch_first"] is True and options["kdim"] is None and options["add_bias_kv"] is False
    assert "input.key" not in tensors and "input.value" not in tensors and tensors["expected.weights"].dim() == 4
    leaf = x.clone().requires_grad_()
    (mha(leaf, leaf, leaf)[0] * tensors["input.grad_output"]).sum().backward()
    torch.testing.assert_close(leaf.grad, tensors["grad.input.query"])
    _, tensors = parse(write_case(folder / "mha.safetensors", mha, x, memory, memory))
    assert {"input.key", "input.value", "grad.input.key", "grad.input.value"} <= set(tensors)
    hidden = torch.tensor([[True] * 3, [False] * 3])
    metadata, tensors = parse(write_case(folder / "mha.safetensors", mha, x, x, x, key_padding_mask=hidden))
    assert tensors["expected.output"][0].isnan().all() and not tensors["expected.output"][1].isnan().any()
    assert "NaN" in metadata["gradients"] and not any(name.startswith("grad.") for name in tensors)

    sdpa = torch.nn.functional.scaled_dot_product_attention
    bias = torch.rand(3, 5)
    metadata, tensors = parse(write_case(folder / "f.safetensors", sdpa, x, memory, memory, bias, scale=0.5))
    assert metadata["module"] == "torch.nn.functional.scaled_dot_product_attention" and "train" not in metadata
    assert json.loads(metadata["call"]) == {"scale": 0.5} and metadata["options"] == "{}"
    assert "input.attn_mask" in tensors and "grad.input.attn_mask" not in tensors and "input.key" in tensors
    with_bias = write_case(folder / "f.safetensors", sdpa, x, memory, memory, bias.requires_grad_())
    assert "grad.input.attn_mask" in parse(with_bias)[1]


def check_options(_):
    """Constructor arguments recovered from every class equal those with which it was built."""
    causal = {"d_in": 3, "d_out": 2, "context_length": 5, "dropout": 0.25, "qkv_bias": True}
    built = [
        (notebook.SelfAttention_v1, {"d_in": 3, "d_out": 2}),
        (notebook.SelfAttention_v2, {"d_in": 3, "d_out": 2, "qkv_bias": True}),
        (notebook.MatrixSelfAttention, {"d_model": 3, "d_k": 2}),
        (notebook.CausalAttention, causal),
        (notebook.MultiHeadAttentionWrapper, {**causal, "num_heads": 3}),
        (notebook.MultiHeadAttention, {**causal, "num_heads": 2}),
        (notebook.SharedHeadAttention, {"embed_size": 6, "heads": 3}),
        (notebook.ScaledDotProductAttention, {"dropout": 0.5}),
        (notebook.ScaledDotProductAttention, {"dropout": 0.0}),
        (notebook.MultiHeadSelfAttention, {"d_model": 6, "num_heads": 3, "dropout": 0.1}),
        (notebook.FusedSelfAttention, {"embed_dim": 6, "num_heads": 2}),
    ]
    layer = {"d_model": 6, "nhead": 2, "dim_feedforward": 5, "dropout": 0.25, "activation": "gelu"}
    layer |= {"layer_norm_eps": 0.01, "batch_first": True, "norm_first": True, "bias": False}
    built += [(torch.nn.TransformerEncoderLayer, layer), (torch.nn.TransformerDecoderLayer, layer)]
    for kind, options in built:
        assert options_of(kind(**options), getattr(kind, "case_name", None)) == options, kind
    for activation, name in ((torch.tanh, "tanh"), (torch.nn.SiLU(), "silu"), (torch.nn.GELU(), "gelu")):
        assert options_of(torch.nn.TransformerEncoderLayer(4, 2, activation=activation))["activation"] == name
    approximate = torch.nn.TransformerEncoderLayer(4, 2, activation=torch.nn.GELU("tanh"))
    raises(ValueError, "expected an activation of ['gelu', 'relu', 'silu', 'tanh']", lambda: options_of(approximate))
    uneven = torch.nn.TransformerDecoderLayer(4, 2)
    uneven.dropout2.p = 0.5
    raises(ValueError, "expected one dropout in all parts", lambda: options_of(uneven))
    strange = type("CausalAttention", (torch.nn.Module,), {})()
    raises(ValueError, "CausalAttention is not the class known by that name", lambda: options_of(strange))


def magnitude(value):
    return value[value.isfinite()].abs().max().item() if value.isfinite().any() else 0.0


def margin_of(name, value, largest_gradient):
    """The allowed difference of another processor's PyTorch: float32 as in parity cases, gradients relative to the largest."""
    if not value.is_floating_point():
        return {"rtol": 0.0, "atol": 0.0}
    if value.dtype in (torch.float16, torch.bfloat16):
        return {"rtol": 0.03, "atol": 0.02}
    gradient = name.startswith("grad.")
    return {"rtol": 0.0, "atol": 1e-5 * (largest_gradient if gradient else magnitude(value)) + (5e-6 if gradient else 2e-6)}


def check_generators(folder):
    """The committed cases parse; each generator writes the same bytes twice, and the same numbers as committed."""
    committed = sorted(PARITY_FOLDER.glob("*.safetensors"))
    cases = {f"{path.name}#{case}": content for path in committed for case, content in parse_bundle(path).items()}
    assert len(cases) >= 676
    for case, (metadata, tensors) in cases.items():
        assert {"module", "options", "call", "torch"} <= set(metadata), case
        assert "expected.output" in tensors, case
        for name, value in tensors.items():
            assert not name.startswith("grad.") or not value.isnan().any(), f"{case}: {name}"
    scripts = ["make_cases.py", "make_torch_cases.py", "make_transformer_cases.py"]
    if importlib.util.find_spec("transformers"):
        scripts += ["make_encoder_cases.py", "make_model_cases.py"]
        biases = TOOLS.parent / "tests" / "modules" / "data" / "biases.safetensors"
        assert len(parse_bundle(biases)) >= 48
        check_written(folder / "biases", ["make_bias_cases.py"], [biases])
        if importlib.util.find_spec("x_transformers"):
            check_written(folder / "fused", ["make_fused_cases.py"], [biases.with_name("fused.safetensors")])
    else:
        print("skipped: encoders, models and biases are not written again, as Python has no transformers")
        committed = [path for path in committed if path.stem not in ("encoders", "models")]
    check_written(folder / "parity", scripts, committed)


def check_written(folder, scripts, committed):
    """Runs the generators twice in `folder` and compares the bundles that they write with the `committed` ones."""
    for script in scripts:
        for run in ("first", "second"):
            command = [sys.executable, TOOLS / "generators" / script, "--out", folder / run]
            subprocess.run(command, check=True, capture_output=True)
    assert sorted(path.name for path in (folder / "first").iterdir()) == [path.name for path in committed]
    for path in committed:
        first = folder / "first" / path.name
        assert filecmp.cmp(first, folder / "second" / path.name, shallow=False), path.name
        cases, old_cases = parse_bundle(first), parse_bundle(path)
        assert cases.keys() == old_cases.keys(), path.name
        for case, (metadata, tensors) in cases.items():
            check_case(f"{path.name}#{case}", metadata, tensors, *old_cases[case])


def check_case(case, metadata, tensors, old_metadata, old_tensors):
    assert tensors.keys() == old_tensors.keys(), case
    releases = {"torch": "", "transformers": ""}  # that wrote the case; another one has to write the same numbers
    assert metadata | releases == old_metadata | releases, case
    largest = max((magnitude(value) for name, value in old_tensors.items() if name.startswith("grad.")), default=0.0)
    for name, value in tensors.items():
        margin = margin_of(name, old_tensors[name], largest)
        torch.testing.assert_close(value, old_tensors[name], **margin, equal_nan=True, msg=f"{case}: {name}")


def main():
    for check in (
        check_bytes,
        check_options,
        check_module_case,
        check_dropout_case,
        check_torch_names,
        check_generators,
    ):
        with tempfile.TemporaryDirectory() as folder:
            check(pathlib.Path(folder))
        print(f"ok {check.__name__[6:]}: {check.__doc__}")


if __name__ == "__main__":
    main()

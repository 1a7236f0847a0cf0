"""tools/users/attentive_record.py: what it writes, what it reports, and that no bit of the program changes.

    recorder_test.py ROOT [PARITY]

With PARITY, the executable attentive-parity, what was recorded has to pass there. Needs a Python with PyTorch.
"""

import contextlib
import copy
import json
import re
import subprocess
import sys
import tempfile
import textwrap
import types
import warnings
from pathlib import Path

ROOT = Path(sys.argv[1])
PARITY = sys.argv[2] if len(sys.argv) > 2 else None
for folder in ("checks", "users"):
    sys.path.insert(0, str(ROOT / "tools" / folder))
import torch  # noqa: E402

import attentive_record  # noqa: E402
import notebook_modules as notebook  # noqa: E402
from selftest import parse, raises  # noqa: E402

F = torch.nn.functional
SDPA_NAME = "torch.nn.functional.scaled_dot_product_attention"
warnings.filterwarnings("ignore", message=".*nested tensors is in prototype.*")


def names_of(recording):
    return [parse(path)[0]["module"] for path in recording.written]


def run_parity(recording):
    if PARITY is None:
        return
    done = subprocess.run([PARITY, "--quiet", *map(str, recording.written)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def encoder(dropout=0.0, layers=2):
    torch.manual_seed(3)
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout, batch_first=True)
    return torch.nn.TransformerEncoder(layer, layers)


def padded_batch():
    torch.manual_seed(4)
    padding = torch.zeros(3, 5, dtype=torch.bool)
    padding[0, 3:] = True
    padding[2, 4:] = True
    return torch.randn(3, 5, 16), padding


def check_fused_encoder(folder):
    """PyTorch's fused encoder stays in use: the same bits, zeros in the padded rows; its nested layers become cases."""
    model = encoder().eval()
    x, padding = padded_batch()
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            want = model(x, src_key_padding_mask=padding)
            assert want[0, 3:].abs().max() == 0.0, "this PyTorch has no fused encoder: the test shows nothing"
            with attentive_record.record(folder / mode.__name__) as recording:
                got = model(x, src_key_padding_mask=padding)
        assert torch.equal(got, want)
        assert recording.skipped == [] and not recording.unrecognised, recording.summary()
        assert names_of(recording) == ["torch.nn.TransformerEncoderLayer"] * 2
        metadata, tensors = parse(recording.written[0])
        assert metadata["path"] == "layers.0" and metadata["grads"] == "false" and metadata["train"] == "false"
        assert torch.equal(tensors["input.src_key_padding_mask"], padding)
        real = (~padding)[..., None]
        assert torch.equal(tensors["input.src"], x * real)
        with torch.no_grad():
            first = model.layers[0](x, src_key_padding_mask=padding)
        torch.testing.assert_close(tensors["expected.output"] * real, first * real)
        run_parity(recording)


def train(model, watch, autocast=False, checkpointed=False):
    """Runs two steps with everything that could notice a repeated call; returns all results."""
    model = copy.deepcopy(model).train()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    x, padding = padded_batch()
    seen = []
    model.layers[0].self_attn.register_forward_hook(lambda *_: seen.append("attention"))
    model.layers[1].linear1.register_forward_pre_hook(lambda *_: seen.append("linear"))
    model.layers[1].norm1.weight.register_hook(lambda grad: seen.append("gradient"))
    anywhere = torch.nn.modules.module.register_module_forward_hook(lambda *_: seen.append("any"))
    torch.manual_seed(7)
    with watch:
        for _ in range(2):
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                if checkpointed:
                    output = torch.utils.checkpoint.checkpoint(model, x, src_key_padding_mask=padding, use_reentrant=False)
                else:
                    output = model(x, src_key_padding_mask=padding)
            optimizer.zero_grad()
            output.float().square().mean().backward()
            optimizer.step()
    anywhere.remove()
    left = [output, torch.rand(3), *model.parameters(), *(p.grad for p in model.parameters())]
    return left, seen


def check_training(folder):
    """A training step with dropout, hooks, autocast and checkpoints gives the same bits and as many hook calls."""
    model = encoder(dropout=0.1)
    for index, settings in enumerate(({}, {"autocast": True}, {"checkpointed": True})):
        recording = attentive_record.record(folder / str(index), limit=1)
        want, hooks = train(model, contextlib.nullcontext(), **settings)
        got, hooks_then = train(model, recording, **settings)
        assert all(torch.equal(a, b) for a, b in zip(want, got, strict=True)), settings
        assert hooks == hooks_then and hooks, settings
        written = sorted((folder / str(index)).iterdir())
        assert len(written) == 2, written
        for path in written:
            metadata, tensors = parse(path)
            assert metadata.get("autocast") == ("bfloat16" if settings.get("autocast") else None)
            assert metadata["train"] == "true" and metadata["forward_seed"] == "0" and "grads" not in metadata
            assert "grad.state.self_attn.in_proj_weight" in tensors


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.project = torch.nn.Linear(8, 24)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in self.project(x).chunk(3, -1))
        return x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2)


def check_paths(folder):
    """A case's name and metadata say which module it comes from; the limit applies to each module."""
    model = torch.nn.Sequential()
    model.blocks = torch.nn.Sequential(*(Block() for _ in range(4)))
    x = torch.randn(2, 5, 8)
    with attentive_record.record(folder, limit=2) as recording:
        for _ in range(3):
            model.blocks(x)
        model(x)
        F.scaled_dot_product_attention(x, x, x)
    paths = [parse(path)[0]["path"] for path in recording.written]
    assert paths == ["0", "1", "2", "3"] * 2 + [""], paths
    assert recording.beyond_limit == 8, recording.summary()
    assert recording.written[1].name == f"0002-1-{SDPA_NAME}.safetensors"
    assert recording.written[-1].name == f"0009-{SDPA_NAME}.safetensors"
    with attentive_record.record(folder / "whole", limit=1) as recording:
        model(x)
    assert [parse(path)[0]["path"] for path in recording.written] == [f"blocks.{n}" for n in range(4)]
    assert recording.written[3].name == f"0004-blocks.3-{SDPA_NAME}.safetensors"
    run_parity(recording)


def check_autocast(folder):
    """Calls under autocast are written with the dtypes they had, a float32 mask beside bfloat16 queries too."""
    torch.manual_seed(5)
    attention, layer = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.nn.TransformerEncoderLayer(8, 2, 8, 0.0)
    x, q = torch.randn(2, 4, 8), torch.randn(2, 2, 4, 8)
    half, mask = q.bfloat16(), torch.randn(4, 4)
    with attentive_record.record(folder) as recording:
        with torch.autocast("cpu", torch.bfloat16):
            attention(x.bfloat16(), x.bfloat16(), x.bfloat16())
            layer(x)
            F.scaled_dot_product_attention(half, half, half, attn_mask=mask)
            F.scaled_dot_product_attention(q, half, half, attn_mask=mask)
            with torch.no_grad():
                notebook.MultiHeadSelfAttention(8, 2)(x)
        F.scaled_dot_product_attention(half, half, half, attn_mask=mask)
    assert recording.skipped == [] and len(recording.written) == 6, recording.summary()
    parts = [parse(path) for path in recording.written]
    assert [metadata.get("autocast") for metadata, _ in parts] == ["bfloat16"] * 5 + [None]
    assert parts[0][1]["input.query"].dtype == torch.bfloat16
    assert parts[0][1]["state.in_proj_weight"].dtype == parts[0][1]["grad.state.in_proj_weight"].dtype == torch.float32
    assert parts[3][1]["input.query"].dtype == parts[3][1]["input.attn_mask"].dtype == torch.float32
    assert parts[3][1]["input.key"].dtype == parts[3][1]["expected.output"].dtype == torch.bfloat16
    assert parts[4][0]["grads"] == "false"
    run_parity(recording)


EAGER = """
import torch
def eager_attention_forward(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **kwargs):
    key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
    scores = query @ key.transpose(2, 3) * scaling
    if kwargs.get("softcap"):
        scores = kwargs["softcap"] * torch.tanh(scores / kwargs["softcap"])
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = torch.nn.functional.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    weights = torch.nn.functional.dropout(weights, p=dropout, training=module.training)
    return (weights @ value).transpose(1, 2).contiguous(), weights
"""


class EagerAttention(torch.nn.Module):
    def __init__(self, source, **others):
        super().__init__()
        self.source, self.others = source, others

    def forward(self, q, k, mask):
        return self.source.eager_attention_forward(self, q, k, k, mask, dropout=0.0, scaling=0.3, **self.others)


def check_eager(folder):
    """The eager attention of Hugging Face models is written as the fused function, if it computes the same."""
    source = types.ModuleType("modeling_of_a_test")
    sys.modules[source.__name__] = source
    exec(EAGER, vars(source))
    original = source.eager_attention_forward
    model = torch.nn.ModuleDict({"plain": EagerAttention(source), "capped": EagerAttention(source, softcap=1.0)})
    q, k = 3 * torch.randn(2, 4, 3, 8), torch.randn(2, 2, 5, 8)
    mask = torch.zeros(2, 1, 3, 5).masked_fill(torch.rand(2, 1, 3, 5) < 0.3, torch.finfo(torch.float32).min)
    want = [part(q, k, mask) for part in model.values()]
    with attentive_record.record(folder) as recording:
        got = [part(q, k, mask) for part in model.values()]
    assert all(torch.equal(a, b) for pair in zip(want, got) for a, b in zip(*pair))
    assert names_of(recording) == [SDPA_NAME]
    metadata, tensors = parse(recording.written[0])
    assert json.loads(metadata["call"]) == {"enable_gqa": True, "scale": 0.3}, metadata
    assert torch.equal(tensors["expected.output"], want[0][0].transpose(1, 2))
    assert torch.equal(tensors["expected.weights"], want[0][1]) and torch.equal(tensors["input.attn_mask"], mask)
    ((where, reason),) = recording.skipped
    assert "is off scaled_dot_product_attention by" in reason, reason
    assert list(recording.unrecognised) == [
        "modeling_of_a_test.eager_attention_forward in EagerAttention (a softmax, then a matrix product)"
    ]
    assert source.eager_attention_forward is original
    run_parity(recording)

    # Unlike for the fused function, autocast does not round masks here: a row of the lowest numbers stays a
    # mean.
    mask[0, 0, 1] = torch.finfo(torch.float32).min
    with attentive_record.record(folder / "autocast") as recording, torch.autocast("cpu", torch.bfloat16):
        model["plain"](q, k.bfloat16(), mask)
    metadata, tensors = parse(recording.written[0])
    assert "autocast" not in metadata and tensors["input.attn_mask"].dtype == torch.float32
    assert tensors["input.query"].dtype == tensors["expected.output"].dtype == torch.bfloat16
    assert tensors["expected.weights"][0, :, 1].sub(0.2).abs().max() < 1e-3
    del sys.modules[source.__name__]
    run_parity(recording)


def attend(q, k, v):
    weights = torch.softmax(q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5, -1)
    return torch.matmul(weights, v)


class PlainHeads(torch.nn.Module):
    def forward(self, x):
        return attend(x, x, x)


class StrangeAttention(torch.nn.Module):
    def forward(self, x):
        return x.cumsum(-2)


class Router(torch.nn.Module):
    def forward(self, x):
        return (x @ x.transpose(-2, -1)).softmax(-1).argmax(-1)


class Renamed(notebook.SelfAttention_v2):
    pass


def check_unrecognised(folder):
    """Possible attention is reported, with the way to record it; everything else is ignored."""
    x = torch.randn(2, 4, 6)
    with attentive_record.record(folder) as recording:
        for _ in range(3):
            torch.nn.Sequential(PlainHeads(), StrangeAttention())(x)
        attend(x, x, x)
        Router()(x)
        Renamed(6, 2)(x)
        notebook.FusedSelfAttention(6, 2)(x)
    assert recording.written == []
    here = __name__
    assert recording.unrecognised == {
        f"{here}.attend in PlainHeads (a softmax, then a matrix product)": 3,
        f"{here}.StrangeAttention (a module with this name)": 3,
        f"{here}.attend (a softmax, then a matrix product)": 1,
        "notebook_modules.attend in Renamed (a softmax, then a matrix product)": 1,
        "notebook_modules.attend in FusedSelfAttention (a softmax, then a matrix product)": 1,
    }, recording.summary()
    summary = recording.summary()
    for words in ("--name CLASS=CASE", "names={'CLASS': 'CASE'}", "SelfAttention_v2", "as_case(CASE)(f)", "f takes Q, K, V"):
        assert words in summary, summary
    assert f"{here}.attend in PlainHeads (a softmax, then a matrix product): 3 calls" in summary, summary

    marked = attentive_record.as_case("scaled_dot_product_attention")(attend)
    want = marked(x, x, x)
    with attentive_record.record(folder, names={"Renamed": "SelfAttention_v2"}) as recording:
        Renamed(6, 2)(x)
        assert torch.equal(marked(x, x, x), want)
        assert torch.equal(marked(x, v=x, k=x), want)
    assert names_of(recording) == ["SelfAttention_v2", *["scaled_dot_product_attention"] * 2], recording.summary()
    assert set(parse(recording.written[1])[1]) >= {"input.Q", "input.K", "input.V", "grad.input.Q"}
    assert not recording.unrecognised
    run_parity(recording)
    raises(ValueError, "as_case: expected one of scaled_dot_product", lambda: attentive_record.as_case("attention"))
    wrong = attentive_record.record(folder, names={"Renamed": "Attention"})
    raises(ValueError, "SelfAttention_v2, ", wrong.__enter__)


def check_calls(folder):
    """Every attention call becomes a case, nested ones once; if one fails, those inside it are still recorded."""
    torch.manual_seed(1)
    module = notebook.MultiHeadAttentionWrapper(3, 2, 6, 0.5, 2)
    x = torch.rand(2, 6, 3, requires_grad=True)
    torch.manual_seed(2)
    want, after = module(x), torch.rand(3)
    renamed = Renamed(3, 2)
    odd = torch.nn.TransformerEncoderLayer(4, 2, 8, 0.0, activation=lambda y: y)
    names = (torch.nn.Module.__call__, F.scaled_dot_product_attention, torch.softmax, torch.Tensor.softmax)
    torch.manual_seed(2)
    with attentive_record.record(folder / "cases", names={"Renamed": "SelfAttention_v2"}) as recording:
        got = module(x)
        assert torch.equal(torch.rand(3), after)
        with torch.no_grad():
            renamed(x)
        F.scaled_dot_product_attention(x, x, x, is_causal=True)
        torch.nn.MultiheadAttention(4, 2)(*(torch.rand(3, 1, 4),) * 3, need_weights=False)
        torch.nn.TransformerDecoderLayer(4, 2, 8)(torch.rand(3, 1, 4), torch.rand(5, 1, 4))
        odd(torch.rand(3, 1, 4))
        torch.nn.Linear(3, 2)(x)
        for _ in range(5):
            renamed(x.detach()[:1])
        raises(RuntimeError, "expected no other recording", attentive_record.record(folder).__enter__)
    assert torch.equal(got, want) and x.grad is None
    assert names == (torch.nn.Module.__call__, F.scaled_dot_product_attention, torch.softmax, torch.Tensor.softmax)
    assert "softmax" not in vars(torch.Tensor)
    ((where, reason),) = recording.skipped
    assert where == "torch.nn.TransformerEncoderLayer" and "expected an activation of" in reason, recording.summary()
    assert names_of(recording) == [
        "MultiHeadAttentionWrapper",
        "SelfAttention_v2",
        SDPA_NAME,
        "torch.nn.MultiheadAttention",
        "torch.nn.TransformerDecoderLayer",
        "torch.nn.MultiheadAttention",
        *["SelfAttention_v2"] * 3,
    ]
    assert parse(recording.written[5])[0]["path"] == "self_attn"
    assert recording.beyond_limit == 2
    metadata, tensors = parse(recording.written[0])
    assert metadata["forward_seed"] == "0" and metadata["train"] == "true" and "grad.input.x" in tensors
    metadata, tensors = parse(recording.written[1])
    assert metadata["grads"] == "false" and not any(name.startswith("grad.") for name in tensors)
    with attentive_record.record(folder / "cases", names={"Linear": "SelfAttention_v1"}) as recording:
        torch.nn.Linear(3, 2)(x)
    assert recording.written == [] and "SelfAttention_v1" in recording.summary()


def check_compiled(folder):
    """torch.jit.script and torch.compile work while recording, with the same bits; hidden calls are reported."""
    source = folder / "scripted_by_a_test.py"  # torch.jit.script reads source files
    source.write_text("import torch\n\n\ndef f(x):\n    w = torch.softmax(x @ x.t(), -1)\n    "
                      "return w @ torch.nn.functional.scaled_dot_product_attention(x, x, x) + x.softmax(0)\n")
    sys.path.insert(0, str(folder))
    import scripted_by_a_test

    x = torch.randn(4, 4)
    want = scripted_by_a_test.f(x)
    model = Block().eval()
    y = torch.randn(2, 3, 8)
    with torch.no_grad(), attentive_record.record(folder / "cases") as recording:
        assert torch.equal(torch.jit.script(scripted_by_a_test.f)(x), want)
        scripted = torch.jit.script(torch.nn.Softmax(-1))
        scripted(x)
        assert recording.written == []
        assert torch.equal(torch.compile(scripted_by_a_test.f, backend="aot_eager", fullgraph=True)(x), want)
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        assert torch.equal(compiled(y), model(y))
    assert [parse(path)[0]["path"] for path in recording.written] == [""], recording.summary()
    assert sum(re.search("compiled, so", what) is not None for what in recording.unrecognised) == 2, recording.summary()


def check_script(folder):
    """The command line runs a program under its own name and arguments, and takes class names."""
    script = folder / "program.py"
    script.write_text(textwrap.dedent(f"""
        import sys
        import torch
        from torch.nn.functional import scaled_dot_product_attention as attend
        sys.path.insert(0, {str(ROOT / "tools/users")!r})
        import attentive_record
        from notebook_modules import SelfAttention_v2
        class Mine(SelfAttention_v2):
            pass
        @attentive_record.as_case("scaled_dot_product_attention")
        def own(q, k, v):
            return (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1) @ v
        q = torch.rand(1, 2, 3)
        attend(q, q, q)
        Mine(3, 2)(q)
        own(q, q, q)
        print('ran', __name__, sys.argv[1])
        """))
    command = [sys.executable, ROOT / "tools/users/attentive_record.py", "--out", folder / "out", "--name", "Mine=SelfAttention_v2"]
    done = subprocess.run([*command, script, "argument"], capture_output=True, text=True, check=True)
    assert done.stdout == "ran __main__ argument\n" and done.stderr.startswith("3 cases in"), done
    assert [path.name for path in sorted((folder / "out").iterdir())] == [
        f"0001-{SDPA_NAME}.safetensors",
        "0002-SelfAttention_v2.safetensors",
        "0003-scaled_dot_product_attention.safetensors",
    ]
    done = subprocess.run([*command[:-1], "Mine=Attention", script], capture_output=True, text=True)
    assert done.returncode == 2 and "expected CLASS=CASE" in done.stderr, done


def main():
    torch.set_num_threads(1)
    for check in (
        check_fused_encoder,
        check_training,
        check_paths,
        check_autocast,
        check_eager,
        check_unrecognised,
        check_calls,
        check_compiled,
        check_script,
    ):
        with tempfile.TemporaryDirectory() as folder:
            check(Path(folder))
        print(f"ok {check.__name__[6:]}: {check.__doc__}")


if __name__ == "__main__":
    main()

"""Writes cases of whole models: transformers' own classes with small random weights, under this package's names.

    python tools/generators/make_model_cases.py [--out tests/parity]

Needs torch 2.11.0 and transformers 5.23.0 from PyPI; every model is built from a configuration, nothing is downloaded.
"""

import contextlib
import copy
import importlib

import torch
import transformers
from transformers import AutoModelForCausalLM

from case_models import randomize, write_model_case
from case_support import draw, fresh, normal, random_stream, run_generator

# --- What every family uses ---------------------------------------------------------------------------------------


class _Doubling:
    """Replaces the module torch in a modeling file: what that file always computes in float32 (norms, angles and
    softmax) becomes float64."""

    float32 = float = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@contextlib.contextmanager
def doubled(config):
    family = type(config).__module__.replace("configuration_", "modeling_")
    files = [importlib.import_module(name) for name in (family, "transformers.modeling_rope_utils")]
    to_float, default = torch.Tensor.float, torch.get_default_dtype()
    for file in files:
        file.torch = _Doubling()
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        for file in files:
            file.torch = torch
        torch.Tensor.float = to_float
        torch.set_default_dtype(default)


def draw_weights(model, unit_offset, gentle):
    """Draws small matrices, and very small norms after Gemma's sublayers, so that rounding errors grow less."""

    def norm(name, values):
        if gentle and unit_offset and "post_" in name:
            return values / 64 - 0.9375
        return values / 4 + (0 if unit_offset else 1)

    randomize(model, lambda name: 1 / 16 if gentle and "embed" not in name else 1 / 4, norm)


def build(auto_class, config, dtype=torch.float32, unit_offset=False):
    """The model of a configuration with random weights, rounded to dtype; half types compute in float64.

    Matrices are gentle in half types: with those of float32, PyTorch's own bfloat16 is 2 to 6 % off float64.
    """
    wide = dtype != torch.float32
    with doubled(config) if wide else contextlib.nullcontext():
        model = auto_class.from_config(copy.deepcopy(config), attn_implementation="eager").eval()
    draw_weights(model, unit_offset, gentle=dtype.itemsize == 2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.to(dtype))
    return model


def gradients_of(model, run, seed):
    return torch.autograd.grad((run(model) * seed).sum(), list(model.parameters()), allow_unused=True)


def distance(gradients, exact):
    """The largest difference of gradients from exact ones, over the largest of these."""
    pairs = [(a, b) for a, b in zip(gradients, exact) if b is not None]
    return max((a.double() - b).abs().max().item() for a, b in pairs) / max(b.abs().max().item() for _, b in pairs)


def own_error(model, run, seed, dtype):
    """How far the gradients of a model that computes in float64 are from its own in a half type."""
    with doubled(model.config):
        exact = gradients_of(model, run, seed)
    return distance(gradients_of(copy.deepcopy(model).to(dtype), run, seed), exact)


def rounding_error(model, run, seed):
    """How far the gradients of a float32 model are from float64, or move if each weight moves by a unit in its last place:
    the largest of four tries, which tells what another processor's rounding may do."""
    with doubled(model.config):
        wide = type(model)(copy.deepcopy(model.config)).eval()
        wide.load_state_dict(model.state_dict())
        exact = gradients_of(wide, run, seed)
        tries = []
        for n in range(4):
            moved = copy.deepcopy(wide)
            with torch.no_grad():
                for parameter in moved.parameters():
                    parameter.mul_(1 + normal(n, *parameter.shape, dtype=torch.float64).clamp(-2, 2) * 2.0**-24)
            tries.append(distance(gradients_of(moved, run, seed), exact))
    return max(distance(gradients_of(model, run, seed), exact), *tries)


class RoughDrawError(Exception):
    """A case whose rounding errors are near the tolerance: the processor would decide whether it passes."""


def write(path, options, model, table, inputs, run, dtype=torch.float32, call=None, grads=True):
    """One case: `run(model)` gives the output; `inputs` are the tensors that the C++ class takes.

    Raises RoughDrawError if rounding moves the gradients by a third of the tolerance, which is 3 % of the largest one in half
    types and 1e-5 in float32. The committed float32 cases are older than this rule and pass everywhere.
    """
    wide = dtype != torch.float32
    with torch.set_grad_enabled(grads), doubled(model.config) if wide else contextlib.nullcontext():
        output = run(model)
    seed = normal(5, *output.shape).to(dtype) if grads else None
    if grads and dtype.itemsize == 2:
        error = own_error(model, run, seed, dtype)
        if error > 0.01:
            raise RoughDrawError(f"{path.name}: PyTorch's own {dtype} is {error:.1%} off float64; expected at most 1 %")
    if grads and dtype == torch.float32 and fresh():
        error = rounding_error(model, run, seed)
        if error > 1e-5 / 3:
            raise RoughDrawError(f"{path.name}: rounding moves gradients by {error:.1e}; expected at most 3.3e-06")
    writer = {"grads": "true" if grads else "false", "writer": "make_model_cases 1"}
    write_model_case(path, "attentive.Llama", options, model, table, inputs, output, seed, dtype, call, **writer)


# --- Llama's family -----------------------------------------------------------------------------------------------

LAYER, OURS = r"model\.layers\.(\d+)\.", r"blocks.\1."
DECODER_NAMES = (
    (r"model\.embed_tokens\.weight", "tok_emb.weight"),
    (r"model\.norm\.weight", "final_norm.weight"),
    (r"lm_head\.weight", "out_head.weight"),
    (LAYER + r"self_attn\.q_proj\.(\w+)", OURS + r"att.W_query.\2"),
    (LAYER + r"self_attn\.k_proj\.(\w+)", OURS + r"att.W_key.\2"),
    (LAYER + r"self_attn\.v_proj\.(\w+)", OURS + r"att.W_value.\2"),
    (LAYER + r"self_attn\.o_proj\.(\w+)", OURS + r"att.out_proj.\2"),
    (LAYER + r"self_attn\.([qk]_norm)\.weight", OURS + r"att.\2.weight"),
    (LAYER + r"mlp\.gate_proj\.(\w+)", OURS + r"ff.gate.\2"),
    (LAYER + r"mlp\.up_proj\.(\w+)", OURS + r"ff.layers.0.\2"),
    (LAYER + r"mlp\.down_proj\.(\w+)", OURS + r"ff.layers.2.\2"),
    (LAYER + r"input_layernorm\.weight", OURS + "norm1.weight"),
)
LLAMA_NAMES = (*DECODER_NAMES, (LAYER + r"post_attention_layernorm\.weight", OURS + "norm2.weight"))
GEMMA_NAMES = (
    *DECODER_NAMES,
    (LAYER + r"post_attention_layernorm\.weight", OURS + "after1.weight"),
    (LAYER + r"pre_feedforward_layernorm\.weight", OURS + "norm2.weight"),
    (LAYER + r"post_feedforward_layernorm\.weight", OURS + "after2.weight"),
)

# Heads wider and narrower than emb_dim / num_heads, grouped queries, an eps that shows.
THEIR_SIZES = {
    "vocab_size": 23,
    "hidden_size": 12,
    "intermediate_size": 14,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-3,
    "tie_word_embeddings": False,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
OUR_SIZES = {
    "vocab_size": 23,
    "emb_dim": 12,
    "hidden_dim": 14,
    "num_layers": 3,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 6,
    "context_length": 64,
    "eps": 1e-3,
}
GEMMA_OURS = {"activation": "gelu_tanh", "norm_after": True, "unit_offset": True, "scaled_embedding": True, "tied": True}
ROTARY = {
    "head_dim": 0,
    "base": 10000.0,
    "pairing": "interleaved",
    "scaling": "none",
    "factor": 1.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_context": 8192.0,
}
TOKENS, WINDOW, PREFILL = 13, 4, 4


def rope(kind="default", **values):
    return {"rope_type": kind, **values}


def example_ids(seed=1):
    return torch.randint(0, THEIR_SIZES["vocab_size"], (2, TOKENS), generator=random_stream(seed))


def example_padding():
    """Padding in the middle, and an end shorter than the window: every query sees a key."""
    keep = torch.ones(2, TOKENS, dtype=torch.bool)
    keep[0, 5] = False
    keep[1, TOKENS - 2 :] = False
    return keep


def stepwise(model, ids):
    cache = transformers.DynamicCache(config=model.config)
    pieces = [ids[:, :PREFILL], *ids[:, PREFILL:].split(1, dim=1)]
    return torch.cat([model(piece, past_key_values=cache, use_cache=True).logits for piece in pieces], dim=1)


def decoder_family(folder, stem, config, options, table=LLAMA_NAMES, unit_offset=False, float64=False):
    """Cases without and with padding, with the cache, and in the other dtypes."""
    ids, keep = example_ids(), example_padding()
    options = {**OUR_SIZES, "rotary_pairing": "halves", **options}

    def case(name, run, inputs, dtype=torch.float32, **settings):
        path = folder.file(f"{stem}-{name}")
        last = 29 if fresh() else 0
        for attempt in range(last + 1):
            try:
                with draw(attempt):
                    model = build(AutoModelForCausalLM, config, dtype, unit_offset)
                    write(path, options, model, table, inputs, run, dtype, **settings)
                return
            except RoughDrawError:
                if attempt == last:
                    raise

    def plain(model):
        return model(ids, use_cache=False).logits

    case("fp32", plain, {"ids": ids})
    if float64:
        case("fp64", plain, {"ids": ids}, torch.float64)
    case("bf16", plain, {"ids": ids}, torch.bfloat16)
    padded = {"ids": ids, "attention_mask": keep}
    case("padding", lambda model: model(ids, attention_mask=keep, use_cache=False).logits, padded, grads=False)
    case("cached", lambda model: stepwise(model, ids), {"ids": ids}, call={"prefill": PREFILL}, grads=False)


def decoder_cases(folder):
    decoder_family(folder, "llama2", transformers.LlamaConfig(**THEIR_SIZES, rope_parameters=rope(rope_theta=10000.0)), {})
    python_sizes = {**THEIR_SIZES, "head_dim": 8, "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True}
    scaling = {"factor": 4.0, "low_freq_factor": 1.5, "high_freq_factor": 3.0, "original_max_position_embeddings": 32}
    options = {f"rotary_{name}": value for name, value in scaling.items() if not name.startswith("original")}
    options.update(rotary_scaling="llama3", rotary_original_context=32.0, rotary_base=20.0)
    options.update(head_dim=8, tied=True, qkv_bias=True, out_bias=True, ff_bias=True)
    config = transformers.LlamaConfig(**python_sizes, rope_parameters=rope("llama3", rope_theta=20.0, **scaling))
    decoder_family(folder, "llama3", config, options, float64=True)

    config = transformers.MistralConfig(**THEIR_SIZES, sliding_window=WINDOW, rope_parameters=rope(rope_theta=500.0))
    decoder_family(folder, "mistral", config, {"rotary_base": 500.0, "windows": [WINDOW] * 3, "context_length": 0})

    python_sizes = {name: value for name, value in THEIR_SIZES.items() if name != "head_dim"}
    python_sizes["hidden_size"] = 16
    config = transformers.Qwen2Config(**python_sizes, rope_parameters=rope(rope_theta=500.0))
    decoder_family(folder, "qwen2", config, {"rotary_base": 500.0, "qkv_bias": True, "emb_dim": 16, "head_dim": 0})

    layers = {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1}
    config = transformers.Qwen3Config(**THEIR_SIZES, **layers, rope_parameters=rope("linear", rope_theta=500.0, factor=2.0))
    options = {"rotary_base": 500.0, "rotary_scaling": "linear", "rotary_factor": 2.0}
    decoder_family(folder, "qwen3", config, {**options, "qk_norm": True, "windows": [0, WINDOW, WINDOW]})

    # The caps are small, so that they affect the results.
    python_sizes = {**THEIR_SIZES, "tie_word_embeddings": True, "query_pre_attn_scalar": 5}
    caps = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    config = transformers.Gemma2Config(
        **python_sizes, **caps, sliding_window=WINDOW, layer_types=kinds, rope_parameters=rope(rope_theta=500.0)
    )
    options = {**GEMMA_OURS, "rotary_base": 500.0, "softcap": 2.0, "logit_softcap": 3.0, "scale": 5**-0.5}
    decoder_family(folder, "gemma2", config, {**options, "windows": [WINDOW, 0, WINDOW]}, GEMMA_NAMES, unit_offset=True)

    kinds = ["sliding_attention"] * 5 + ["full_attention", "sliding_attention"]
    angles = {
        "full_attention": rope("linear", rope_theta=1000.0, factor=8.0),
        "sliding_attention": rope(rope_theta=50.0),
    }
    python_sizes.update(num_hidden_layers=len(kinds), intermediate_size=10)
    config = transformers.Gemma3TextConfig(**python_sizes, sliding_window=WINDOW, layer_types=kinds, rope_parameters=angles)
    options = {**GEMMA_OURS, "num_layers": len(kinds), "hidden_dim": 10, "qk_norm": True, "scale": 5**-0.5}
    options.update(rotary_base=1000.0, rotary_scaling="linear", rotary_factor=8.0)
    options.update(windows=[WINDOW] * 5 + [0, WINDOW], window_rotary={**ROTARY, "base": 50.0, "pairing": "halves"})
    decoder_family(folder, "gemma3", config, options, GEMMA_NAMES, unit_offset=True, float64=True)


if __name__ == "__main__":
    run_generator(__doc__, {"models": 200_000}, decoder_cases)

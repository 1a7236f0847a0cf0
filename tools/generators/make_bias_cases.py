"""Writes cases of learned position biases, and of the layers that add them, computed by transformers' own classes.

    python tools/generators/make_bias_cases.py [--out tests/modules/data]

Sizes and settings are drawn as well as weights and inputs, so that --seed gives other configurations. A case holds one
module's state under this package's names, one call, its result and its gradients. Needs torch 2.11.0 and transformers
5.23.0 from PyPI; nothing is downloaded.
"""

import json
import pathlib

import torch
import transformers
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
from transformers.models.swin.modeling_swin import SwinLayer, SwinRelativePositionBias
from transformers.models.t5.modeling_t5 import T5Attention, T5Block

from case_models import as_ours, randomize
from case_support import normal, random_stream, run_generator, save_safetensors

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "modules" / "data"

T5_NAMES = (
    (r"relative_attention_bias\.weight", "weight"),
    (r"layer\.0\.layer_norm\.weight", "norm1.weight"),
    (r"layer\.0\.SelfAttention\.relative_attention_bias\.weight", "att.position_bias.weight"),
    *((rf"layer\.0\.SelfAttention\.{one}\.weight", f"att.W_{name}.weight") for one, name in zip("qkv", ("query", "key", "value"))),
    (r"layer\.0\.SelfAttention\.o\.weight", "att.out_proj.weight"),
    (r"layer\.1\.layer_norm\.weight", "norm2.weight"),
    *((rf"layer\.1\.EncDecAttention\.{one}\.weight", f"cross.W_{name}.weight") for one, name in zip("qkv", ("query", "key", "value"))),
    (r"layer\.1\.EncDecAttention\.o\.weight", "cross.out_proj.weight"),
    (r"layer\.2\.layer_norm\.weight", "norm3.weight"),
    (r"layer\.\d\.DenseReluDense\.wi\.weight", "ff.layers.0.weight"),
    (r"layer\.\d\.DenseReluDense\.wi_0\.weight", "ff.gate.weight"),
    (r"layer\.\d\.DenseReluDense\.wi_1\.weight", "ff.layers.0.weight"),
    (r"layer\.\d\.DenseReluDense\.wo\.weight", "ff.layers.2.weight"),
)
SWIN_NAMES = (
    (r"relative_position_bias_table", "relative_position_bias_table"),
    *((rf"attention\.{one}_proj\.(\w+)", rf"att.W_{name}.\1") for one, name in zip("qkv", ("query", "key", "value"))),
    (r"attention\.o_proj\.(\w+)", r"att.out_proj.\1"),
    (r"attention\.relative_position_bias\.(\w+)", r"att.position_bias.\1"),
    (r"layernorm_before\.weight", "norm1.scale"),
    (r"layernorm_before\.bias", "norm1.shift"),
    (r"layernorm_after\.weight", "norm2.scale"),
    (r"layernorm_after\.bias", "norm2.shift"),
    (r"mlp\.fc1\.(\w+)", r"ff.layers.0.\1"),
    (r"mlp\.fc2\.(\w+)", r"ff.layers.2.\1"),
)


class Draw:
    """Settings of one case; --seed changes them."""

    def __init__(self, seed):
        self.stream = random_stream(seed)
        self.seed = seed * 100

    def integer(self, low, high):
        return int(torch.randint(low, high + 1, (), generator=self.stream))

    def one_of(self, *choices):
        return choices[self.integer(0, len(choices) - 1)]

    def normal(self, *shape, dtype=torch.float32):
        self.seed += 1
        return normal(self.seed, *shape, dtype=dtype)


def write(folder, stem, options, state, inputs, output, draw, table=(), writer="make_bias_cases 1"):
    """One case: `state` and `inputs` are the leaves of `output`; those without a gradient have none in the file."""
    seed = (draw.normal(*output.shape) * 32).round().clamp(-127, 127).to(output.dtype) / 32  # exact in every dtype
    leaves = {f"state.{key}": value for key, value in (as_ours(state, table) if table else state).items()}
    leaves.update({f"input.{key}": value for key, value in inputs.items()})
    wanted = {key: value for key, value in leaves.items() if value.requires_grad}
    found = torch.autograd.grad((output * seed).sum(), list(wanted.values()), allow_unused=True)
    contents = {**leaves, "expected.output": output, "input.grad_output": seed}
    contents.update({f"grad.{key}": value for key, value in zip(wanted, found) if value is not None})
    described = {
        "module": stem.split("-")[0],
        "options": json.dumps(options, sort_keys=True),
        "writer": writer,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    save_safetensors(folder.file(stem), contents, described)


def parameters(module):
    return dict(module.named_parameters())


# --- Biases alone -------------------------------------------------------------------------------------------------


def t5_bias_cases(folder):
    def case(stem, draw, heads, buckets, max_distance, bidirectional, queries, keys, dtype=torch.float32):
        config = transformers.T5Config(
            d_model=heads,
            d_kv=1,
            num_heads=heads,
            relative_attention_num_buckets=buckets,
            relative_attention_max_distance=max_distance,
            is_decoder=not bidirectional,
        )
        module = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).to(dtype)
        bias = module.relative_attention_bias
        with torch.no_grad():
            bias.weight.copy_(draw.normal(buckets, heads))
        output = module.compute_bias(queries, keys, past_seen_tokens=keys - queries)[0]
        options = {
            "num_heads": heads,
            "num_buckets": buckets,
            "max_distance": max_distance,
            "bidirectional": bidirectional,
            "queries": queries,
            "keys": keys,
        }
        write(folder, f"t5_bias-{stem}", options, {"weight": bias.weight}, {}, output, draw)

    for index in range(10):
        draw = Draw(1 + index)
        bidirectional = index % 2 == 0
        buckets = draw.integer(4, 40) if bidirectional else draw.integer(2, 40)
        exact = (buckets // 2 if bidirectional else buckets) // 2
        keys = draw.integer(1, 50)
        queries = draw.integer(1, 9)  # sometimes more than keys
        case(f"drawn{index}", draw, draw.integer(1, 4), buckets, draw.integer(exact + 1, 100), bidirectional, queries, keys)
    for bidirectional in (True, False):
        name = "both" if bidirectional else "before"
        case(f"defaults_{name}", Draw(20 + bidirectional), 1, 32, 128, bidirectional, 2, 400)
        case(f"first_keys_{name}", Draw(22 + bidirectional), 1, 32, 128, bidirectional, 400, 2)
        case(f"fp64_{name}", Draw(24 + bidirectional), 3, 32, 128, bidirectional, 9, 30, torch.float64)


def swin_bias_cases(folder):
    for index in range(8):
        draw = Draw(40 + index)
        dtype = torch.float64 if index == 7 else torch.float32
        height, width, heads = draw.integer(1, 5), draw.integer(1, 5), draw.integer(1, 3)
        module = SwinRelativePositionBias(heads, (height, width)).to(dtype)
        table = module.relative_position_bias_table
        with torch.no_grad():
            table.copy_(draw.normal(*table.shape))
        options = {"height": height, "width": width, "num_heads": heads}
        write(folder, f"swin_bias-drawn{index}", options, parameters(module), {}, module()[0], draw)


def distance_cases(folder):
    """Causal attention with MPT's ALiBi tensor, whose slopes are made a parameter."""
    for index in range(6):
        draw = Draw(60 + index)
        dtype = torch.float64 if index == 5 else torch.float32
        heads, tokens, width = 2 ** draw.integer(0, 3), draw.integer(2, 8), draw.integer(2, 4)
        theirs = build_mpt_alibi_tensor(heads, tokens).to(dtype)  # (heads, 1, tokens): -slope times the distance to the last key
        standard = -theirs[:, :, :1] / (tokens - 1)
        factor = (draw.normal(heads, dtype=dtype) / 4).exp()
        # The first two cases keep the standard slopes, with which the module begins.
        slopes = (standard.flatten() * (factor if index > 1 else 1)).requires_grad_()
        q, k, v = (draw.normal(2, heads, tokens, width, dtype=dtype).requires_grad_() for _ in "qkv")
        bias = theirs / standard * slopes.view(heads, 1, 1)
        hidden = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
        scores = (q @ k.mT / width**0.5 + bias).masked_fill(hidden, -torch.inf)
        options = {"num_heads": heads, "standard": index < 2}
        write(folder, f"distance-drawn{index}", options, {"slopes": slopes}, {"q": q, "k": k, "v": v}, scores.softmax(-1) @ v, draw)


# --- Layers -------------------------------------------------------------------------------------------------------


def real_tokens(draw, batch, tokens):
    """Which tokens are real: the first of each sequence always, the last of some not."""
    lengths = torch.tensor([draw.integer(1, tokens) for _ in range(batch)])
    lengths[draw.integer(0, batch - 1)] = tokens
    return torch.arange(tokens) < lengths.unsqueeze(1)


def added(keep):
    """The mask as transformers adds it to the scores."""
    return torch.zeros(keep.shape).masked_fill(~keep, torch.finfo(torch.float32).min)


def t5_layer_cases(folder):
    def case(stem, draw, decoder):
        heads = draw.integer(1, 4)
        head_dim = draw.integer(2, 4)
        # This package's cross-attention has heads whose features add up to those of its output.
        d_model = heads * head_dim if decoder else draw.integer(3, 9)
        feed_forward = draw.one_of("relu", "gated-gelu")
        config = transformers.T5Config(
            d_model=d_model,
            d_kv=head_dim,
            d_ff=draw.integer(3, 8),
            num_heads=heads,
            relative_attention_num_buckets=draw.integer(4, 16),
            relative_attention_max_distance=draw.integer(9, 20),
            feed_forward_proj=feed_forward,
            layer_norm_epsilon=draw.one_of(1e-6, 1e-3),
            is_decoder=decoder,
        )
        config._attn_implementation = "eager"
        block = T5Block(config, has_relative_attention_bias=True, layer_idx=0).eval()
        randomize(block, lambda name: 1.0 if "bias" in name else 0.4)
        batch, tokens, source = 2, draw.integer(5, 14), draw.integer(3, 8)
        inputs = {"hidden_states": draw.normal(batch, tokens, d_model).requires_grad_()}
        call = {}
        if decoder:
            causal = torch.ones(tokens, tokens, dtype=torch.bool).tril().expand(batch, 1, tokens, tokens)
            inputs["encoder_hidden_states"] = draw.normal(batch, source, d_model).requires_grad_()
            inputs["encoder_attention_mask"] = real_tokens(draw, batch, source)
            call = {
                "encoder_hidden_states": inputs["encoder_hidden_states"],
                "encoder_attention_mask": added(inputs["encoder_attention_mask"][:, None, None]),
            }
            output = block(inputs["hidden_states"], attention_mask=added(causal), **call)[0]
            check_cached(block, inputs["hidden_states"], output, call)
        else:
            inputs["attention_mask"] = real_tokens(draw, batch, tokens)
            output = block(inputs["hidden_states"], attention_mask=added(inputs["attention_mask"][:, None, None]))[0]
        options = {
            "emb_dim": d_model,
            "num_heads": heads,
            "head_dim": head_dim,
            "hidden_dim": config.d_ff,
            "num_buckets": config.relative_attention_num_buckets,
            "max_distance": config.relative_attention_max_distance,
            "gated": config.is_gated_act,
            "eps": config.layer_norm_epsilon,
        }
        write(folder, stem, options, parameters(block), inputs, output, draw, T5_NAMES)

    for index in range(5):
        case(f"t5_encoder-drawn{index}", Draw(80 + index), False)
        case(f"t5_decoder-drawn{index}", Draw(90 + index), True)


def check_cached(block, hidden, output, call):
    """Token by token with a cache, their layer computes what it computes of all tokens, as the C++ test expects of both."""
    cache = transformers.EncoderDecoderCache(transformers.DynamicCache(), transformers.DynamicCache())
    with torch.no_grad():
        rows = [block(hidden[:, t : t + 1], past_key_values=cache, **call)[0] for t in range(hidden.shape[1])]
    difference = (torch.cat(rows, 1) - output).abs().max()
    if difference > 1e-4:
        raise ValueError(f"a T5 layer with a cache differs by {difference}")


def swin_layer_cases(folder):
    for index in range(8):
        draw = Draw(110 + index)
        dtype = torch.float64 if index >= 6 else torch.float32
        window, heads = draw.integer(2, 4), draw.integer(1, 3)
        shift = draw.integer(1, window - 1) if index % 2 else 0
        dim = heads * draw.integer(2, 3)
        size = draw.integer(window + 1, 2 * window + 1), draw.integer(window + 1, 2 * window + 1)  # padded if need be
        config = transformers.SwinConfig(
            window_size=window,
            mlp_ratio=draw.one_of(1.0, 2.0),
            qkv_bias=draw.one_of(True, False),
            layer_norm_eps=draw.one_of(1e-5, 1e-3),
            hidden_act="gelu",
        )
        # The eager implementation computes its softmax in float32, even for float64.
        config._attn_implementation = "sdpa" if dtype == torch.float64 else "eager"
        layer = SwinLayer(config, dim, size, heads, shift_size=shift).to(dtype).eval()
        randomize(layer, lambda name: 1.0 if "table" in name else 0.4)
        hidden = draw.normal(2, size[0] * size[1], dim, dtype=dtype).requires_grad_()
        output = layer(hidden, size)[0]
        options = {
            "emb_dim": dim,
            "num_heads": heads,
            "window": window,
            "shift": shift,
            "height": size[0],
            "width": size[1],
            "hidden_dim": int(config.mlp_ratio * dim),
            "qkv_bias": config.qkv_bias,
            "eps": config.layer_norm_eps,
        }
        write(folder, f"swin_layer-drawn{index}", options, parameters(layer), {"hidden_states": hidden}, output, draw, SWIN_NAMES)


if __name__ == "__main__":
    run_generator(
        __doc__, {"biases": 60_000}, t5_bias_cases, swin_bias_cases, distance_cases, t5_layer_cases, swin_layer_cases, out=OUT
    )

"""Writes cases of latent attention, of rotations by YaRN and of gated delta nets, computed by transformers' own classes.

    python tools/generators/make_mixer_cases.py [--out tests/modules/data]

Sizes and settings are drawn as well as weights and inputs; --seed gives 50 other configurations of each kind. A case
holds one module's state, an input whose sequences may begin with padding, its output, which counts only for the other
tokens, and its gradients; a case of the delta rule with gates per channel holds its tensors, and its output and final
state one after the other. Needs torch 2.11.0 and transformers 5.24.0 from PyPI; nothing is downloaded.
"""

import torch
import transformers
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek
from transformers.models.kimi_linear import modeling_kimi_linear as kimi
from transformers.models.llama import modeling_llama as llama
from transformers.models.qwen3_next import modeling_qwen3_next as qwen

from case_support import fresh, run_generator
from make_bias_cases import OUT, Draw, parameters, write

transformers.utils.logging.set_verbosity_error()  # YaRN warns of factors that are no ratio of two lengths

INIT_SEED = 7

# Settings of YaRN: DeepSeek-V3's, each that its factor or its angles depend on, and a slope that ends behind all pairs
# or has no length.
YARN = (
    {"mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 32, "beta_slow": 1},
    {},
    {"mscale": 0.7},
    {"mscale_all_dim": 0.8},
    {"attention_factor": 0.6, "mscale_all_dim": 1.2},
    {"truncate": False, "rope_theta": 10000.0, "original_max_position_embeddings": 4096},
    {"mscale": 1.5, "mscale_all_dim": 0.5, "beta_fast": 9.5, "beta_slow": 0.3, "truncate": False},
    {"beta_slow": 0.2, "rope_theta": 50.0, "original_max_position_embeddings": 4096},
    {"original_max_position_embeddings": 6},
)


def built(draw, kind, config):
    """The module that Python draws after the seed 7, with other numbers unless those of the first weights are wanted."""
    torch.manual_seed(INIT_SEED)
    module = kind(config, 0).eval()
    first = draw.integer(0, 2) == 0
    if not first:
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.add_(draw.normal(*parameter.shape) / 4)
    return module, {"init_seed": INIT_SEED} if first else {}


def case(folder, stem, draw, width, module, options, call):
    batch, tokens = draw.integer(1, 2), draw.integer(1, 96 if fresh() else 7)
    x = draw.normal(batch, tokens, width).requires_grad_()
    keep = torch.ones(batch, tokens, dtype=torch.bool)
    inputs = {"x": x}
    if draw.integer(0, 1):
        for sequence in keep:
            sequence[: draw.integer(0, tokens - 1)] = False
        inputs["keep"] = keep
    output = call(x, keep) * keep.unsqueeze(-1)
    write(folder, stem, options, parameters(module), inputs, output, draw, writer="make_mixer_cases 1")


def yarn(draw, index):
    sizes = {"rope_theta": draw.one_of(10000.0, 50.0), "factor": draw.one_of(2.5, 40.0)}
    sizes["original_max_position_embeddings"] = draw.one_of(16, 200, 4096)
    return {"rope_type": "yarn", **sizes, **YARN[index % len(YARN)]}


def rotated(folder, stem, draw, index):
    features, tokens = 2 * draw.integer(5, 16), draw.integer(2, 9)
    config = transformers.LlamaConfig(hidden_size=features, num_attention_heads=1, rope_parameters=yarn(draw, index))
    q = draw.normal(1, 2, tokens, features).requires_grad_()
    cos, sin = llama.LlamaRotaryEmbedding(config)(q, torch.arange(tokens)[None])
    output = llama.apply_rotary_pos_emb(q, q, cos, sin)[0]
    write(folder, stem, {"rope": config.rope_parameters}, {}, {"q": q}, output, draw, writer="make_mixer_cases 1")


def latent(folder, stem, draw, index=None):
    wide = fresh()
    heads, rope, nope = draw.integer(1, 4 if wide else 3), 2 * draw.integer(1, 4 if wide else 2), draw.integer(1, 9 if wide else 4)
    if index is not None:
        rope = 2 * draw.integer(2, 8)
    sizes = {
        "num_attention_heads": heads,
        "hidden_size": draw.integer(2, 24 if wide else 6),
        "q_lora_rank": draw.one_of(None, draw.integer(2, 9 if wide else 5)),
        "kv_lora_rank": draw.integer(2, 20 if wide else 7),
        "qk_nope_head_dim": nope,
        "qk_rope_head_dim": rope,
        "v_head_dim": draw.integer(1, nope + rope),
        "attention_bias": draw.one_of(False, True),
        "rope_interleave": draw.one_of(True, False),
    }
    config = deepseek.DeepseekV3Config(**sizes, num_key_value_heads=heads, attn_implementation="eager")
    plain = {"rope_type": "default", "rope_theta": draw.one_of(10000.0, 500.0)}
    config.rope_parameters = plain if index is None else yarn(draw, index)
    module, settings = built(draw, deepseek.DeepseekV3Attention, config)
    rotary = deepseek.DeepseekV3RotaryEmbedding(config)

    def call(x, keep):
        tokens = x.shape[1]
        seen = torch.ones(tokens, tokens, dtype=torch.bool).tril() & keep[:, None, None, :]
        mask = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(x.dtype).min)
        # Positions without padding, as generate counts them; ours count it, which changes no distance.
        positions = (keep.long().cumsum(-1) - 1).clamp(min=0)
        return module(x, rotary(x, positions), mask)[0]

    options = {**sizes, **settings, "rope": config.rope_parameters}
    case(folder, stem, draw, sizes["hidden_size"], module, options, call)


def delta(folder, stem, draw):
    wide = fresh()
    key_heads = draw.integer(1, 3 if wide else 2)
    sizes = {
        "hidden_size": draw.integer(2, 24 if wide else 5),
        "linear_num_key_heads": key_heads,
        "linear_num_value_heads": key_heads * draw.integer(1, 3 if wide else 2),
        "linear_key_head_dim": draw.integer(1, 20 if wide else 4),
        "linear_value_head_dim": draw.integer(1, 20 if wide else 4),
        "linear_conv_kernel_dim": draw.integer(1, 4),
        "rms_norm_eps": draw.one_of(1e-6, 1e-5),
    }
    config = qwen.Qwen3NextConfig(**sizes, num_hidden_layers=1)
    module, settings = built(draw, qwen.Qwen3NextGatedDeltaNet, config)
    case(folder, stem, draw, sizes["hidden_size"], module, {**sizes, **settings}, lambda x, keep: module(x, attention_mask=keep))


def channel_gates(folder, stem, draw):
    batch, heads, tokens = draw.integer(1, 2), draw.integer(1, 3), draw.integer(1, 140 if fresh() else 9)
    key, value = draw.integer(1, 24 if fresh() else 5), draw.integer(1, 24 if fresh() else 5)
    normalized = draw.one_of(True, False)
    inputs = {
        "q": draw.normal(batch, tokens, heads, key),
        "k": draw.normal(batch, tokens, heads, key) / (1 if normalized else key),
        "v": draw.normal(batch, tokens, heads, value),
        "gate": -draw.one_of(0.1, 3.0) * draw.normal(batch, tokens, heads, key).exp(),
        "beta": draw.normal(batch, tokens, heads).sigmoid(),
    }
    if draw.integer(0, 1):
        inputs["state"] = draw.normal(batch, heads, key, value)
    inputs = {name: tensor.requires_grad_() for name, tensor in inputs.items()}
    tensors = {"q": "query", "k": "key", "v": "value", "gate": "g", "beta": "beta", "state": "initial_state"}
    output, state = kimi.chunk_kimi_delta_attention(
        **{tensors[name]: tensor for name, tensor in inputs.items()},
        use_qk_l2norm_in_kernel=normalized,
        output_final_state=True,
    )
    results = torch.cat((output.flatten(), state.flatten()))
    write(folder, stem, {"normalized": normalized}, {}, inputs, results, draw, writer="make_mixer_cases 1")


def cases(folder):
    for index in range(50 if fresh() else 7):
        latent(folder, f"latent-{index}", Draw(1000 + index))
        delta(folder, f"delta-{index}", Draw(2000 + index))
        channel_gates(folder, f"channels-{index}", Draw(3000 + index))
    for index in range(50 if fresh() else len(YARN)):
        latent(folder, f"yarn-{index}", Draw(4000 + index), index)
        rotated(folder, f"rotary-{index}", Draw(5000 + index), index)


if __name__ == "__main__":
    run_generator(__doc__, {"mixers": 700_000}, cases, out=OUT)

"""Writes cases of fused projections of queries, keys and values, computed by the attention classes of transformers, and of
grouped heads, computed by x-transformers.

    python tools/generators/make_fused_cases.py [--out tests/modules/data]

A case holds the weights of one class, its input, its output and its gradients; `options` are those of
attentive::convert::split_fused. Sizes are drawn as far as a class allows. Needs torch 2.11.0, transformers 5.24.0 and
x-transformers 2.31.10 from PyPI; nothing is downloaded.
"""

import torch
from transformers.models.bloom import modeling_bloom as bloom
from transformers.models.codegen import modeling_codegen as codegen
from transformers.models.falcon import modeling_falcon as falcon
from transformers.models.gpt2 import modeling_gpt2 as gpt2
from transformers.models.gpt_bigcode import modeling_gpt_bigcode as bigcode
from transformers.models.gpt_neox import modeling_gpt_neox as neox
from transformers.models.mpt import modeling_mpt as mpt
from transformers.models.phi3 import modeling_phi3 as phi3

from case_support import run_generator
from make_bias_cases import OUT, Draw, write

BATCH, TOKENS = 1, 6
HIDDEN = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
CAUSAL = torch.zeros(1, 1, TOKENS, TOKENS).masked_fill(HIDDEN, torch.finfo(torch.float32).min)
POSITIONS = torch.arange(TOKENS).unsqueeze(0)


def case(folder, stem, draw, module, fused, out, order, call, heads, head_dim, **more):
    """`call` computes the output of `module` from its input; `more` are further options, which C++ reads."""
    module.eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(draw.normal(*parameter.shape) / 2)
    x = draw.normal(BATCH, TOKENS, heads * head_dim)
    state = {key: value for key, value in fused.named_parameters()}
    weight = out.weight.t() if more.get("transposed") else out.weight
    inputs = {"x": x, "out.weight": weight.detach().contiguous()}
    if out.bias is not None:
        inputs["out.bias"] = out.bias.detach()
    options = {"order": order, "heads": heads, "head_dim": head_dim, **more}
    write(folder, stem, options, state, inputs, call(x), draw, writer="make_fused_cases 1")


def gpt_neox(folder):
    draw = Draw(1)
    heads, head_dim = draw.integer(2, 3), 4
    config = neox.GPTNeoXConfig(hidden_size=heads * head_dim, num_attention_heads=heads, attn_implementation="eager")
    config.rope_parameters["partial_rotary_factor"] = 0.5
    module = neox.GPTNeoXAttention(config, 0)
    rotary = neox.GPTNeoXRotaryEmbedding(config)

    def call(x):
        return module(x, CAUSAL, position_embeddings=rotary(x, POSITIONS))[0]

    more = {"rotary": "halves", "rotary_dim": 2}
    case(folder, "gpt_neox", draw, module, module.query_key_value, module.dense, "per-head", call, heads, head_dim, **more)


def bloom_cases(folder):
    draw = Draw(2)
    heads, head_dim = 4, draw.integer(2, 3)
    module = bloom.BloomAttention(bloom.BloomConfig(hidden_size=heads * head_dim, n_head=heads), 0)
    alibi = bloom.build_alibi_tensor(torch.ones(BATCH, TOKENS), heads, torch.float32)

    def call(x):
        return module(x, torch.zeros_like(x), alibi, CAUSAL)[0]

    case(folder, "bloom", draw, module, module.query_key_value, module.dense, "per-head", call, heads, head_dim, alibi=True)


def falcon_cases(folder):
    for index, (name, order, kv_heads) in enumerate((("heads", "per-head", 4), ("one", "blocks", 1), ("groups", "per-group", 2))):
        draw = Draw(3 + index)
        heads, head_dim = 4, 2
        config = falcon.FalconConfig(
            hidden_size=heads * head_dim,
            num_attention_heads=heads,
            num_kv_heads=kv_heads,
            multi_query=name == "one",
            new_decoder_architecture=name == "groups",
            bias=draw.one_of(True, False),
            attn_implementation="eager",
        )
        module = falcon.FalconAttention(config, 0)
        rotary = falcon.FalconRotaryEmbedding(config)

        def call(x, module=module, rotary=rotary):
            return module(x, None, CAUSAL, position_embeddings=rotary(x, POSITIONS))[0]

        more = {"kv_heads": kv_heads, "rotary": "halves", "rotary_dim": head_dim}
        case(folder, f"falcon-{name}", draw, module, module.query_key_value, module.dense, order, call, heads, head_dim, **more)


def gpt_bigcode(folder):
    for index, one in enumerate((True, False)):
        draw = Draw(6 + index)
        heads, head_dim = draw.integer(3, 4), draw.integer(2, 3)
        config = bigcode.GPTBigCodeConfig(
            n_embd=heads * head_dim, n_head=heads, multi_query=one, attn_implementation="eager"
        )
        module = bigcode.GPTBigCodeAttention(config, layer_idx=0)

        def call(x, module=module):
            return module(x, attention_mask=CAUSAL)[0]

        order, kv_heads = ("blocks", 1) if one else ("per-head", heads)
        stem = f"gpt_bigcode-{'one' if one else 'heads'}"
        case(folder, stem, draw, module, module.c_attn, module.c_proj, order, call, heads, head_dim, kv_heads=kv_heads)


def phi_3(folder):
    draw = Draw(8)
    heads, head_dim = 4, 2
    config = phi3.Phi3Config(
        hidden_size=heads * head_dim,
        num_attention_heads=heads,
        num_key_value_heads=2,
        max_position_embeddings=64,
        original_max_position_embeddings=64,
        pad_token_id=0,
        attn_implementation="eager",
    )
    module = phi3.Phi3Attention(config, 0)
    rotary = phi3.Phi3RotaryEmbedding(config)

    def call(x):
        return module(x, rotary(x, POSITIONS), CAUSAL)[0]

    more = {"kv_heads": 2, "rotary": "halves", "rotary_dim": head_dim}
    case(folder, "phi3", draw, module, module.qkv_proj, module.o_proj, "blocks", call, heads, head_dim, **more)


def codegen_cases(folder):
    draw = Draw(9)
    heads, head_dim = 8, 2  # two heads in each of the four parts
    config = codegen.CodeGenConfig(n_embd=heads * head_dim, n_head=heads, rotary_dim=head_dim, attn_implementation="eager")
    module = codegen.CodeGenAttention(config, 0)
    rotary = codegen.CodeGenRotaryEmbedding(config)

    def call(x):
        return module(x, rotary(x, POSITIONS), CAUSAL)[0]

    more = {"parts": 4, "rotary": "interleaved", "rotary_dim": head_dim}
    case(folder, "codegen", draw, module, module.qkv_proj, module.out_proj, "parts", call, heads, head_dim, **more)


def gpt_2(folder):
    draw = Draw(10)
    heads, head_dim = draw.integer(2, 4), draw.integer(2, 3)
    config = gpt2.GPT2Config(n_embd=heads * head_dim, n_head=heads, attn_implementation="eager")
    module = gpt2.GPT2Attention(config, layer_idx=0)

    def call(x):
        return module(x, attention_mask=CAUSAL)[0]

    case(folder, "gpt2", draw, module, module.c_attn, module.c_proj, "thirds", call, heads, head_dim, transposed=True)


def mpt_cases(folder):
    draw = Draw(11)
    heads, head_dim = 4, draw.integer(2, 3)
    module = mpt.MptAttention(mpt.MptConfig(d_model=heads * head_dim, n_heads=heads), 0)
    bias = mpt.build_mpt_alibi_tensor(heads, TOKENS)

    def call(x):
        return module(x, bias, attention_mask=HIDDEN)[0]

    case(folder, "mpt", draw, module, module.Wqkv, module.out_proj, "thirds", call, heads, head_dim, alibi=True)


def x_transformers(folder):
    from x_transformers.x_transformers import Attention

    for index, (heads, kv_heads) in enumerate(((4, 2), (6, 2), (6, 3))):
        draw = Draw(12 + index)
        head_dim, width = draw.integer(1, 3), draw.integer(3, 5)
        module = Attention(dim=width, heads=heads, kv_heads=kv_heads, dim_head=head_dim, causal=True).eval()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(draw.normal(*parameter.shape) / 2)
        x = draw.normal(BATCH, TOKENS, width)
        options = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
        state = dict(module.named_parameters())
        write(folder, f"x_transformers-{index}", options, state, {"x": x}, module(x), draw, writer="make_fused_cases 1")


def generate(folder):
    for write_cases in (
        gpt_neox,
        bloom_cases,
        falcon_cases,
        gpt_bigcode,
        phi_3,
        codegen_cases,
        gpt_2,
        mpt_cases,
        x_transformers,
    ):
        write_cases(folder)


if __name__ == "__main__":
    run_generator(__doc__, {"fused": 10_000}, generate, out=OUT)

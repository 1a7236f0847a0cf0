"""Every text class of the installed transformers that hands its attention to the interface, with small random weights, against
"eager"."""

import pathlib

import pytest
import torch

transformers = pytest.importorskip("transformers")

import attentive.transformers  # noqa: E402
from transformers.models.auto import configuration_auto, modeling_auto  # noqa: E402

pytestmark = pytest.mark.long
MODELS = pathlib.Path(transformers.__file__).parent / "models"


def classes():
    """{class: (model type, kind)} of the classes of text alone whose file names the interface."""
    found = {}
    for mapping, kind in (("CAUSAL_LM", "text"), ("MASKED_LM", "masked"), ("SEQ_TO_SEQ_CAUSAL_LM", "translation")):
        for model_type, name in getattr(modeling_auto, f"MODEL_FOR_{mapping}_MAPPING_NAMES").items():
            folder = MODELS / configuration_auto.model_type_to_module_name(model_type)
            asks = any("ALL_ATTENTION_FUNCTIONS" in file.read_text() for file in folder.glob("modeling_*.py"))
            if asks and model_type not in LEFT_OUT and (model_type in OWN or not configuration_auto.CONFIG_MAPPING[model_type].sub_configs):
                found.setdefault(name, (model_type, kind))
    return found


# Fields of configurations, and what a small model has there.
SMALL = {
    "vocab_size": 99, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 0, "sliding_window": 5,
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "word_embed_proj_dim", "embedding_size"), 64),
    **dict.fromkeys(("intermediate_size", "d_ff", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "ffn_hidden_size", "dff", "hidden_dim",
                     "dense_intermediate_size", "intermediate_size_mlp", "shared_intermediate_size", "shared_expert_intermediate_size"), 96),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers", "num_decoder_layers"), 4),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads",
                     "linear_num_value_heads", "swa_num_attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "linear_num_key_heads", "swa_num_key_value_heads"), 2),
    **dict.fromkeys(("head_dim", "d_kv", "kv_channels", "swa_head_dim", "kv_lora_rank", "qk_nope_head_dim", "v_head_dim", "linear_key_head_dim",
                     "linear_value_head_dim", "linear_head_dim", "attention_head_dim", "qk_rope_head_dim"), 16),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_source_positions", "max_target_positions"), 128),
    **dict.fromkeys(("moe_intermediate_size", "expert_ffn_hidden_size", "moe_shared_expert_intermediate_size", "q_lora_rank"), 32),
    **dict.fromkeys(("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"), 8),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_k", "first_k_dense_replace"), 2),
    **dict.fromkeys(("n_group", "topk_group", "n_groups", "n_shared_experts", "num_shared_experts", "mamba_n_groups"), 1),
    "unpadded_vocab_size": 99, "vocab_size_per_layer_input": 99, "hidden_size_per_layer_input": 8,
    "index_topk": 4, "index_n_heads": 2, "index_head_dim": 16, "mamba_n_heads": 8, "mamba_chunk_size": 16,
}
OWN = {
    "bailing_hybrid": dict(layer_group_size=2, n_group=1, topk_group=1, num_experts_per_tok=2),
    "bamba": dict(attn_layer_indices=[1, 3]),
    "codegen": dict(rotary_dim=8),
    "dbrx": dict(attn_config=dict(kv_n_heads=2, rope_theta=1e4, clip_qkv=8.0), ffn_config=dict(ffn_hidden_size=96, moe_num_experts=4, moe_top_k=2)),
    "deepseek_v4": dict(head_dim=32, o_groups=2, o_lora_rank=16, hc_mult=2, num_key_value_heads=1,
                        compress_rates={"compressed_sparse_attention": 2, "heavily_compressed_attention": 4}),
    "dory": dict(n_input_layers=1, n_output_layers=1),
    "esmc": dict(num_key_value_heads=4),
    "falcon_h1": dict(mamba_d_ssm=64),
    "gemma3n_text": dict(num_kv_shared_layers=0),
    "gptj": dict(rotary_dim=8),
    "granitemoehybrid": dict(layer_types=["mamba", "attention"] * 2),
    "inkling2_text": dict(sliding_window_size=5, rel_extent=16),
    "inkling2_loop_text": dict(sliding_window_size=5, rel_extent=16),
    "inkling_text": dict(sliding_window_size=5, rel_extent=16),
    "jamba": dict(attn_layer_period=2, attn_layer_offset=1),
    "kimi_linear": dict(layer_types=["linear_attention", "full_attention"] * 2),
    "lfm2_moe": dict(layer_types=["conv", "full_attention"] * 2),
    "minimax_m3_vl_text": dict(layer_types=["full_attention", "minimax_m3_sparse"] * 2, index_block_size=4, index_topk_blocks=2),
    "mobilebert": dict(embedding_size=32, intra_bottleneck_size=32),
    "qwen4_exp_text": dict(layer_types=["linear_attention", "indexed_attention"] * 2, indexer_n_heads=2, indexer_kv_heads=1,
                           indexer_head_dim=16, indexer_budget=4, indexer_compress_ratio=2),
    "roc_bert": dict(shape_vocab_size=99, shape_embed_dim=32, pronunciation_embed_dim=32),
    "xmod": dict(default_language="en_XX"),
    "zamba2": dict(layers_block_type=["mamba", "hybrid"] * 2),
    "zaya": dict(num_experts_per_tok=1),
}
WITHOUT_CACHE = {"dory", "recurrent_gemma"}  # eager fails when a text goes on, or returns no cache
AS_SDPA = {"recurrent_gemma"}  # what padding computes goes on to real tokens: zeros as with sdpa, where eager has a mean
LEFT_OUT = {"cohere_compass_text", "dots3_note_text", "zamba", "wav2vec2"}  # fixed sizes, rotations or layers; no text
if transformers.__version__.startswith("4."):
    AS_SDPA.add("llama4_text")  # its experts mix the tokens
    LEFT_OUT |= {"data2vec-text", "t5gemma", "zamba2"}  # its own implementations; two configurations in one; fixed layers
if torch.__version__.startswith("2.7"):
    LEFT_OUT.add("qwen4_exp_text")  # its own code scatters by int32, which PyTorch 2.7 refuses
# Classes that are refused, and the words of the refusal.
REFUSED = {
    "Inkling2ForCausalLM": "sinks", "Inkling2LoopForCausalLM": "sinks", "MiniMaxM3VLForCausalLM": "block_indices",
}
CLASSES = classes()


def small_config(model_type):
    kind = configuration_auto.CONFIG_MAPPING[model_type]
    fields = kind().to_dict()
    latent = {"num_key_value_heads": 4} if "kv_lora_rank" in fields else {}  # heads of their own from shared latent vectors
    return kind(**{**{field: value for field, value in SMALL.items() if field in fields}, **latent, **OWN.get(model_type, {})})


def small_model(name, model_type, implementation):
    torch.manual_seed(0)
    model = getattr(transformers, name)._from_config(small_config(model_type), attn_implementation=implementation)
    for parameter, values in model.named_parameters():
        if values.dim() > 1 or "sinks" in parameter:
            torch.nn.init.normal_(values, std=0.1)
    return model.eval()


def logits_of(model, kind, cache=True):
    """Of a batch without padding, of one with padding on the left, and of a text that goes on after a cache."""
    ids = torch.randint(4, 99, (2, 24), generator=torch.Generator().manual_seed(1))
    real = torch.ones_like(ids)
    real[1, :5] = 0
    more = {"decoder_input_ids": ids.flip(1)[:, :16]} if kind == "translation" else {}
    with torch.no_grad():
        found = [model(input_ids=ids, **more).logits, model(input_ids=ids, attention_mask=real, **more).logits]
        if kind != "translation":
            found[1] = found[1][real.bool()]
        if kind == "text" and cache:
            first = model(input_ids=ids[:, :16], use_cache=True)
            found.append(model(input_ids=ids[:, 16:20], past_key_values=first.past_key_values, use_cache=True).logits)
            found.append(model(input_ids=ids[:, 20:21], past_key_values=first.past_key_values, use_cache=True).logits)
    return found


@pytest.mark.parametrize("name", CLASSES)
def test_class(name, monkeypatch):
    calls = []

    def attention(*tensors, **options):
        calls.append(options)
        return attentive.attention(*tensors, **options)
    monkeypatch.setattr(attentive.transformers, "attention", attention)
    transformers.logging.set_verbosity_error()
    attentive.transformers.register()
    attentive.transformers.register("attentive_full", full_masks=True)
    model_type, kind = CLASSES[name]
    cache = model_type not in WITHOUT_CACHE
    want = logits_of(small_model(name, model_type, "sdpa" if model_type in AS_SDPA else "eager"), kind, cache)
    for implementation in ("attentive", "attentive_full"):
        if name in REFUSED:
            with pytest.raises(NotImplementedError, match=REFUSED[name]):
                logits_of(small_model(name, model_type, implementation), kind, cache)
            continue
        calls.clear()
        for got, wanted in zip(logits_of(small_model(name, model_type, implementation), kind, cache), want, strict=True):
            assert (got - wanted).norm() <= 1e-5 * wanted.norm()
        assert calls

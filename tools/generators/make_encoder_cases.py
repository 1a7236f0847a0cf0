"""Writes cases of encoder models: transformers' own classes with small random weights, under this package's names.

    python tools/generators/make_encoder_cases.py [--out tests/parity]

Needs torch 2.11.0 and transformers 5.23.0 from PyPI; every model is built from a configuration, nothing is downloaded.
"""

import torch
import transformers

from case_models import randomize, write_model_case
from case_support import normal, random_stream, run_generator

# --- Names: Python's -> ours, the first pattern that matches ----------------------------------------------------------


def norm(python_name, our_name):
    return (python_name + r"\.weight", our_name + ".scale"), (python_name + r"\.bias", our_name + ".shift")


LAYER, OURS = r".*encoder\.layer\.(\d+)\.", r"blocks.\1."
EMBEDDINGS = (
    (r".*word_embeddings\.weight", "tok_emb.weight"),
    (r".*position_embeddings\.weight", "pos_emb.weight"),
    (r".*token_type_embeddings\.weight", "type_emb.weight"),
    *norm(r".*embeddings\.LayerNorm", "emb_norm"),
    (r".*pooler(?:\.dense)?\.(\w+)", r"pooler.\1"),
)
MASKED_LM = (
    (r"(?:cls\.predictions\.transform|predictions|lm_head)\.dense\.(\w+)", r"mlm_dense.\1"),
    *norm(r"(?:cls\.predictions\.transform|predictions|lm_head)\.(?:LayerNorm|layer_norm)", "mlm_norm"),
    (r"(?:cls\.predictions|predictions|lm_head)\.(?:decoder\.)?bias", "mlm_bias"),
)
BERT_NAMES = (
    *EMBEDDINGS,
    *MASKED_LM,
    (LAYER + r"attention\.self\.(query|key|value)\.(\w+)", OURS + r"att.W_\2.\3"),
    (LAYER + r"attention\.output\.dense\.(\w+)", OURS + r"att.out_proj.\2"),
    *norm(LAYER + r"attention\.output\.LayerNorm", OURS + "norm1"),
    (LAYER + r"intermediate\.dense\.(\w+)", OURS + r"ff.layers.0.\2"),
    (LAYER + r"output\.dense\.(\w+)", OURS + r"ff.layers.2.\2"),
    *norm(LAYER + r"output\.LayerNorm", OURS + "norm2"),
)
SHARED = r".*albert_layers\.0\."
ALBERT_NAMES = (
    *EMBEDDINGS,
    *MASKED_LM,
    (r".*embedding_hidden_mapping_in\.(\w+)", r"emb_proj.\1"),
    (SHARED + r"attention\.(query|key|value)\.(\w+)", r"blocks.0.att.W_\1.\2"),
    (SHARED + r"attention\.dense\.(\w+)", r"blocks.0.att.out_proj.\1"),
    *norm(SHARED + r"attention\.LayerNorm", "blocks.0.norm1"),
    (SHARED + r"ffn\.(\w+)", r"blocks.0.ff.layers.0.\1"),
    (SHARED + r"ffn_output\.(\w+)", r"blocks.0.ff.layers.2.\1"),
    *norm(SHARED + "full_layer_layer_norm", "blocks.0.norm2"),
)
LABELS = (
    (r"classifier\.dense\.(\w+)", r"classifier_dense.\1"),
    (r"classifier\.out_proj\.(\w+)", r"classifier_out.\1"),
    (r"classifier\.(\w+)", r"classifier.\1"),
)
VIT_LAYER = r".*layers\.(\d+)\."
VIT_NAMES = (
    (r".*cls_token", "cls_token"),
    (r".*distillation_token", "dist_token"),
    (r".*position_embeddings", "pos_embed"),
    (r".*patch_embeddings\.projection\.(\w+)", r"patch_embed.\1"),
    (VIT_LAYER + r"attention\.([qkv])_proj\.(\w+)", OURS + r"attn.qkv.\3:\2"),  # q, k and v are parts of one layer
    (VIT_LAYER + r"attention\.o_proj\.(\w+)", OURS + r"attn.proj.\2"),
    *norm(VIT_LAYER + "layernorm_before", OURS + "norm1"),
    *norm(VIT_LAYER + "layernorm_after", OURS + "norm2"),
    (VIT_LAYER + r"mlp\.fc1\.(\w+)", OURS + r"mlp.layers.0.\2"),
    (VIT_LAYER + r"mlp\.fc2\.(\w+)", OURS + r"mlp.layers.2.\2"),
    *norm(r"(?:.*\.)?layernorm", "norm"),
    (r"classifier\.(\w+)", r"head.\1"),
)


# --- Models -------------------------------------------------------------------------------------------------------


def write(folder, stem, name, options, model, table, inputs, run, dtype=torch.float32, call=None):
    """One case: `run(model, inputs)` gives the output; `inputs` are the tensors that the C++ class takes.

    Half types have smaller matrices: three layers would amplify the rounding of the first by more than the tolerance of one.
    """
    wide = dtype != torch.float32
    # The eager implementation computes its softmax in float32, even for float64.
    model.set_attn_implementation("sdpa" if wide else "eager")
    scale = 1 / 12 if dtype == torch.bfloat16 else 1 / 3
    randomize(model, lambda _: scale)
    model = model.to(dtype).to(torch.float64 if wide else dtype).eval()
    output = run(model, {key: value.double() if wide and value.is_floating_point() else value for key, value in inputs.items()})
    seed = (normal(5, *output.shape) * 32).round().clamp(-127, 127) / 256  # exact in every dtype
    writer = {"class": type(model).__name__, "writer": "make_encoder_cases 1"}
    write_model_case(folder.file(stem), name, options, model, table, inputs, output, seed, dtype, call, **writer)


# --- BERT, RoBERTa, ALBERT ----------------------------------------------------------------------------------------

THEIR_SIZES = {
    "vocab_size": 13,
    "hidden_size": 8,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 6,
    "max_position_embeddings": 9,
    "layer_norm_eps": 1e-3,
    "hidden_act": "gelu",
}
OUR_SIZES = {
    "vocab_size": 13,
    "emb_dim": 8,
    "num_layers": 3,
    "num_heads": 2,
    "hidden_dim": 6,
    "context_length": 9,
    "eps": 1e-3,
    "dropout": 0.1,
}
PAD = 1
TOKENS = 7


def text(padded):
    """Ids, types, and which tokens are real. One item has padding at the end, the other in the middle."""
    generator = random_stream(3)
    ids = torch.randint(2, THEIR_SIZES["vocab_size"], (2, TOKENS), generator=generator)
    types = torch.randint(0, 2, (2, TOKENS), generator=generator)
    real = torch.ones(2, TOKENS, dtype=torch.bool)
    if padded:
        real[0, TOKENS - 3 :] = False
        real[1, 2] = False
        ids = ids.masked_fill(~real, PAD)
    return ids, types, real


def bert_family(folder, stem, config, classes, options, table, typed=True):
    """Hidden states, with and without padding; the pooled one; logits; the other dtypes."""
    base, masked_lm, texts, tokens = classes
    heads = {"logits": masked_lm, "sequence": texts, "tokens": tokens}

    def case(name, result="hidden", padded=False, types=False, dtype=torch.float32):
        ids, token_types, real = text(padded)
        inputs, python_inputs = {"ids": ids}, {"input_ids": ids}
        if padded:
            inputs["attention_mask"] = python_inputs["attention_mask"] = real
        if types and typed:
            inputs["token_types"] = python_inputs["token_type_ids"] = token_types
        model = heads.get(result, base)(config)
        part = {"hidden": "last_hidden_state", "pooled": "pooler_output"}.get(result, "logits")

        def run(module, _):
            return getattr(module(**python_inputs), part)

        pooler = result in ("hidden", "pooled") or (result == "sequence" and stem != "roberta")
        settings = {**OUR_SIZES, **options, "masked_lm": result == "logits", "pooler": pooler}
        if result in ("sequence", "tokens"):
            settings.update(head=result, num_labels=3, head_dropout=0.1)
            result = "labels"
        write(folder, f"{stem}-{name}", "attentive.Bert", settings, model, (*table, *LABELS), inputs, run, dtype, {"result": result})

    case("hidden")
    case("types", types=True)
    case("padding", padded=True, types=True)
    case("pooled", result="pooled", padded=True)
    case("logits", result="logits", padded=True, types=True)
    case("sequence-labels", result="sequence", padded=True)
    case("token-labels", result="tokens", padded=True)
    case("fp64", result="logits", padded=True, dtype=torch.float64)
    case("bf16", padded=True, types=True, dtype=torch.bfloat16)


def classes_of(name):
    return [getattr(transformers, name + kind) for kind in ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")]


def bert_cases(folder):
    bert_family(
        folder,
        "bert",
        transformers.BertConfig(**THEIR_SIZES, pad_token_id=PAD, num_labels=3),
        classes_of("Bert"),
        {"frozen_id": PAD},
        BERT_NAMES,
    )
    # The smallest possible table of positions, because positions begin at PAD + 1.
    positions = TOKENS + PAD + 1
    bert_family(
        folder,
        "roberta",
        transformers.RobertaConfig(**{**THEIR_SIZES, "max_position_embeddings": positions}, type_vocab_size=1, pad_token_id=PAD, num_labels=3),
        classes_of("Roberta"),
        {"padding_id": PAD, "token_types": 1, "context_length": positions},
        BERT_NAMES,
        typed=False,
    )
    bert_family(
        folder,
        "albert",
        transformers.AlbertConfig(**{**THEIR_SIZES, "hidden_act": "gelu_new"}, embedding_size=5, pad_token_id=PAD, num_labels=3),
        classes_of("Albert"),
        {"frozen_id": PAD, "embedding_dim": 5, "shared_layers": True, "activation": "gelu_tanh"},
        ALBERT_NAMES,
    )


# --- ViT, DeiT ----------------------------------------------------------------------------------------------------


def vit_cases(folder):
    python_sizes = {
        "image_size": 6,
        "patch_size": 2,
        "num_channels": 3,
        "hidden_size": 8,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "intermediate_size": 6,
        "num_labels": 5,
    }
    sizes = {
        "image_size": 6,
        "patch_size": 2,
        "channels": 3,
        "num_classes": 5,
        "emb_dim": 8,
        "num_heads": 2,
        "num_layers": 3,
        "hidden_dim": 6,
        "dropout": 0.1,
    }

    def case(stem, kind, dtype=torch.float32, act="gelu", eps=1e-3, base=False, bias=True):
        name = {"vit": "ViT", "deit": "DeiT"}[kind]
        config = getattr(transformers, f"{name}Config")(**python_sizes, hidden_act=act, layer_norm_eps=eps, qkv_bias=bias)
        build = getattr(transformers, f"{name}Model" if base else f"{name}ForImageClassification")
        model = build(config, add_pooling_layer=False) if base else build(config)
        activation = {"gelu_new": "gelu_tanh"}.get(act, act)
        options = {**sizes, "activation": activation, "eps": eps, "distillation_token": kind == "deit"}
        call = {}
        if not bias:
            options["qkv_bias"] = False
        if base:
            options["num_classes"] = 0
            call = {"result": "hidden"}
        images = normal(9, 2, 3, 6, 6, dtype=dtype)

        def run(module, inputs):
            out = module(inputs["images"])
            return out.last_hidden_state if base else out.logits

        write(folder, f"{kind}-{stem}", "attentive.ViT", options, model, VIT_NAMES, {"images": images}, run, dtype, call)

    for kind in ("vit", "deit"):
        case("gelu", kind)
        case("relu-eps", kind, act="relu", eps=1e-12)
        case("gelu_tanh", kind, act="gelu_new")
        case("hidden", kind, base=True)
        case("fp64", kind, dtype=torch.float64)
        case("bf16", kind, dtype=torch.bfloat16)
    case("no-qkv-bias", "vit", bias=False)
    case("quick_gelu", "vit", act="quick_gelu")
    case("relu2", "vit", act="relu2")


if __name__ == "__main__":
    run_generator(__doc__, {"encoders": 40_000}, bert_cases, vit_cases)

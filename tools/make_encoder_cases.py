"""Writes cases of encoder models: transformers' own classes with small random weights, under this package's names.

    python tools/make_encoder_cases.py [--out tests/parity]

Needs torch 2.11.0 and transformers 5.23.0 from PyPI; every model is built from a configuration, nothing is downloaded.
"""

import argparse
import json
import re

import torch
import transformers

from attentive_case import save_safetensors
from case_support import PARITY_FOLDER, Folder, normal

# --- Names: theirs -> ours, the first pattern that matches ----------------------------------------------------------

LAYER, OURS = r".*encoder\.layer\.(\d+)\.", r"blocks.\1."
EMBEDDINGS = (
    (r".*word_embeddings\.weight", "tok_emb.weight"),
    (r".*position_embeddings\.weight", "pos_emb.weight"),
    (r".*token_type_embeddings\.weight", "type_emb.weight"),
    (r".*embeddings\.LayerNorm\.(\w+)", r"emb_norm.\1"),
    (r".*pooler(?:\.dense)?\.(\w+)", r"pooler.\1"),
)
MASKED_LM = (
    (r"(?:cls\.predictions\.transform|predictions|lm_head)\.dense\.(\w+)", r"mlm_dense.\1"),
    (r"(?:cls\.predictions\.transform|predictions|lm_head)\.(?:LayerNorm|layer_norm)\.(\w+)", r"mlm_norm.\1"),
    (r"(?:cls\.predictions|predictions|lm_head)\.(?:decoder\.)?bias", "mlm_bias"),
)
BERT_NAMES = (
    *EMBEDDINGS,
    *MASKED_LM,
    (LAYER + r"attention\.self\.(query|key|value)\.(\w+)", OURS + r"att.W_\2.\3"),
    (LAYER + r"attention\.output\.dense\.(\w+)", OURS + r"att.out_proj.\2"),
    (LAYER + r"attention\.output\.LayerNorm\.(\w+)", OURS + r"norm1.\2"),
    (LAYER + r"intermediate\.dense\.(\w+)", OURS + r"ff.layers.0.\2"),
    (LAYER + r"output\.dense\.(\w+)", OURS + r"ff.layers.2.\2"),
    (LAYER + r"output\.LayerNorm\.(\w+)", OURS + r"norm2.\2"),
)
SHARED = r".*albert_layers\.0\."
ALBERT_NAMES = (
    *EMBEDDINGS,
    *MASKED_LM,
    (r".*embedding_hidden_mapping_in\.(\w+)", r"emb_proj.\1"),
    (SHARED + r"attention\.(query|key|value)\.(\w+)", r"blocks.0.att.W_\1.\2"),
    (SHARED + r"attention\.dense\.(\w+)", r"blocks.0.att.out_proj.\1"),
    (SHARED + r"attention\.LayerNorm\.(\w+)", r"blocks.0.norm1.\1"),
    (SHARED + r"ffn\.(\w+)", r"blocks.0.ff.layers.0.\1"),
    (SHARED + r"ffn_output\.(\w+)", r"blocks.0.ff.layers.2.\1"),
    (SHARED + r"full_layer_layer_norm\.(\w+)", r"blocks.0.norm2.\1"),
)
VIT_LAYER = r".*layers\.(\d+)\."
VIT_NAMES = (
    (r".*cls_token", "cls_token"),
    (r".*distillation_token", "dist_token"),
    (r".*position_embeddings", "pos_embed"),
    (r".*patch_embeddings\.projection\.(\w+)", r"patch_embed.\1"),
    (VIT_LAYER + r"attention\.([qkv])_proj\.(\w+)", OURS + r"attn.qkv.\3:\2"),  # three parts of one layer
    (VIT_LAYER + r"attention\.o_proj\.(\w+)", OURS + r"attn.proj.\2"),
    (VIT_LAYER + r"layernorm_before\.(\w+)", OURS + r"norm1.\2"),
    (VIT_LAYER + r"layernorm_after\.(\w+)", OURS + r"norm2.\2"),
    (VIT_LAYER + r"mlp\.fc1\.(\w+)", OURS + r"mlp.layers.0.\2"),
    (VIT_LAYER + r"mlp\.fc2\.(\w+)", OURS + r"mlp.layers.2.\2"),
    (r".*\.layernorm\.(\w+)", r"norm.\1"),
    (r"classifier\.(\w+)", r"head.\1"),
)


def renamed(name, table):
    for pattern, replacement in table:
        match = re.fullmatch(pattern, name)
        if match:
            ours = match.expand(replacement)
            if re.search(r"norm\d?\.weight$", ours):
                return ours.replace(".weight", ".scale")
            return ours.replace(".bias", ".shift") if re.search(r"norm\d?\.bias$", ours) else ours
    raise ValueError(f"no rule for {name}")


def as_ours(tensors, table):
    """Tensors under our names: the three parts of a fused projection side by side, a patch's pixels in one row."""
    ours, parts = {}, {}
    for name, tensor in tensors.items():
        key = renamed(name, table)
        if ":" in key:
            parts.setdefault(key[:-2], {})[key[-1]] = tensor
        elif key in ours:
            raise ValueError(f"two tensors are called {key}")
        else:
            ours[key] = tensor.flatten(1) if tensor.dim() == 4 else tensor
    for key, its in parts.items():
        ours[key] = torch.cat([its[part] for part in "qkv"])
    return ours


# --- Models -------------------------------------------------------------------------------------------------------


def randomize(model, scale):
    """Weights, biases and norms that no default hides."""
    with torch.no_grad():
        for index, (name, parameter) in enumerate(model.named_parameters()):
            values = normal(1000 + index, *parameter.shape)
            if parameter.dim() > 1:
                values = values * scale
            elif "norm" in name.lower() and name.endswith("weight"):
                values = values / 4 + 1
            else:
                values = values / 2
            parameter.copy_(values)


def write(folder, stem, name, options, model, table, inputs, run, dtype=torch.float32, call=None):
    """One case: `run(model, inputs)` gives the output; `inputs` are the tensors that the C++ class takes.

    Half types are compared with what float64 makes of the same numbers, kept in float32, and have smaller matrices: three
    layers would amplify the rounding of the first by more than the tolerance of one.
    """
    wide = dtype != torch.float32
    # The eager form computes its softmax in float32, even of float64.
    model.set_attn_implementation("sdpa" if wide else "eager")
    randomize(model, 1 / 12 if dtype == torch.bfloat16 else 1 / 3)
    model = model.to(dtype).to(torch.float64 if wide else dtype).eval()
    parameters = dict(model.named_parameters())
    output = run(model, {key: value.double() if wide and value.is_floating_point() else value for key, value in inputs.items()})
    seed = (normal(5, *output.shape) * 32).round().clamp(-127, 127) / 256  # exact in every dtype
    found = torch.autograd.grad((output * seed).sum(), list(parameters.values()), allow_unused=True)
    gradients = {key: value for key, value in zip(parameters, found) if value is not None}
    kept = torch.promote_types(dtype, torch.float32)
    contents = {f"state.{key}": value.to(dtype) for key, value in as_ours(parameters, table).items()}
    contents.update({f"grad.state.{key}": value.to(kept) for key, value in as_ours(gradients, table).items()})
    contents.update({f"input.{key}": value for key, value in inputs.items()})
    contents.update({"expected.output": output.to(kept), "input.grad_output": seed.to(dtype)})
    metadata = {
        "module": name,
        "options": json.dumps(options, sort_keys=True),
        "call": json.dumps(call or {}, sort_keys=True),
        "train": "false",
        "class": type(model).__name__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "writer": "make_encoder_cases 1",
    }
    save_safetensors(folder.file(stem), contents, metadata)


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
    """Ids, types and which tokens are real. Padding stands at the end, and in the middle of the other item."""
    generator = torch.Generator().manual_seed(3)
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
    base, masked_lm = classes

    def case(name, result="hidden", padded=False, types=False, dtype=torch.float32):
        ids, token_types, real = text(padded)
        inputs, theirs = {"ids": ids}, {"input_ids": ids}
        if padded:
            inputs["attention_mask"] = theirs["attention_mask"] = real
        if types and typed:
            inputs["token_types"] = theirs["token_type_ids"] = token_types
        logits = result == "logits"
        model = (masked_lm if logits else base)(config)
        part = {"hidden": "last_hidden_state", "pooled": "pooler_output", "logits": "logits"}[result]

        def run(module, _):
            return getattr(module(**theirs), part)

        settings = {**OUR_SIZES, **options, "masked_lm": logits, "pooler": not logits}
        write(folder, f"{stem}-{name}", "attentive.Bert", settings, model, table, inputs, run, dtype, {"result": result})

    case("hidden")
    case("types", types=True)
    case("padding", padded=True, types=True)
    case("pooled", result="pooled", padded=True)
    case("logits", result="logits", padded=True, types=True)
    case("fp64", result="logits", padded=True, dtype=torch.float64)
    case("bf16", padded=True, types=True, dtype=torch.bfloat16)


def bert_cases(folder):
    bert_family(
        folder,
        "bert",
        transformers.BertConfig(**THEIR_SIZES, pad_token_id=PAD),
        (transformers.BertModel, transformers.BertForMaskedLM),
        {"frozen_id": PAD},
        BERT_NAMES,
    )
    # The smallest table of positions: those of all tokens begin at PAD + 1.
    positions = TOKENS + PAD + 1
    bert_family(
        folder,
        "roberta",
        transformers.RobertaConfig(**{**THEIR_SIZES, "max_position_embeddings": positions}, type_vocab_size=1, pad_token_id=PAD),
        (transformers.RobertaModel, transformers.RobertaForMaskedLM),
        {"padding_id": PAD, "token_types": 1, "context_length": positions},
        BERT_NAMES,
        typed=False,
    )
    bert_family(
        folder,
        "albert",
        transformers.AlbertConfig(**{**THEIR_SIZES, "hidden_act": "gelu_new"}, embedding_size=5, pad_token_id=PAD),
        (transformers.AlbertModel, transformers.AlbertForMaskedLM),
        {"frozen_id": PAD, "embedding_dim": 5, "shared_layers": True, "activation": "gelu_tanh"},
        ALBERT_NAMES,
    )


# --- ViT, DeiT ----------------------------------------------------------------------------------------------------


def vit_cases(folder):
    theirs = {
        "image_size": 6,
        "patch_size": 2,
        "num_channels": 3,
        "hidden_size": 8,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "intermediate_size": 6,
        "num_labels": 5,
    }
    ours = {
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

    def case(stem, kind, dtype=torch.float32, act="gelu", eps=1e-3):
        configs = {"vit": transformers.ViTConfig, "deit": transformers.DeiTConfig}
        classes = {"vit": transformers.ViTForImageClassification, "deit": transformers.DeiTForImageClassification}
        model = classes[kind](configs[kind](**theirs, hidden_act=act, layer_norm_eps=eps))
        activation = {"gelu": "gelu", "gelu_new": "gelu_tanh", "relu": "relu", "silu": "silu"}[act]
        options = {**ours, "activation": activation, "eps": eps, "distillation_token": kind == "deit"}
        images = normal(9, 2, 3, 6, 6, dtype=dtype)
        write(folder, f"{kind}-{stem}", "attentive.ViT", options, model, VIT_NAMES, {"images": images}, lambda m, its: m(its["images"]).logits, dtype)

    for kind in ("vit", "deit"):
        case("gelu", kind)
        case("relu-eps", kind, act="relu", eps=1e-12)
        case("gelu_tanh", kind, act="gelu_new")
        case("fp64", kind, dtype=torch.float64)
        case("bf16", kind, dtype=torch.bfloat16)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=PARITY_FOLDER, help="the folder that holds encoders/")
    torch.set_num_threads(1)
    folder = Folder(parser.parse_args().out, "encoders", 40_000)
    bert_cases(folder)
    vit_cases(folder)
    folder.finish()


if __name__ == "__main__":
    main()

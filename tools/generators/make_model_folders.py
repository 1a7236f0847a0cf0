#!/usr/bin/env python3
"""Writes small random models of `transformers` as folders, with the numbers that they compute, for the C++ tests.

    tools/generators/make_model_folders.py OUT             every family: OUT/<name>/ with config.json, model.safetensors and
                                                           expected.safetensors (inputs and outputs, float32, evaluation mode)
    tools/generators/make_model_folders.py OUT NAME...     some of them
    tools/generators/make_model_folders.py --seed N OUT ...
                                                           of other sizes, options and weights, drawn from a seed
    tools/generators/make_model_folders.py --old OUT ...   as older versions of `transformers` wrote them
    tools/generators/make_model_folders.py --whole OUT     XLM-RoBERTa and CamemBERT with the SentencePiece models of tests/tokenizers/data, and
                                                           the ids and logits of some texts
    tools/generators/make_model_folders.py --check OUT SAVED
                                                           loads each SAVED/<name> with an AutoModel class and prints the largest difference
                                                           from the outputs in OUT/<name>, and which weights were missing

Written with torch 2.11.0, transformers 5.23.0, safetensors 0.8.0. Weights are drawn, those of norms and biases too: their usual
first values, one and zero, would hide a tensor that was mixed up. tests/models/data holds the two folders of `--committed tests/models/data`.
"""

import argparse
import json
import os
import random
import shutil
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch  # noqa: E402
import transformers as hf  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

hf.utils.logging.set_verbosity_error()
hf.utils.logging.disable_progress_bar()

DECODER = dict(vocab_size=31, hidden_size=24, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=64,
               attention_dropout=0.0, bos_token_id=1, eos_token_id=2)
ENCODER = dict(vocab_size=29, hidden_size=24, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=24)
IMAGES = dict(hidden_size=24, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4, image_size=8, patch_size=4, num_channels=2,
              num_labels=5)
LABELLED = dict(ENCODER, num_labels=5)
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
WINDOWS = ["sliding_attention", "full_attention", "sliding_attention"]


GPT2 = dict(vocab_size=31, n_positions=32, n_embd=24, n_layer=3, n_head=4, bos_token_id=1, eos_token_id=2)
GROUPED = dict(DECODER, num_key_value_heads=2)
SOFTCAPS = dict(attn_logit_softcapping=4.0, final_logit_softcapping=3.0)
YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 4.0,
        "beta_slow": 0.5, "mscale": 1.2, "mscale_all_dim": 0.4, "truncate": False}
LINEAR = {"rope_type": "linear", "factor": 2.5, "rope_theta": 5000.0}

# The class, its configuration and the settings.
MODELS = {
    "gpt2": (hf.GPT2LMHeadModel, hf.GPT2Config, GPT2),
    "gpt2_untied": (hf.GPT2LMHeadModel, hf.GPT2Config, dict(GPT2, tie_word_embeddings=False)),
    "llama": (hf.LlamaForCausalLM, hf.LlamaConfig, GROUPED),
    "llama_biases": (hf.LlamaForCausalLM, hf.LlamaConfig, dict(
        DECODER, num_key_value_heads=1, attention_bias=True, mlp_bias=True, head_dim=8, tie_word_embeddings=True, rope_parameters=LINEAR)),
    "llama3": (hf.LlamaForCausalLM, hf.LlamaConfig, dict(GROUPED, rope_parameters=LLAMA3, eos_token_id=[2, 3])),
    "llama_yarn": (hf.LlamaForCausalLM, hf.LlamaConfig, dict(GROUPED, head_dim=12, rope_parameters=YARN)),
    "mistral": (hf.MistralForCausalLM, hf.MistralConfig, dict(GROUPED, sliding_window=5)),
    "qwen2": (hf.Qwen2ForCausalLM, hf.Qwen2Config, dict(GROUPED, use_sliding_window=True, sliding_window=6, max_window_layers=1)),
    "qwen3": (hf.Qwen3ForCausalLM, hf.Qwen3Config, dict(GROUPED, head_dim=10)),
    "gemma2": (hf.Gemma2ForCausalLM, hf.Gemma2Config, dict(GROUPED, **SOFTCAPS, head_dim=8, query_pre_attn_scalar=9, sliding_window=5)),
    "gemma3_text": (hf.Gemma3ForCausalLM, hf.Gemma3TextConfig, dict(
        GROUPED, head_dim=8, query_pre_attn_scalar=9, sliding_window=5, layer_types=WINDOWS)),
    "bert": (hf.BertForMaskedLM, hf.BertConfig, ENCODER),
    "bert_base": (hf.BertModel, hf.BertConfig, dict(ENCODER, layer_norm_eps=1e-5)),
    "roberta": (hf.RobertaForMaskedLM, hf.RobertaConfig, dict(ENCODER, type_vocab_size=1)),
    "xlm_roberta": (hf.XLMRobertaForMaskedLM, hf.XLMRobertaConfig, dict(ENCODER, type_vocab_size=1)),
    "camembert": (hf.CamembertForMaskedLM, hf.CamembertConfig, dict(ENCODER, type_vocab_size=1)),
    "albert": (hf.AlbertForMaskedLM, hf.AlbertConfig, dict(ENCODER, embedding_size=10)),
    "albert_base": (hf.AlbertModel, hf.AlbertConfig, dict(ENCODER, embedding_size=10)),
    "vit": (hf.ViTForImageClassification, hf.ViTConfig, IMAGES),
    "deit": (hf.DeiTForImageClassification, hf.DeiTConfig, IMAGES),
    "gpt2_other": (hf.GPT2LMHeadModel, hf.GPT2Config, dict(GPT2, n_inner=40, layer_norm_epsilon=1e-3, activation_function="relu")),
    "llama_relu2": (hf.LlamaForCausalLM, hf.LlamaConfig, dict(GROUPED, hidden_act="relu2")),
    "vit_base": (hf.ViTModel, hf.ViTConfig, dict(IMAGES, qkv_bias=False)),
    "deit_base": (hf.DeiTModel, hf.DeiTConfig, dict(IMAGES, hidden_act="quick_gelu")),
    "bert_texts": (hf.BertForSequenceClassification, hf.BertConfig, LABELLED),
    "bert_tokens": (hf.BertForTokenClassification, hf.BertConfig, dict(LABELLED, classifier_dropout=0.2)),
    "roberta_texts": (hf.RobertaForSequenceClassification, hf.RobertaConfig, dict(LABELLED, type_vocab_size=1)),
    "roberta_tokens": (hf.RobertaForTokenClassification, hf.RobertaConfig, dict(LABELLED, type_vocab_size=1)),
    "xlm_roberta_texts": (hf.XLMRobertaForSequenceClassification, hf.XLMRobertaConfig, dict(LABELLED, type_vocab_size=1)),
    "camembert_base": (hf.CamembertModel, hf.CamembertConfig, dict(ENCODER, type_vocab_size=1)),
    "camembert_tokens": (hf.CamembertForTokenClassification, hf.CamembertConfig, dict(LABELLED, type_vocab_size=1)),
    "albert_texts": (hf.AlbertForSequenceClassification, hf.AlbertConfig, dict(LABELLED, embedding_size=10)),
    "albert_tokens": (hf.AlbertForTokenClassification, hf.AlbertConfig, dict(LABELLED, embedding_size=10)),
}


def built(name, **changes):
    kind, config, settings = MODELS[name]
    # A pooler that no model here has.
    parts = {"add_pooling_layer": False} if kind in (hf.ViTModel, hf.DeiTModel) else {}
    return kind(config(**{**settings, **changes}), **parts)


def drawn(settings, rng):
    """Draws other values for the settings that a family has."""
    heads, layers = rng.choice((2, 3, 4)), rng.randint(1, 4)
    size = heads * rng.choice((4, 6, 8))
    if "n_embd" in settings:
        inner = {"n_inner": rng.randint(5, 48)} if "n_inner" in settings else {}
        return dict(n_head=heads, n_embd=size, n_layer=layers, **inner, vocab_size=rng.randint(20, 60), n_positions=rng.randint(16, 40))
    changes = dict(num_attention_heads=heads, hidden_size=size, num_hidden_layers=layers, intermediate_size=rng.randint(5, 48))
    choices = {
        "vocab_size": lambda: rng.randint(20, 60),
        "num_key_value_heads": lambda: rng.choice([n for n in range(1, heads + 1) if heads % n == 0]),
        "head_dim": lambda: rng.choice((4, 6, 8, 10)),
        "sliding_window": lambda: rng.randint(2, 15),
        "max_window_layers": lambda: rng.randint(0, layers),
        "layer_types": lambda: [rng.choice(WINDOWS) for _ in range(layers)],
        "query_pre_attn_scalar": lambda: rng.randint(4, 20),
        "attn_logit_softcapping": lambda: rng.uniform(2, 10),
        "final_logit_softcapping": lambda: rng.uniform(2, 10),
        "embedding_size": lambda: rng.randint(4, 12),
        "patch_size": lambda: rng.choice((2, 4)),
        "num_channels": lambda: rng.randint(1, 3),
        "num_labels": lambda: rng.randint(2, 7),
    }
    changes.update({name: draw() for name, draw in choices.items() if name in settings})
    if "attention_dropout" in settings:
        changes["rms_norm_eps"] = rng.choice((1e-6, 1e-5, 1e-3))
    else:
        changes.update(layer_norm_eps=rng.choice((1e-12, 1e-6, 1e-3)), hidden_act=rng.choice(("gelu", "gelu_new", "relu", "silu", "quick_gelu", "relu2")))
    return changes


def randomized(model, seed):
    """Draws all weights of the model."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            plain = parameter.dim() < 2  # norms, biases
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * (0.3 if plain else 0.25))
            if plain and "norm" in name.lower() and name.endswith("weight") and not model.config.model_type.startswith("gemma"):
                parameter += 1
    return model.eval()


def inputs(model):
    """Example inputs."""
    kind = model.config.model_type
    generator = torch.Generator().manual_seed(5)
    if kind in ("vit", "deit"):
        return {"input.images": torch.randn(2, model.config.num_channels, 8, 8, generator=generator)}
    ids = torch.randint(3, model.config.vocab_size, (2, 14), generator=generator)
    if kind not in ("bert", "roberta", "xlm-roberta", "camembert", "albert"):
        return {"input.ids": ids}
    lengths = torch.tensor([14, 9])
    ids = torch.where(torch.arange(14)[None, :] < lengths[:, None], ids, torch.tensor(model.config.pad_token_id))
    types = torch.randint(0, model.config.type_vocab_size, (2, 14), generator=generator)
    return {"input.ids": ids, "input.types": types, "input.lengths": lengths}


def outputs(model, given):
    """What the model computes of its inputs."""
    if "input.images" in given:
        out = model(pixel_values=given["input.images"])
        return {"output.logits": out.logits} if hasattr(out, "logits") else {"output.hidden": out.last_hidden_state}
    if "input.lengths" not in given:
        return {"output.logits": model(given["input.ids"]).logits}
    keep = torch.arange(14)[None, :] < given["input.lengths"][:, None]
    texts = {"input_ids": given["input.ids"], "token_type_ids": given["input.types"], "attention_mask": keep.long()}
    out = model(**texts, output_hidden_states=True)
    if hasattr(out, "logits"):
        kind = "logits" if type(model).__name__.endswith("ForMaskedLM") else "labels"
        return {f"output.{kind}": out.logits, "output.hidden": out.hidden_states[-1]}
    return {"output.hidden": out.last_hidden_state, "output.pooled": out.pooler_output}


def save(model, folder, **options):
    model.save_pretrained(folder, **options)
    given = inputs(model)
    with torch.no_grad():
        given |= outputs(model, given)
    save_file({name: tensor.contiguous() for name, tensor in given.items()}, Path(folder) / "expected.safetensors")


def old_names(folder):
    """Rewrites a folder as older versions wrote it: rope_theta beside rope_scaling, torch_dtype, buffers in the weights."""
    path = Path(folder) / "config.json"
    config = json.loads(path.read_text())
    rotary = config.pop("rope_parameters", None)
    if rotary:
        full = dict(rotary.get("full_attention", rotary))
        config["rope_theta"] = full.pop("rope_theta")
        if "sliding_attention" in rotary:
            config["rope_local_base_freq"] = rotary["sliding_attention"]["rope_theta"]
        kind = full.pop("rope_type")
        config["rope_scaling"] = None if kind == "default" else {"type": kind, **full}
    config["torch_dtype"] = config.pop("dtype")
    path.write_text(json.dumps(config, indent=2))
    weights = Path(folder) / "model.safetensors"
    state = load_file(weights)
    if config["model_type"] == "gpt2":
        state["transformer.h.0.attn.bias"] = torch.ones(1, 1, 32, 32).tril()
        state["transformer.h.0.attn.masked_bias"] = torch.tensor(-1e4)
        state["lm_head.weight"] = state["transformer.wte.weight"].clone()
    if config["model_type"] == "llama":
        state["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(3)
    if config["model_type"] == "bert":
        state["bert.embeddings.position_ids"] = torch.arange(24)[None]
        state["cls.predictions.decoder.weight"] = state["bert.embeddings.word_embeddings.weight"].clone()
        state["cls.seq_relationship.weight"] = torch.ones(2, 24)
        for name in [name for name in state if "LayerNorm" in name]:
            state[name.replace(".weight", ".gamma").replace(".bias", ".beta")] = state.pop(name)
    if config["model_type"] == "vit":  # the module names of version 5
        for name in [name for name in state if ".encoder.layer." in name]:
            new = name.replace("encoder.layer.", "layers.")
            for old, now in (("attention.attention.query", "attention.q_proj"), ("attention.attention.key", "attention.k_proj"),
                             ("attention.attention.value", "attention.v_proj"), ("attention.output.dense", "attention.o_proj"),
                             ("intermediate.dense", "mlp.fc1"), ("output.dense", "mlp.fc2")):
                new = new.replace(old, now)
            state[new] = state.pop(name)
    save_file(state, weights, metadata={"format": "pt"})


def whole(out):
    """Writes folders with a tokenizer, but without tokenizer.json, as these families are published."""
    for name in ("xlm_roberta", "camembert"):
        source, folder = Path(__file__).resolve().parents[2] / "tests/tokenizers/data/folders" / name, Path(out) / name
        tokenizer = hf.AutoTokenizer.from_pretrained(source)
        model = randomized(built(name, vocab_size=len(tokenizer), max_position_embeddings=64), 3)
        model.save_pretrained(folder)
        shutil.copy(source / "sentencepiece.bpe.model", folder)
        known = [entry["text"] for entry in json.loads((source / "expected.json").read_text())["strings"]]
        texts = [text for text in known if len(tokenizer(text)["input_ids"]) <= 60]
        results = {}
        with torch.no_grad():
            for n, text in enumerate(texts):
                ids = torch.tensor([tokenizer(text)["input_ids"]])
                results |= {f"{n}.ids": ids, f"{n}.logits": model(ids).logits}
        save_file(results, folder / "expected.safetensors", {"texts": json.dumps(texts)})


def class_for(name):
    for end, kind in (("_base", ""), ("_texts", "ForSequenceClassification"), ("_tokens", "ForTokenClassification")):
        if name.endswith(end):
            return getattr(hf, f"AutoModel{kind}")
    if name in ("vit", "deit"):
        return hf.AutoModelForImageClassification
    masked = ("bert", "roberta", "xlm_roberta", "camembert", "albert")
    return hf.AutoModelForMaskedLM if name in masked else hf.AutoModelForCausalLM


def difference(model, given):
    """The largest difference of a model's outputs from the given ones."""
    found = outputs(model, given)
    names = [name for name in found if name in ("output.logits", "output.labels")] or list(found)
    return max((found[name] - given[name]).abs().max().item() for name in names)


def check(written, saved):
    for name in sorted(os.listdir(saved)):
        parts = {"add_pooling_layer": False} if name in ("vit_base", "deit_base") else {}
        model, report = class_for(name).from_pretrained(f"{saved}/{name}", dtype="auto", output_loading_info=True, **parts)
        with torch.no_grad():
            number = difference(model.eval(), load_file(f"{written}/{name}/expected.safetensors"))
        missing = sorted(report["missing_keys"])
        print(f"{name} {number:.3e} {','.join(missing) if missing else '-'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--committed", action="store_true")
    parser.add_argument("--old", action="store_true", help="write each folder as older versions did")
    parser.add_argument("--whole", action="store_true", help="write folders that have a tokenizer, too")
    parser.add_argument("--seed", type=int, help="draw the sizes and options of the configurations, too")
    parser.add_argument("arguments", nargs="+")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.check:
        return check(*args.arguments)
    out, *names = args.arguments
    if args.whole:
        return whole(out)
    if args.committed:
        small = dict(vocab_size=17, num_hidden_layers=2, max_position_embeddings=32, hidden_size=16, intermediate_size=20)
        save(randomized(built("gpt2", vocab_size=17, n_positions=16, n_embd=16, n_layer=2), 1), f"{out}/gpt2")
        save(randomized(built("llama", rope_parameters=LLAMA3, **small), 2), f"{out}/llama", max_shard_size="6KB")
        return None
    for name in names or MODELS:
        rng = random.Random(f"{name} {args.seed}")
        changes = {} if args.seed is None else drawn(MODELS[name][2], rng)
        save(randomized(built(name, **changes), 3 if args.seed is None else rng.randrange(2**31)), f"{out}/{name}")
        if args.old:
            old_names(f"{out}/{name}")
    return None


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Writes adapters of Python's `peft` with the numbers that peft computes, for the two models of tests/models/data and for
BERTs and a ViT, whose folders it writes, too.

    tools/generators/make_adapters.py OUT [NAME…] OUT/<name>/ with adapter_config.json, adapter_model.safetensors and
                                                  expected.safetensors: input, output, output.merged, output.loss and
                                                  grad.<tensor> (float32, without dropout); the BERTs' and the ViT's
                                                  own folders are OUT/<name>/base
    tools/generators/make_adapters.py --check OUT SAVED
                                                  loads each SAVED/<name>, an adapter, with peft and prints the largest
                                                  difference of its output from that of the adapter OUT/<name>

Written with torch 2.11.0, transformers 5.23.0, peft 0.21.2. B is drawn, because its first value, zero, would hide everything;
magnitudes and whole modules are changed.
tests/models/data/lora holds the folders of `tests/models/data/lora`.
"""

import argparse
import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import peft  # noqa: E402
import torch  # noqa: E402
import transformers as hf  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

import make_model_folders  # noqa: E402

hf.utils.logging.set_verbosity_error()
hf.utils.logging.disable_progress_bar()
BASES = Path(__file__).resolve().parents[2] / "tests/models/data"
ADAPTERS = {
    "gpt2": dict(r=3, lora_alpha=6, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True, lora_dropout=0.1),
    "llama": dict(r=4, lora_alpha=5, target_modules=["q_proj", "v_proj", "gate_proj", "down_proj"], use_rslora=True),
    "bert": dict(r=2, lora_alpha=3, target_modules=["query", "value", "dense"]),
    "vit": dict(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj", "fc1"], lora_dropout=0.1),
    "gpt2_dora": dict(r=3, lora_alpha=6, target_modules=["c_attn", "c_fc"], fan_in_fan_out=True, use_dora=True, lora_dropout=0.1),
    # The first key that matches counts, in the order of the alphabet, because peft sorts them when it saves.
    "llama_patterns": dict(
        r=4, lora_alpha=-5, target_modules=["q_proj", "v_proj", "up_proj"], modules_to_save=["lm_head", "model.norm"],
        rank_pattern={"layers.1.self_attn.v_proj": 3, "up": 7, "v_proj": 2},
        alpha_pattern={"^model.layers.0.self_attn.q_proj": 0.5, r"layers\.[01]\.self_attn\.v_.*": 9, "v_proj": 1}),
    "bert_texts": dict(r=2, lora_alpha=3, target_modules=["query", "value"], use_dora=True, use_rslora=True),
    "vit_dora": dict(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj", "fc1"], use_dora=True, modules_to_save=["classifier", "o_proj"]),
}
BASE_OF = {"gpt2_dora": "gpt2", "llama_patterns": "llama", "vit_dora": "vit"}  # another adapter's base
CLASSES = {"bert": hf.BertModel, "bert_texts": hf.BertForSequenceClassification, "vit": hf.ViTForImageClassification}
TASKS = {"gpt2": "CAUSAL_LM", "llama": "CAUSAL_LM", "bert_texts": "SEQ_CLS"}


def base_of(out, name):
    base = BASE_OF.get(name, name)
    kind = CLASSES.get(base, hf.AutoModelForCausalLM)
    folder = out / base / "base" if base in CLASSES else BASES / base
    return kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def input_of(name):
    if name.startswith("vit"):
        return torch.randn(2, 2, 8, 8)
    return torch.arange(14).view(2, 7).mul(5).remainder(17)


def output_of(name, model, given):
    if name.startswith("vit"):
        return model(pixel_values=given).logits
    out = model(given)
    return torch.cat((out.last_hidden_state, out.pooler_output[:, None]), 1) if name == "bert" else out.logits


def loss_of(name, output, given):
    if BASE_OF.get(name, name) in CLASSES:
        return output.square().mean()
    return torch.nn.functional.cross_entropy(output.flatten(0, 1), given.flip(1).flatten())


def make(out, name):
    torch.manual_seed(11)
    if name in CLASSES:
        small = dict(num_hidden_layers=1, max_position_embeddings=12) if name == "bert_texts" else {}
        model = make_model_folders.built({"bert": "bert_base"}.get(name, name), **small)
        make_model_folders.randomized(model, 12)
        model.save_pretrained(out / name / "base")
    task = TASKS.get(BASE_OF.get(name, name))
    task = dict(task_type=task) if task else {}
    model = peft.get_peft_model(base_of(out, name), peft.LoraConfig(**task, **ADAPTERS[name])).eval()
    model.peft_config["default"].base_model_name_or_path = name
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if ".lora_B." in key:
                parameter.normal_(0, 0.2)
            elif parameter.requires_grad and ".lora_A." not in key:
                parameter.mul_(1 + 0.2 * torch.randn_like(parameter))
    given = input_of(name)
    output = output_of(name, model, given)
    loss = loss_of(name, output, given)
    loss.backward()
    found = {"input": given, "output": output.detach().clone(), "output.loss": loss.detach()}
    for key, parameter in model.named_parameters():
        if parameter.grad is not None:
            found["grad." + key.replace(".modules_to_save.default.", ".").replace(".default.", ".")] = parameter.grad
    model.save_pretrained(out / name, save_embedding_layers=False)
    (out / name / "README.md").unlink(missing_ok=True)
    with torch.no_grad():
        found["output.merged"] = output_of(name, model.merge_and_unload(), given).clone()
    save_file(found, out / name / "expected.safetensors")


def check(out, saved, name):
    given = load_file(out / name / "expected.safetensors")["input"]
    # Both are computed here: another processor may round the committed output differently.
    outputs = []
    with torch.no_grad():
        for folder in (saved, out):
            outputs.append(output_of(name, peft.PeftModel.from_pretrained(base_of(out, name), folder / name).eval(), given))
    difference = (outputs[0] - outputs[1]).abs().max().item()
    trained = peft.PeftModel.from_pretrained(base_of(out, name), saved / name, is_trainable=True)
    count = sum(parameter.requires_grad for parameter in trained.parameters())
    print(f"{name} {difference:.3g} {count}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("out", type=Path)
    parser.add_argument("rest", nargs="*")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in ADAPTERS:
        if arguments.check:
            check(arguments.out, Path(arguments.rest[0]), name)
        elif name in (arguments.rest or ADAPTERS):
            make(arguments.out, name)


if __name__ == "__main__":
    main()

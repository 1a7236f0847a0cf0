#!/bin/bash
# peft 0.21.2: in rank_pattern and alpha_pattern the first key that matches a layer counts, but save_pretrained writes
# the keys sorted. An adapter whose keys overlap computes other numbers after it was saved and loaded (alpha_pattern,
# without a word), or cannot be loaded (rank_pattern, size mismatch).
#
# Seen with torch 2.11.0, transformers 5.23.0, Python 3.11: scalings 9/8 before, 1/8 after.
# Status 0: the behaviour is as described. 1: it has changed.
# PEFT_PYTHON names a Python that has these versions; without it they are installed into a temporary folder (5 GB).
set -e
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python=$PEFT_PYTHON
if [ -z "$python" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install -q --disable-pip-version-check peft==0.21.2 torch==2.11.0 transformers==5.23.0
  python=$folder/venv/bin/python
fi
HF_HUB_OFFLINE=1 "$python" - "$folder" <<'P' 2> /dev/null
import json, sys, peft, torch, transformers
def base():
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=17, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4)).eval()
def layer(model): return model.base_model.model.model.layers[1].self_attn.q_proj
def made(**patterns):
    model = peft.get_peft_model(base(), peft.LoraConfig(task_type="CAUSAL_LM", r=8, target_modules=["q_proj"], **patterns)).eval()
    model.peft_config["default"].base_model_name_or_path = None
    torch.nn.init.normal_(layer(model).lora_B["default"].weight)
    model.save_pretrained(sys.argv[1] + "/a", save_embedding_layers=False)
    return model
model = made(alpha_pattern={"q_proj": 9, "layers.1.self_attn.q_proj": 1})
again = peft.PeftModel.from_pretrained(base(), sys.argv[1] + "/a").eval()
ids = torch.arange(7)[None]
scalings = layer(model).scaling["default"], layer(again).scaling["default"]
difference = (model(ids).logits - again(ids).logits).abs().max().item()
made(rank_pattern={"q_proj": 2, "layers.1.self_attn.q_proj": 3})
try:
    peft.PeftModel.from_pretrained(base(), sys.argv[1] + "/a")
    ranks = "loads"
except RuntimeError as error:
    ranks = "size mismatch" if "size mismatch" in str(error) else str(error)
print("peft", peft.__version__, "torch", torch.__version__, "transformers", transformers.__version__)
print("scaling before and after:", scalings, "largest difference of the logits:", difference, "; rank_pattern:", ranks)
sys.exit(not (scalings == (9 / 8, 1 / 8) and difference > 0 and ranks == "size mismatch"))
P

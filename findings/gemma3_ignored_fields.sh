#!/bin/bash
# transformers 5.23.0 and 5.24.0: Gemma3TextConfig writes "_sliding_window_pattern" and ignores it when it reads a
# config.json without layer_types; it ignores rope_scaling's old "type" (beside the default rope_type that it adds
# first) and a flat rope_parameters. Llama and the others read both of the latter.
#
# Seen: pattern 2 gives three sliding layers of three; {"type": "linear", "factor": 8} gives rope_type
# "default"; a flat rope_theta 5e5 gives 1e6.
# Status 0: the behaviour is as described. 1: it has changed.
set -e
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
for version in 5.23.0 5.24.0; do
  python3 -m venv "$folder/$version"
  "$folder/$version/bin/pip" install -q --disable-pip-version-check transformers==$version
  HF_HUB_OFFLINE=1 "$folder/$version/bin/python" - <<'P' 2> /dev/null
import sys, transformers
def config(**fields): return transformers.Gemma3TextConfig.from_dict(dict(num_hidden_layers=3, **fields))
kinds = config(_sliding_window_pattern=2).layer_types
old = config(rope_scaling={"type": "linear", "factor": 8.0}).rope_parameters["full_attention"]
flat = config(rope_parameters={"rope_type": "default", "rope_theta": 5e5}).rope_parameters["full_attention"]
print("transformers", transformers.__version__, kinds, old, flat)
sys.exit(not (kinds == ["sliding_attention"] * 3 and old["rope_type"] == "default" and flat["rope_theta"] == 1e6))
P
done

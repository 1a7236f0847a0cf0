#!/bin/bash
# xformers 0.0.35: BlockDiagonalMask.make_causal_from_bottomright().make_local_attention(w) is aligned at the top left
# of each block: making the mask local drops the alignment that was asked for. make_causal() followed by
# make_local_attention_from_bottomright(w) has it.
#
# Seen with torch 2.11.0, Python 3.11: of a block of 2 queries and 4 keys, a window of 2 shows the last query keys 0
# and 1, and keys 2 and 3 by the other way.
# Status 0: the behaviour is as described. 1: it has changed.
# TORCH_PYTHON names a Python that has torch and numpy; without it they are installed into a temporary folder (5 GB).
set -e
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python=$TORCH_PYTHON
python3 -m venv "$folder/venv"
if [ -z "$python" ]; then
  "$folder/venv/bin/pip" install -q --disable-pip-version-check torch==2.11.0 'numpy>=2,<3'
  python=$folder/venv/bin/python
fi
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-deps --target "$folder/packages" xformers==0.0.35
PYTHONPATH="$folder/packages" "$python" - <<'P' 2> /dev/null
import importlib.metadata, sys
from xformers.ops.fmha.attn_bias import BlockDiagonalMask
mask = BlockDiagonalMask.from_seqlens([2], [4])
last = lambda made: made.materialize((2, 4))[-1].eq(0).nonzero().flatten().tolist()
found = [last(mask.make_causal_from_bottomright()), last(mask.make_causal_from_bottomright().make_local_attention(2)),
         last(mask.make_causal().make_local_attention_from_bottomright(2))]
print("xformers", importlib.metadata.version("xformers"), "keys of the last query: causal", found[0], "local", found[1], "local from the bottom right", found[2])
sys.exit(found != [[0, 1, 2, 3], [0, 1], [2, 3]])
P

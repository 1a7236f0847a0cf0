#!/bin/bash
# torch 2.11.0: nn.MultiheadAttention(x, x, x, is_causal=True) without attn_mask is an error in training. In evaluation
# without gradients it is none, and the output is not causal: the fast path drops the flag.
#
# Seen on the CPU with Python 3.11: RuntimeError in training; in evaluation the output of the call without the flag.
# Status 0: the behaviour is as described. 1: it has changed.
# TORCH_PYTHON names a Python that has this version; without it, it is installed into a temporary folder (3 GB).
set -e
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python=$TORCH_PYTHON
if [ -z "$python" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install -q --disable-pip-version-check torch==2.11.0 'numpy>=2,<3'
  python=$folder/venv/bin/python
fi
"$python" - <<'P' 2> /dev/null
import sys, torch
torch.manual_seed(0)
layer, x = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 4, 8)
try:
    layer(x, x, x, is_causal=True)
    training = "no error"
except RuntimeError as error:
    training = str(error).split(".")[0]
layer.eval()
with torch.no_grad():
    flagged, plain = layer(x, x, x, is_causal=True)[0], layer(x, x, x)[0]
    causal = layer(x, x, x, attn_mask=torch.ones(4, 4, dtype=torch.bool).triu(1), is_causal=True)[0]
print("torch", torch.__version__, "| training:", training, "| evaluation: equals the call without the flag", flagged.equal(plain), ", the causal one", torch.allclose(flagged, causal, atol=1e-4))
sys.exit(not (training.startswith("Need attn_mask") and flagged.equal(plain) and not torch.allclose(flagged, causal, atol=1e-4)))
P

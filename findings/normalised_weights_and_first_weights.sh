#!/bin/sh
# First weights that are set after a layer was normalised, as by `model.apply(init)` behind a constructor, act by luck in PyTorch:
# of torch.nn.utils' weight_norm they are lost at the next call, of its spectral_norm they stay (the attribute shares memory with
# weight_orig); of torch.nn.utils.parametrizations both are lost, since `layer.weight` makes a new tensor each time it is read.
# No call raises or warns. There reading `layer.weight` in train mode also takes a step of the power iteration: printing a norm
# changes the buffers, and the layer's next result.
#
# Seen with torch 2.11.0:
#     weight_norm                      first weights set afterwards: lost    a read of the weight changes the result: no
#     spectral_norm                    first weights set afterwards: kept    a read of the weight changes the result: no
#     parametrizations.weight_norm     first weights set afterwards: lost    a read of the weight changes the result: no
#     parametrizations.spectral_norm   first weights set afterwards: lost    a read of the weight changes the result: yes
# Exit status 0: as described; 1: the behaviour has changed. Downloads some 3 GB into a temporary folder.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip --disable-pip-version-check -q install torch==2.11.0 'numpy>=2,<3'
"$folder/venv/bin/python" -W ignore - <<'EOF'
import sys

import torch
from torch import nn
from torch.nn.utils import parametrizations, spectral_norm, weight_norm

EXPECTED = {
    "weight_norm": (weight_norm, "lost", "no"),
    "spectral_norm": (spectral_norm, "kept", "no"),
    "parametrizations.weight_norm": (parametrizations.weight_norm, "lost", "no"),
    "parametrizations.spectral_norm": (parametrizations.spectral_norm, "lost", "yes"),
}


def made(norm, first, read=0):
    """What a normalised layer gives in its second call in train mode; `first` sets its weight after it was normalised."""
    torch.manual_seed(0)
    layer = norm(nn.Linear(16, 16))
    x = torch.ones(1, 16)
    if first:
        with torch.no_grad():
            nn.init.eye_(layer.weight)
    for _ in range(read):
        layer.weight.norm()
    return layer(x).detach()


print("torch", torch.__version__)
changed = False
for name, (norm, kept, moved) in EXPECTED.items():
    usual = made(norm, False)
    got = "lost" if torch.allclose(made(norm, True), usual, atol=1e-2) else "kept"
    step = "no" if torch.equal(made(norm, False, 3), usual) else "yes"
    print(f"{name:32} first weights set afterwards: {got}    a read of the weight changes the result: {step}")
    changed |= (got, step) != (kept, moved)
sys.exit(changed)
EOF

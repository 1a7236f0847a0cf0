#!/bin/sh
# PyTorch's layer_norm, group_norm and scaled_dot_product_attention read a saved tensor in the backward pass by the strides that
# it had in the forward pass, although a hook of saved tensors may return a tensor with strides of its own. Equal numbers in
# another memory order, as a hook that stores tensors transposed returns them, give wrong gradients on the CPU, without an error.
# gelu, softmax, rms_norm and cross_entropy read by strides, and are right.
#
# Seen with torch 2.11.0, the relative error of the gradients against those without a hook:
#     layer_norm 8.1, group_norm 0.13, scaled_dot_product_attention 1.4; the others below 1e-6.
# Exit status 0: as described; 1: the behaviour has changed. Downloads some 3 GB into a temporary folder.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip --disable-pip-version-check -q install torch==2.11.0 'numpy>=2,<3'
"$folder/venv/bin/python" - <<'EOF'
import sys
import torch
import torch.nn.functional as F


def reordered(x):
    """The same numbers, with the dimensions in the opposite order in memory."""
    order = list(range(x.dim()))[::-1]
    return x.permute(order).contiguous().permute(order)


def gradients(function, *leaves):
    return torch.autograd.grad(function(*leaves).square().sum(), leaves)


torch.manual_seed(0)
x, w, b = (torch.randn(*s, requires_grad=True) for s in ((2, 5, 8), (8,), (8,)))
wrong = {
    "layer_norm": lambda x, w, b: F.layer_norm(x, (8,), w, b),
    "group_norm": lambda x, w, b: F.group_norm(x.transpose(1, 2), 2, w, b),
    "scaled_dot_product_attention": lambda x, w, b: F.scaled_dot_product_attention(x[None], x[None], x[None]) * w + b,
}
right = {
    "gelu": lambda x, w, b: F.gelu(x) * w + b,
    "softmax": lambda x, w, b: x.softmax(-1) * w + b,
    "rms_norm": lambda x, w, b: F.rms_norm(x, (8,), w) + b,
    "cross_entropy": lambda x, w, b: F.cross_entropy((x * w + b).flatten(0, 1), torch.arange(10) % 8),
}
print("torch", torch.__version__)
changed = False
for name, function in (wrong | right).items():
    want = gradients(function, x, w, b)
    with torch.autograd.graph.saved_tensors_hooks(reordered, lambda saved: saved):
        got = gradients(function, x, w, b)
    error = max((g - v).abs().max().item() / v.abs().max().item() for g, v in zip(got, want))
    print(f"{name:29} relative error {error:.2g}")
    changed |= (error > 0.01) != (name in wrong)
sys.exit(changed)
EOF

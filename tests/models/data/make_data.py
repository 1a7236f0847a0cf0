#!/usr/bin/env python3
"""Writes gpt.safetensors beside itself: a seeded GPT in plain PyTorch, its logits, loss and gradients.

    python tests/models/data/make_data.py

The model is that of bench/gpt_peer.py; gpt_test.cpp wants the same numbers from the same seed.
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "bench"))
from gpt_peer import GPT  # noqa: E402

torch.set_num_threads(1)
out = {}
for name, options, gpt2_init in [
        ("book", dict(bias=True, qkv_bias=True), False),
        ("nano", dict(bias=False, tied=True), True)]:
    torch.manual_seed(123)
    model = GPT(vocab=11, block=8, width=12, heads=3, layers=2, **options)
    if gpt2_init:
        model.gpt2_init()
    ids = torch.arange(14).view(2, 7).mul(5).remainder(11)
    targets = ids.mul(3).add(1).remainder(11)
    loss = model.loss(ids, targets)
    loss.backward()
    out[f"{name}.logits"] = model(ids).detach()
    out[f"{name}.loss"] = loss.detach()
    for key, parameter in model.named_parameters():
        out[f"{name}.weight.{key}"] = parameter.detach()
        out[f"{name}.grad.{key}"] = parameter.grad
save_file(out, HERE / "gpt.safetensors")

#!/usr/bin/env python3
"""`flash_attn_func` of the wheel in turns with `attentive.attention` and PyTorch's `scaled_dot_product_attention`, each in its own
layout: B1 H12 D64, 1,024 tokens, causal, forward and backward, plain and with dropout 0.1, after the results were equal.

    python bench/flash_attn_peer.py [SECONDS A CASE]
"""

import statistics
import sys
import time

import torch
from torch.nn.functional import scaled_dot_product_attention

import attentive
from attentive.flash_attn import flash_attn_func
from machine import describe

torch.set_num_threads(2)
budget = float(sys.argv[1]) if len(sys.argv) > 1 else 5
print(", ".join(f"{name} {value}" for name, value in describe(torch, 2).items()))
for dtype, allowed in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2)):
    for p in (0.0, 0.1):
        torch.manual_seed(1)
        ours = [torch.randn(1, 1024, 12, 64).to(dtype) for _ in range(4)]
        theirs = [x.transpose(1, 2).contiguous() for x in ours]
        calls = {
            "flash_attn_func": (ours, lambda *x: flash_attn_func(*x, p, causal=True)),
            "attention": (theirs, lambda *x: attentive.attention(*x, causal="bottom_right", dropout_p=p)),
            "sdpa": (theirs, lambda *x: scaled_dot_product_attention(*x, dropout_p=p, is_causal=True)),
        }
        seconds = {name: [] for name in calls}
        order, end, results = list(calls), None, {}
        while end is None or time.perf_counter() < end or len(seconds["sdpa"]) < 6:
            for name in order:
                (*inputs, grad), call = calls[name]
                inputs = [x.requires_grad_() for x in inputs]
                torch.manual_seed(2)
                begin = time.perf_counter()
                out = call(*inputs)
                results[name] = [out, *torch.autograd.grad(out, inputs, grad)]
                seconds[name].append(time.perf_counter() - begin)
            if end is None:  # the first round is checked, not timed; PyTorch's dropout has other bits
                for name in ("attention", "sdpa")[: 2 if p == 0 else 1]:
                    for got, want in zip(results["flash_attn_func"], results[name]):
                        error = ((got.transpose(1, 2) - want).abs().max() / want.abs().max()).item()
                        assert error <= allowed, f"flash_attn_func differs from {name} by {error:.1e}"
                seconds, end = {name: [] for name in calls}, time.perf_counter() + budget
            order.append(order.pop(0))  # each round begins with another one
        ratio = {name: statistics.median(map(float.__truediv__, seconds["sdpa"], seconds[name])) for name in calls}
        print(f"{dtype}, dropout {p}: {1e3 * statistics.median(seconds['flash_attn_func']):.1f} ms, {ratio['flash_attn_func']:.2f} "
              f"times as fast as sdpa; attention {ratio['attention']:.2f} times", flush=True)

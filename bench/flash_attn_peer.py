#!/usr/bin/env python3
"""`attentive.flash_attn.flash_attn_func` in turns with `attentive.attention` and PyTorch's `scaled_dot_product_attention`, each in
its own layout: B1 H12 D64, causal, forward and backward, plain and with dropout 0.1. Needs the wheel.

    python bench/flash_attn_peer.py [--tokens 1024] [--threads 2] [--budget 5]

Without dropout, the results of all three must agree first; with it, those of the two that draw the same bits.
"""

import argparse
import statistics
import time

import torch
from torch.nn.functional import scaled_dot_product_attention

import attentive
from attentive.flash_attn import flash_attn_func
from machine import describe

TYPES = {"float32": (torch.float32, 1e-5), "bfloat16": (torch.bfloat16, 2e-2)}


def contenders(dtype, tokens, p):
    """By name, a call that returns the output and the gradients, in the layout (B, L, H, D)."""
    torch.manual_seed(20240)
    flat = [torch.randn(1, tokens, 12, 64).to(dtype) for _ in range(4)]
    heads = [x.transpose(1, 2).contiguous() for x in flat]

    def task(call, tensors, flip):
        *inputs, grad = tensors
        inputs = [x.requires_grad_() for x in inputs]

        def run():
            out = call(*inputs)
            return [x.transpose(1, 2) if flip else x for x in (out, *torch.autograd.grad(out, inputs, grad))]
        return run
    return {
        "flash_attn_func": task(lambda *x: flash_attn_func(*x, p, causal=True), flat, False),
        "attention": task(lambda *x: attentive.attention(*x, causal="bottom_right", dropout_p=p), heads, True),
        "sdpa": task(lambda *x: scaled_dot_product_attention(*x, dropout_p=p, is_causal=True), heads, True),
    }


def check(runs, allowed, p):
    results = []
    for run in list(runs.values())[: 3 if p == 0 else 2]:
        torch.manual_seed(1)
        results.append(run())
    for name, other in zip(list(runs)[1:], results[1:]):
        for got, want in zip(results[0], other):
            error = ((got - want).abs().max() / want.abs().max()).item()
            if not error <= allowed:
                raise SystemExit(f"flash_attn_func differs from {name} by {error:.1e}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--budget", type=float, default=5, help="seconds of timing a case")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(", ".join(f"{name} {value}" for name, value in describe(torch, args.threads).items()))
    for name, (dtype, allowed) in TYPES.items():
        for p in (0.0, 0.1):
            runs = contenders(dtype, args.tokens, p)
            check(runs, allowed, p)
            seconds = {one: [] for one in runs}
            start = time.perf_counter()
            order = list(runs)
            while len(seconds["sdpa"]) < 6 or time.perf_counter() - start < args.budget:
                for one in order:
                    begin = time.perf_counter()
                    runs[one]()
                    seconds[one].append(time.perf_counter() - begin)
                order.append(order.pop(0))  # each round begins with another one
            ratios = [statistics.median(map(float.__truediv__, seconds["sdpa"], seconds[one])) for one in runs]
            print(f"{name}, dropout {p}: flash_attn_func {1e3 * statistics.median(seconds['flash_attn_func']):.2f} ms, "
                  f"{ratios[0]:.2f} times as fast as sdpa; attention {ratios[1]:.2f} times", flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Times compiled FlexAttention on the cases of attentive-bench's suites for a GPU.

    bench/flex_peer.py [--device cuda] [--dtype bf16 fp32] [--tokens 2048 8192] [--head-dim 64 128]

The names of the cases are those of the suites gpu-grid and gpu-options. Every result is checked against single operations
in float32 first. PyTorch's memory-efficient kernel, causal, is timed in the same rounds: attentive-bench times it too, so
that ratios to it compare the two programs. Compiling a case takes seconds to half a minute; what
--seconds leaves no time for is listed as skipped.
"""

import argparse
import statistics
import sys
import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from machine import describe

HEADS, DOCUMENTS, WINDOW, SOFTCAP = 16, 8, 256, 30.0
TYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
ALLOWED = {"bf16": 3e-2, "fp32": 5e-3}  # float32 products may use TF32


def causal(b, h, q, k):
    return q >= k


@dataclass
class Variant:
    """The mask, the change of scores, and the same options for single operations."""

    name: str
    visible: object = causal
    score: object = None
    sinks: torch.Tensor | None = None
    softcap: float = 0.0
    slopes: torch.Tensor | None = None


def variants(tokens, device):
    slopes = torch.tensor([2.0 ** (-8.0 * (h + 1) / HEADS) for h in range(HEADS)], device=device)
    keep = torch.rand(tokens, tokens, device=device) < 0.9
    keep.fill_diagonal_(True)
    document = torch.arange(tokens, device=device) // (tokens // DOCUMENTS)

    def capped(score, b, h, q, k):
        return SOFTCAP * torch.tanh(score / SOFTCAP)

    def alibi(score, b, h, q, k):
        return score - slopes[h] * (q - k)

    return [
        Variant("causal"),
        Variant(f"window {WINDOW}", visible=lambda b, h, q, k: (q >= k) & (q - k < WINDOW)),
        Variant("softcap", score=capped, softcap=SOFTCAP),
        Variant("ALiBi", score=alibi, slopes=slopes),
        Variant("sinks", sinks=torch.linspace(-1, 1, HEADS, device=device)),
        Variant("keep mask", visible=lambda b, h, q, k: (q >= k) & keep[q, k]),
        Variant("documents", visible=lambda b, h, q, k: (q >= k) & (document[q] == document[k])),
    ]


def composed(q, k, v, variant, head):
    """One head by single operations, in float32."""
    place = torch.arange(q.shape[-2], device=q.device)
    rows, columns = place[:, None], place[None, :]
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if variant.softcap:
        scores = torch.tanh(scores / variant.softcap) * variant.softcap
    if variant.slopes is not None:
        scores = scores - variant.slopes[head] * (rows - columns).abs()
    scores = scores.masked_fill(~variant.visible(0, head, rows, columns), -torch.inf)
    if variant.sinks is not None:
        scores = torch.cat([scores, variant.sinks[head].expand(*scores.shape[:-1], 1)], -1)
    return torch.softmax(scores, -1)[..., : k.shape[-2]] @ v


def flex(variant, tokens, device):
    """The call, compiled at its first use."""
    block = create_block_mask(variant.visible, None, None, tokens, tokens, device=device)
    compiled = torch.compile(flex_attention, dynamic=False)

    def run(q, k, v):
        if variant.sinks is None:
            return compiled(q, k, v, score_mod=variant.score, block_mask=block)
        # A sink takes a share of each row's sum.
        out, logsumexp = compiled(q, k, v, score_mod=variant.score, block_mask=block, return_lse=True)
        return out * torch.sigmoid(logsumexp - variant.sinks[:, None]).unsqueeze(-1).to(out.dtype)

    return run


def efficient(q, k, v):
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION if q.is_cuda else SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def task(call, inputs, grad):
    """One timed call: the output, and the gradients if `grad` is given."""
    if grad is None:
        return lambda: (call(*inputs),)

    def run():
        out = call(*inputs)
        return (out, *torch.autograd.grad(out, inputs, grad))

    return run


def error_of(results, inputs, grad, variant):
    worst = 0.0
    for head in (0, HEADS - 1):
        head_inputs = [x.detach()[:, head].float().requires_grad_(grad is not None) for x in inputs]
        out = composed(*head_inputs, variant, head)
        expected = (out,) if grad is None else (out, *torch.autograd.grad(out, head_inputs, grad[:, head].float()))
        for got, want in zip(results, expected, strict=True):
            off = (got.detach()[:, head].float() - want.detach()).abs().max() / want.abs().max()
            worst = max(worst, off.item()) if off == off else float("nan")
    return worst


def finish(device):
    if device == "cuda":
        torch.cuda.synchronize()


def sample(run, calls, device):
    finish(device)
    start = time.perf_counter()
    for _ in range(calls):
        run()
    finish(device)
    return (time.perf_counter() - start) / calls


def times(runs, device, budget):
    """Median seconds of each; the runs take turns."""
    calls = []
    for run in runs:
        sample(run, 1, device)
        calls.append(max(1, min(2000, round(5e-3 / sample(run, 1, device)))))
    samples = [[] for _ in runs]
    start = time.perf_counter()
    while len(samples[0]) < 5 or (time.perf_counter() - start < budget and len(samples[0]) < 400):
        for i, run in enumerate(runs):
            samples[i].append(sample(run, calls[i], device))
    return [statistics.median(x) for x in samples]


def token_count(tokens):
    return f"{tokens // 1024}k" if tokens % 1024 == 0 else str(tokens)


def measure(variant, dtype, tokens, dim, backward, args):
    torch.manual_seed(20240)
    inputs = [torch.randn(1, HEADS, tokens, dim).to(args.device, TYPES[dtype]).requires_grad_(backward) for _ in range(3)]
    grad = torch.randn_like(inputs[0]).detach() if backward else None
    start = time.perf_counter()
    compiled = task(flex(variant, tokens, args.device), inputs, grad)
    results = compiled()
    finish(args.device)
    compile_s = time.perf_counter() - start
    error = error_of(results, inputs, grad, variant)
    if not error <= ALLOWED[dtype]:
        return {"skipped": f"wrong: error {error:.2g}, allowed {ALLOWED[dtype]:g}"}
    seconds, baseline = times([compiled, task(efficient, inputs, grad)], args.device, args.budget)
    return {"flex_s": seconds, "efficient_s": baseline, "error": error, "compile_s": compile_s}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="cpu is for trying this program: forward only")
    parser.add_argument("--dtype", nargs="+", default=["bf16", "fp32"], choices=TYPES)
    parser.add_argument("--tokens", nargs="+", type=int, default=[2048, 8192])
    parser.add_argument("--head-dim", nargs="+", type=int, default=[64, 128])
    parser.add_argument("--budget", type=float, default=0.2, help="seconds of timing a case")
    parser.add_argument("--seconds", type=float, default=1e9, help="no case is begun after so many")
    args = parser.parse_args()
    start = time.perf_counter()
    about = describe(torch, torch.get_num_threads())
    about["device"] = torch.cuda.get_device_name() if args.device == "cuda" else "cpu"
    print(", ".join(f"{name} {value}" for name, value in about.items()), flush=True)
    timed = False
    torch._dynamo.config.recompile_limit = 1000  # every case is compiled
    # The most relevant cases come first: half precision, the largest T.
    cases = [(dtype, dim, tokens, backward, index) for dtype in args.dtype for tokens in sorted(args.tokens, reverse=True)
             for dim in args.head_dim for backward in (False, True) for index in range(len(variants(DOCUMENTS, "cpu")))]
    for dtype, dim, tokens, backward, index in cases:
        if backward and args.device == "cpu":
            continue
        variant = variants(tokens, args.device)[index]
        name = f"{variant.name} {'fwd+bwd' if backward else 'fwd'} T={token_count(tokens)} D{dim}"
        if time.perf_counter() - start > args.seconds:
            row = {"skipped": "no time left"}
        else:
            try:
                with torch.set_grad_enabled(backward):
                    row = measure(variant, dtype, tokens, dim, backward, args)
            except Exception as error:  # a case that fails to compile or does not fit is a result, not the end
                row = {"skipped": f"{type(error).__name__}: {str(error).strip().splitlines()[0][:120] if str(error).strip() else ''}"}
        timed |= "flex_s" in row
        if "skipped" in row:
            print(f"{name} {dtype}: skipped: {row['skipped']}", flush=True)
        else:
            print(f"{name} {dtype}: {1e3 * row['flex_s']:.3f} ms, efficient kernel, causal: {1e3 * row['efficient_s']:.3f} ms, "
                  f"error {row['error']:.1e}, compiled in {row['compile_s']:.0f} s", flush=True)
    return 0 if timed else 1


if __name__ == "__main__":
    sys.exit(main())

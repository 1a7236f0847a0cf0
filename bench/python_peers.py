#!/usr/bin/env python3
"""Times the ways to write causal attention in Python, and the strongest other runtimes where they are installed.

    bench/python_peers.py [--suite module core dropout] [--dtype fp32 bf16] [--threads 2] [--budget 5] [--json FILE]

Every way is checked against the chapter-3 code before it is timed; ways are interleaved round by round. What is not
installed, or cannot express the task, is named as skipped. `torch sdpa` stands in attentive-bench too: compare ratios to
it, not times of different processes.
"""

import argparse
import json
import math
import statistics
import sys
import time
from dataclasses import dataclass, fields
from pathlib import Path

import torch
import torch.nn.functional as F

from machine import describe

BATCH, TOKENS, WIDTH, HEADS = 8, 1024, 768, 12
HEAD_DIM = WIDTH // HEADS


# The nine ways compared in the material of chapter 3, as functions of one set of weights.


@dataclass
class Weights:
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    out: torch.Tensor
    bias: torch.Tensor
    dropout: float

    @staticmethod
    def draw(dtype, dropout, grad):
        torch.manual_seed(1)
        bound = 1 / math.sqrt(WIDTH)

        def one(*size):
            return torch.empty(*size).uniform_(-bound, bound).to(dtype).requires_grad_(grad)

        return Weights(*(one(WIDTH, WIDTH) for _ in range(4)), one(WIDTH), dropout)

    def tensors(self):
        return [getattr(self, f.name) for f in fields(self) if f.name != "dropout"]


def hidden(tokens):
    return torch.ones(tokens, tokens, dtype=torch.bool).triu(1)


def in_heads(projected):
    return projected.unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2)


def projections(x, w):
    return [in_heads(F.linear(x, matrix)) for matrix in (w.query, w.key, w.value)]


def output(context, w):
    return F.linear(context.transpose(1, 2).reshape(context.shape[0], -1, WIDTH), w.out, w.bias)


def weigh(scores, v, dropout):
    scores = scores.masked_fill(hidden(scores.shape[-1]), -torch.inf)
    weights = torch.softmax(scores / v.shape[-1] ** 0.5, dim=-1)
    return F.dropout(weights, dropout, training=dropout > 0) @ v


def head_by_head(x, w):
    contexts = []
    for q, k, v in zip(w.query.split(HEAD_DIM), w.key.split(HEAD_DIM), w.value.split(HEAD_DIM), strict=True):
        contexts.append(weigh(F.linear(x, q) @ F.linear(x, k).transpose(-2, -1), F.linear(x, v), w.dropout))
    return F.linear(torch.cat(contexts, dim=-1), w.out, w.bias)


def chapter3(x, w):
    q, k, v = projections(x, w)
    return output(weigh(q @ k.transpose(-2, -1), v, w.dropout), w)


def combined_qkv(x, w):
    packed = F.linear(x, torch.cat((w.query, w.key, w.value)))
    q, k, v = packed.unflatten(-1, (3, HEADS, HEAD_DIM)).permute(2, 0, 3, 1, 4)
    return output(weigh(q @ k.transpose(-2, -1), v, w.dropout), w)


def einsum(x, w):
    q, k, v = (torch.einsum("btc,hdc->bhtd", x, m.unflatten(0, (HEADS, HEAD_DIM))) for m in (w.query, w.key, w.value))
    return output(weigh(torch.einsum("bhld,bhsd->bhls", q, k), v, w.dropout), w)


def sdpa_causal(x, w):
    return output(F.scaled_dot_product_attention(*projections(x, w), dropout_p=w.dropout, is_causal=True), w)


def sdpa_mask(x, w):
    keep = ~hidden(x.shape[1])
    return output(F.scaled_dot_product_attention(*projections(x, w), attn_mask=keep, dropout_p=w.dropout), w)


def library(need_weights):
    def run(x, w):
        y = x.transpose(0, 1)
        context, _ = F.multi_head_attention_forward(
            y, y, y, WIDTH, HEADS, torch.cat((w.query, w.key, w.value)), None, None, None, False, w.dropout, w.out,
            w.bias, training=w.dropout > 0, need_weights=need_weights, attn_mask=hidden(x.shape[1]),
            is_causal=not need_weights)
        return context.transpose(0, 1)

    return run


def flex(x, w):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    if x.requires_grad or w.dropout:
        raise NotImplementedError("FlexAttention has no backward and no dropout on the CPU")
    if not hasattr(flex, "compiled"):
        flex.compiled = torch.compile(flex_attention)
    tokens = x.shape[1]
    if getattr(flex, "tokens", None) != tokens:
        flex.mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, tokens, tokens, device="cpu")
        flex.tokens = tokens
    return output(flex.compiled(*projections(x, w), block_mask=flex.mask), w)


NINE = {
    "1 head by head": head_by_head,
    "2 chapter-3 code": chapter3,
    "3 combined QKV": combined_qkv,
    "4 einsum": einsum,
    "5 torch sdpa": sdpa_causal,
    "6 sdpa + mask": sdpa_mask,
    "7 nn.MultiheadAttention": library(True),
    "8 the same, no weights": library(False),
    "9 FlexAttention compiled": flex,
}


# Other runtimes. Each returns a function without arguments that computes the task, or raises with the reason.


class Chapter3(torch.nn.Module):
    def __init__(self, w):
        super().__init__()
        self.w = w
        for i, tensor in enumerate(w.tensors()):
            self.register_buffer(f"w{i}", tensor.detach())

    def forward(self, x):
        return chapter3(x, Weights(*(getattr(self, f"w{i}") for i in range(5)), 0.0))


class CoreSdpa(torch.nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def openvino_model(module, inputs, bf16, threads):
    import openvino as ov

    inputs = [t.detach().float() for t in inputs]
    model = ov.convert_model(module.float().eval(), example_input=tuple(inputs) if len(inputs) > 1 else inputs[0])
    model.reshape({port: list(t.shape) for port, t in zip(model.inputs, inputs, strict=True)})
    compiled = ov.Core().compile_model(
        model, "CPU", {"INFERENCE_PRECISION_HINT": "bf16" if bf16 else "f32", "INFERENCE_NUM_THREADS": threads})
    request = compiled.create_infer_request()
    arrays = [t.numpy() for t in inputs]
    return lambda: torch.from_numpy(request.infer(arrays, share_inputs=True, share_outputs=True)[0])


def onnx_session(nodes, inputs, initializers, out_shape, threads):
    import onnx
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper

    kinds = {torch.float32: TensorProto.FLOAT, torch.int32: TensorProto.INT32}
    graph = helper.make_graph(
        nodes, "attention", [helper.make_tensor_value_info(n, kinds[t.dtype], list(t.shape)) for n, t in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, out_shape)],
        [numpy_helper.from_array(t.detach().numpy(), n) for n, t in initializers.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)])
    model.ir_version = min(model.ir_version, 10)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {n: t.detach().numpy() for n, t in inputs.items()}
    del onnx
    return lambda: torch.from_numpy(session.run(["y"], feeds)[0])


def onnx_module(x, w, threads):
    from onnx import helper

    nodes = [helper.make_node("MatMul", ["x", n], [n + "_out"]) for n in ("q", "k", "v")]
    nodes.append(helper.make_node("MultiHeadAttention", ["q_out", "k_out", "v_out"], ["context"], domain="com.microsoft",
                                  num_heads=HEADS, unidirectional=1))
    nodes.append(helper.make_node("MatMul", ["context", "o"], ["projected"]))
    nodes.append(helper.make_node("Add", ["projected", "bias"], ["y"]))
    weights = {"q": w.query.T.contiguous(), "k": w.key.T.contiguous(), "v": w.value.T.contiguous(),
               "o": w.out.T.contiguous(), "bias": w.bias}
    return onnx_session(nodes, {"x": x}, weights, list(x.shape), threads)


def onnx_core(q, k, v, threads):
    from onnx import helper

    batch, heads, tokens, dim = q.shape
    packed = {n: t.transpose(1, 2).reshape(batch, tokens, heads * dim).contiguous()
              for n, t in (("q", q), ("k", k), ("v", v))}
    lengths = {"last": torch.full((batch,), tokens - 1, dtype=torch.int32),
               "total": torch.tensor([tokens], dtype=torch.int32)}
    node = helper.make_node("GroupQueryAttention", ["q", "k", "v", "", "", "last", "total"], ["y", "pk", "pv"],
                            domain="com.microsoft", num_heads=heads, kv_num_heads=heads)
    run = onnx_session([node], packed | lengths, {}, [batch, tokens, heads * dim], threads)
    return lambda: run().view(batch, tokens, heads, dim).transpose(1, 2)


# Checking, timing, printing.


def allowed(dtype):
    return 3e-2 if dtype == torch.bfloat16 else 1e-4


def error_of(got, wanted):
    return max(((g.float() - w.float()).abs().max() / w.float().abs().max()).item() for g, w in zip(got, wanted, strict=True))


def time_ways(ways, budget):
    samples = {name: [] for name in ways}
    names = list(ways)
    start = time.perf_counter()
    for turn in range(100):
        if turn >= 3 and time.perf_counter() - start > budget:
            break
        for step in range(len(names)):
            name = names[(step + turn) % len(names)]
            before = time.perf_counter()
            ways[name]()
            samples[name].append(time.perf_counter() - before)
    return samples


class Report:
    def __init__(self, arguments):
        self.arguments = arguments
        self.rows = []

    def run(self, case, dtype, candidates, baseline, comparable=True):
        """candidates: name -> maker of a function that returns tensors. The baseline's result is the reference."""
        name_of = "bf16" if dtype == torch.bfloat16 else "fp32"
        print(f"\n{case}, {name_of}\n\n| way | median ms | p10 - p90 | / {baseline} | error |\n|---|--:|--:|--:|--:|")
        ready, errors, skipped = {}, {}, {}
        reference = None
        for name in [baseline] + [n for n in candidates if n != baseline]:
            try:
                if any(part in name for part in self.arguments.without):
                    raise RuntimeError("--without")
                run = candidates[name]()
                got = run()
            except Exception as error:  # any exception of a foreign runtime is the reason for skipping it
                skipped[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:140]}"
                continue
            reference = got if reference is None else reference
            errors[name] = error_of(got, reference) if comparable else None
            if comparable and not errors[name] <= allowed(dtype):
                skipped[name] = f"wrong result, not timed: error {errors[name]:.1e}"
                continue
            run()
            ready[name] = run
        samples = time_ways(ready, self.arguments.budget)
        for name in candidates:
            if name in skipped:
                print(f"| {name} | skipped: {skipped[name]} | | | |")
                self.rows.append({"case": case, "dtype": name_of, "way": name, "skipped": skipped[name]})
                continue
            times = sorted(samples[name])
            ratio = statistics.median(a / b for a, b in zip(samples[name], samples[baseline], strict=True))
            low, high = times[len(times) // 10], times[(len(times) * 9) // 10]
            median = statistics.median(times)
            error = "other drops" if errors[name] is None else f"{errors[name]:.0e}"
            print(f"| {name} | {median * 1e3:.1f} | {low * 1e3:.1f} - {high * 1e3:.1f} | {ratio:.2f} | {error} |", flush=True)
            self.rows.append({"case": case, "dtype": name_of, "way": name, "median_s": median, "p10_s": low, "p90_s": high,
                              "ratio_to_baseline": ratio, "baseline": baseline, "error": errors[name],
                              "rounds": len(times)})
        self.save()

    def save(self):
        """Saves after every case, so that an interrupted run keeps its results."""
        if not self.arguments.json:
            return
        partial = Path(f"{self.arguments.json}.part")
        rows = {"versions": versions(self.arguments), "threads": self.arguments.threads, "rows": self.rows}
        partial.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        partial.replace(self.arguments.json)


def module_suite(report, dtype):
    arguments = report.arguments
    torch.manual_seed(2)
    x = torch.randn(BATCH, TOKENS, WIDTH)
    for training, dropout in ((False, 0.0), (True, 0.0), (True, 0.1)):
        w = Weights.draw(dtype, dropout, training)
        at = x.to(dtype).requires_grad_(training)
        grad = torch.randn(at.shape).to(dtype)

        def way(function, w=w, at=at, grad=grad, training=training):
            def forward():
                with torch.no_grad():
                    return [function(at, w)]

            def step():
                y = function(at, w)
                return [y, *torch.autograd.grad(y, [at, *w.tensors()], grad)]

            return step if training else forward

        candidates = {name: (lambda f=f: way(f)) for name, f in NINE.items()}
        candidates["2 torch.compile"] = lambda: way(torch.compile(chapter3))
        candidates["5 torch.compile"] = lambda: way(torch.compile(sdpa_causal))
        if not training:
            def vino(w=w, at=at):
                run = openvino_model(Chapter3(w), [at], dtype == torch.bfloat16, arguments.threads)
                return lambda: [run()]

            def onnx(w=w, at=at):
                if dtype != torch.float32:
                    raise NotImplementedError("its CPU MultiHeadAttention takes fp32")
                run = onnx_module(at, w, arguments.threads)
                return lambda: [run()]

            candidates["OpenVINO on 2"] = vino
            candidates["ONNX Runtime"] = onnx
        case = f"module B{BATCH} T{TOKENS} d{WIDTH} H{HEADS}, " + (f"training step, dropout {dropout}" if training else "forward")
        report.run(case, dtype, candidates, "2 chapter-3 code", comparable=dropout == 0)


def core_suite(report, dtype):
    arguments = report.arguments
    for tokens in (256, 1024, 4096):
        torch.manual_seed(3)
        q, k, v = (torch.randn(1, 12, tokens, 64).to(dtype) for _ in range(3))

        def eager(q=q, k=k, v=v):
            def run():
                with torch.no_grad():
                    return [F.scaled_dot_product_attention(q, k, v, is_causal=True)]

            return run

        def compiled_flex(q=q, k=k, v=v, tokens=tokens):
            from torch.nn.attention.flex_attention import create_block_mask, flex_attention

            mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, tokens, tokens, device="cpu")
            function = torch.compile(flex_attention)

            def run():
                with torch.no_grad():
                    return [function(q, k, v, block_mask=mask)]

            return run

        def vino(q=q, k=k, v=v):
            run = openvino_model(CoreSdpa(), [q, k, v], dtype == torch.bfloat16, arguments.threads)
            return lambda: [run()]

        def onnx(q=q, k=k, v=v):
            if dtype != torch.float32:
                raise NotImplementedError("not tried in bf16")
            run = onnx_core(q, k, v, arguments.threads)
            return lambda: [run()]

        report.run(f"core forward, causal B1 H12 T{tokens} D64", dtype,
                   {"torch sdpa": eager, "FlexAttention compiled": compiled_flex, "OpenVINO SDPA": vino,
                    "ONNX Runtime GQA": onnx}, "torch sdpa")


def composed(q, k, v, dropout):
    return weigh(q @ k.transpose(-2, -1), v, dropout)


def fused(q, k, v, dropout):
    return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)


def dropout_suite(report, dtype):
    for tokens in (1024, 4096):
        torch.manual_seed(4)
        leaves = [torch.randn(1, 12, tokens, 64).to(dtype).requires_grad_() for _ in range(3)]
        grad = torch.randn(1, 12, tokens, 64).to(dtype)

        def way(function, leaves=leaves, grad=grad):
            def run():
                y = function(*leaves, 0.1)
                return [y, *torch.autograd.grad(y, leaves, grad)]

            return run

        report.run(f"core forward and backward, dropout 0.1, causal B1 H12 T{tokens} D64", dtype,
                   {"torch sdpa": lambda way=way: way(fused), "composed": lambda way=way: way(composed),
                    "torch sdpa, torch.compile": lambda way=way: way(torch.compile(fused)),
                    "composed, torch.compile": lambda way=way: way(torch.compile(composed))}, "torch sdpa", comparable=False)


def versions(arguments):
    found = describe(torch, arguments.threads)
    for name in ("openvino", "onnxruntime"):
        try:
            found[name] = __import__(name).__version__
        except ImportError:
            found[name] = "not installed"
    return found


SUITES = {"module": module_suite, "core": core_suite, "dropout": dropout_suite}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suite", nargs="+", choices=SUITES, default=list(SUITES))
    parser.add_argument("--dtype", nargs="+", choices=("fp32", "bf16"), default=["fp32", "bf16"])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--budget", type=float, default=5.0, help="seconds of timing a case; three rounds in any case")
    parser.add_argument("--without", nargs="+", default=[], help="leaves out ways whose name contains this (compile ...)")
    parser.add_argument("--json", help="writes every figure to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(versions(arguments), flush=True)
    report = Report(arguments)
    for name in arguments.suite:
        for dtype in arguments.dtype:
            SUITES[name](report, {"fp32": torch.float32, "bf16": torch.bfloat16}[dtype])
    return 0


if __name__ == "__main__":
    sys.exit(main())

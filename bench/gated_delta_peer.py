#!/usr/bin/env python3
"""The gated delta rule in turns with transformers' functions in PyTorch and onnxruntime's LinearAttention, 16 heads of 128 channels,
float32, after the results were equal: forward of 4,096 and 8,192 tokens, forward and backward, and one token.

    python bench/gated_delta_peer.py [--library FILE] [--seconds A_CASE]

--library loads the operators from a file instead of the wheel. Without onnxruntime (1.32 or newer), its case is left out.
"""

import argparse
import os
import statistics
import time

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # likewise

import torch
from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule, torch_recurrent_gated_delta_rule

from machine import describe

parser = argparse.ArgumentParser()
parser.add_argument("--library")
parser.add_argument("--seconds", type=float, default=10)
options = parser.parse_args()
if options.library:
    torch.ops.load_library(os.path.abspath(options.library))
else:
    import attentive  # noqa: F401
rule, rule_ = torch.ops.attentive.gated_delta_rule, torch.ops.attentive.gated_delta_rule_
torch.set_num_threads(2)
HEADS, DIM = 16, 128


def drawn(batch, tokens):
    """q, k, v, gate and beta with heads after tokens, as transformers and onnxruntime have them; keys are normalised."""
    torch.manual_seed(1)
    q, k, v = (torch.randn(batch, tokens, HEADS, DIM) for _ in range(3))
    k = k / k.norm(dim=-1, keepdim=True)
    return q, k, v, -0.2 * torch.rand(batch, tokens, HEADS), torch.rand(batch, tokens, HEADS)


def ours(q, k, v, gate, beta):
    output, state = rule(*(x.transpose(1, 2) for x in (q, k, v, gate, beta)))
    return output.transpose(1, 2), state


def chunks(q, k, v, gate, beta):
    return torch_chunk_gated_delta_rule(q, k, v, g=gate, beta=beta, output_final_state=True)


def with_gradients(call, inputs, grad):
    inputs = [x.detach().requires_grad_() for x in inputs]
    output = call(*inputs)[0]
    return [output.detach(), *torch.autograd.grad(output, inputs, grad)]


def onnxruntime_call(q, k, v, gate, beta):
    import onnxruntime
    from onnx import TensorProto, helper

    batch, tokens = q.shape[:2]
    rows, numbers, state = [batch, tokens, HEADS * DIM], [batch, tokens, HEADS], [batch, HEADS, DIM, DIM]
    shapes = {"q": rows, "k": rows, "v": rows, "past": state, "gate": numbers, "beta": numbers}
    value = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    node = helper.make_node("LinearAttention", list(shapes), ["output", "present"], domain="com.microsoft", q_num_heads=HEADS,
                            kv_num_heads=HEADS, update_rule="gated_delta")
    graph = helper.make_graph([node], "rule", [value(*x) for x in shapes.items()], [value("output", rows), value("present", state)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 2
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")  # its threads would slow down the others' runs
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    feed = {name: x.reshape(shapes[name]).numpy() for name, x in zip(shapes, (q, k, v, torch.zeros(state), gate, beta))}
    return lambda: [torch.from_numpy(x).reshape(want) for x, want in zip(session.run(None, feed), (q.shape, state))]


def measure(title, calls, check=True):
    """Runs the calls in turns, each round beginning with another one, and prints the medians of their ratios."""
    first, *others = calls
    results = {name: call() for name, call in calls.items()}
    for name in others if check else ():
        for got, want in zip(results[first], results[name]):
            error = ((got - want).abs().max() / want.abs().max()).item()
            assert error <= 1e-4, f"{title}: {first} differs from {name} by {error:.1e}"
    del results
    seconds, order, end = {name: [] for name in calls}, list(calls), time.perf_counter() + options.seconds
    while time.perf_counter() < end or len(seconds[first]) < 5:
        for name in order:
            begin = time.perf_counter()
            calls[name]()
            seconds[name].append(time.perf_counter() - begin)
        order.append(order.pop(0))
    print(f"{title}: {first} {1e3 * statistics.median(seconds[first]):.3g} ms (least {1e3 * min(seconds[first]):.3g})", end="")
    for name in others:
        ratio = statistics.median(map(float.__truediv__, seconds[name], seconds[first]))
        print(f"; {name} x {ratio:.2f} (least x {min(seconds[name]) / min(seconds[first]):.2f})", end="")
    print(flush=True)


print(", ".join(f"{name} {value}" for name, value in describe(torch, 2).items()))
inputs, longer = drawn(1, 4096), drawn(1, 8192)
with torch.no_grad():
    try:
        measure("forward, 4k tokens", {"attentive": lambda: ours(*inputs), "onnxruntime": onnxruntime_call(*inputs)})
    except ImportError as reason:
        print(f"onnxruntime: left out ({reason})")
    measure("forward, 4k tokens", {"attentive": lambda: ours(*inputs), "chunk loop": lambda: chunks(*inputs)})
    measure("forward, 4k tokens", {"attentive": lambda: ours(*inputs), "8k tokens": lambda: ours(*longer)}, check=False)
grad = torch.randn_like(inputs[2])
measure("forward and backward, 4k tokens",
        {"attentive": lambda: with_gradients(ours, inputs, grad), "chunk loop": lambda: with_gradients(chunks, inputs, grad)})
with torch.no_grad():
    for batch in (32, 1):
        token = drawn(batch, 1)
        state = torch.randn(batch, HEADS, DIM, DIM)
        heads_first = [x.transpose(1, 2) for x in token]
        recurrent = lambda: torch_recurrent_gated_delta_rule(*token[:3], g=token[3], beta=token[4], initial_state=state, output_final_state=True)
        ours_token = lambda: rule_(state, *heads_first)
        for other, call in (("state.mul_(c)", lambda: state.mul_(0.9999)), ("recurrent function", recurrent)):
            measure(f"one token, batch of {batch}", {"attentive": ours_token, other: call}, check=False)

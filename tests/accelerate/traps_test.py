#!/usr/bin/env python3
"""The traps of standing behind another library's operator that only Python can set.

    traps_test.py <library that accelerates> <the C++ library's LibTorch> <whether g++ built it: 0 or 1>

Every check compares the program with acceleration off and on. A check's name begins with the number of its trap, as in
traps_test.cpp. Exit status 4 is a skip: this Python's PyTorch is not the library's.
"""

import contextlib
import re
import subprocess
import sys
import traceback
import warnings

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

LIBRARY, BUILT_WITH, BY_GCC = sys.argv[1], sys.argv[2], sys.argv[3] == "1"
if torch.__version__.split("+")[0].split(".")[:2] != BUILT_WITH.split(".")[:2]:
    print(f"SKIPPED: Python has torch {torch.__version__}, the library was built with {BUILT_WITH}")
    sys.exit(4)

with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    torch.ops.load_library(LIBRARY)
WARNED = [str(one.message) for one in seen]
ops = torch.ops.attentive_accelerate_test
attend = F.scaled_dot_product_attention
torch.manual_seed(0)
Q, K, V = (torch.randn(2, 4, 48, 16) for _ in range(3))


@contextlib.contextmanager
def accelerated(on, exact=False):
    ops.start(exact) if on else ops.stop()
    ops.reset()
    try:
        yield
    finally:
        ops.stop()


def leaves():
    return [x.clone().requires_grad_() for x in (Q, K, V)]


def near(a, b, limit=2e-6):
    return a.shape == b.shape and (a.double() - b.double()).norm() <= limit * b.double().norm()


def both(program, taken, limit=2e-6):
    """Runs a program that returns tensors, off and on; on, it wants so many calls taken and nearly equal numbers."""
    results = []
    for on in (False, True):
        with accelerated(on):
            results.append(program())
            assert ops.taken() == (taken if on else 0), ops.report()
    for off, on in zip(*results):
        assert near(on, off, limit), (on - off).abs().max()


def error_of(program):
    """The first line of the error that a program raises; what it returns if there is none."""
    try:
        return program()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"


def same(program):
    """Wants equal results, as ==, or equal errors; returns the result."""
    results = []
    for on in (False, True):
        with accelerated(on):
            results.append(error_of(program))
    assert results[0] == results[1], results
    return results[0]


def eager(**options):
    def program():
        q, k, v = leaves()
        y = attend(q, k, v, **options)
        y.square().sum().backward()
        return y.detach(), q.grad, k.grad, v.grad
    return program


def trap_00_eager():
    both(eager(is_causal=True), 1)
    both(eager(attn_mask=torch.rand(48, 48) > 0.2), 1)


def trap_01_export():
    class Attend(torch.nn.Module):
        def forward(self, q, k, v):
            return attend(q, k, v, is_causal=True)

    def operators():
        program = torch.export.export(Attend(), (Q, K, V))
        return [[str(node.target) for node in one.graph.nodes] for one in (program, program.run_decompositions())]
    graphs = same(operators)
    assert "scaled_dot_product_attention" in str(graphs[0]), graphs
    program = torch.export.export(Attend(), (Q, K, V)).module()
    both(lambda: [program(Q, K, V)], 1)


def trap_03_fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    def program():
        with FakeTensorMode() as mode:
            y = attend(*map(mode.from_tensor, (Q, K, V)), dropout_p=0.1)
            return tuple(y.shape), y.stride(), type(y).__name__
    assert same(program)[2] == "FakeTensor"


def trap_03_make_fx():
    from torch.fx.experimental.proxy_tensor import make_fx
    same(lambda: [str(node.target) for node in make_fx(lambda *x: attend(*x))(Q, K, V).graph.nodes])


def trap_03_dispatch_mode():
    from torch.utils._python_dispatch import TorchDispatchMode

    def program():
        seen = []

        class Record(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, arguments=(), named=None):
                seen.append(str(function))
                return function(*arguments, **(named or {}))
        with Record():
            attend(Q, K, V)
        return seen
    assert "scaled_dot_product" in str(same(program))


def trap_03_flop_counter():
    from torch.utils.flop_counter import FlopCounterMode

    def program():
        with FlopCounterMode(display=False) as counter:
            attend(Q, K, V)
        return counter.get_total_flops()
    assert same(program) >= 0


def trap_03_transforms():
    both(lambda: [torch.func.grad(lambda q: attend(q, K, V).square().sum())(Q)], 1)
    both(lambda: [torch.func.vmap(lambda q, k, v: attend(q, k, v))(Q, K, V)], 0)
    both(lambda: [torch.func.vmap(torch.func.grad(lambda q: attend(q[None], K[:1], V[:1]).square().sum()))(Q)], 2)  # item by item
    same(lambda: torch.func.jvp(lambda q: attend(q, K, V), (Q,), (Q,)) and None)


def trap_03_subclass_and_others():
    class Plain(torch.Tensor):
        pass
    both(lambda: [attend(Q.as_subclass(Plain), K, V).as_subclass(torch.Tensor)], 1)
    assert same(lambda: tuple(attend(*(x.to("meta") for x in (Q, K, V))).shape)) == (2, 4, 48, 16)
    nested = torch.nested.nested_tensor([torch.randn(4, 5, 8), torch.randn(4, 7, 8)])
    both(lambda: [x for x in attend(nested, nested, nested).unbind()], 0)
    jagged = torch.nested.nested_tensor([torch.randn(5, 4, 8), torch.randn(7, 4, 8)], layout=torch.jagged).transpose(1, 2)
    both(lambda: [attend(jagged, jagged, jagged).transpose(1, 2).values()], 0)


def trap_03_batched_gradients():
    def program():
        q, k, v = leaves()
        y = attend(q, k, v, is_causal=True)
        return torch.autograd.grad(y, (q, k, v), torch.stack([torch.ones_like(y), y.detach()]), is_grads_batched=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        both(program, 1)


def trap_03_hooks_and_modes():
    def hooks():
        with torch.autograd.graph.saved_tensors_hooks(lambda x: x.clone(), lambda x: x):
            return eager(is_causal=True)()
    both(hooks, 1)

    def autocast():
        q, k, v = leaves()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = attend(q, k, v)
        assert y.dtype == torch.bfloat16
        y.float().sum().backward()
        return y.detach(), q.grad
    both(autocast, 1, limit=1e-2)

    def inference():
        with torch.inference_mode():
            return [attend(Q * 1, K, V).clone()]
    both(inference, 1)

    def profiled():
        with torch.profiler.profile(record_shapes=True) as profile:
            result = eager(dropout_p=0.0)()
        assert profile.key_averages()
        return result
    both(profiled, 1)


def trap_04_math():
    def program():
        with sdpa_kernel(SDPBackend.MATH):
            q, k, v = leaves()
            y = attend(q, k, v, dropout_p=0.0)
            first, = torch.autograd.grad(y.square().sum(), q, create_graph=True)
            return y.detach(), torch.autograd.grad(first.square().sum(), q)[0]
    both(program, 0)


def trap_05_second_derivative():
    with accelerated(True):
        q, k, v = leaves()
        first, = torch.autograd.grad(attend(q, k, v, dropout_p=0.2).square().sum(), q, create_graph=True)
        second, = torch.autograd.grad(first.square().sum(), q)
        assert second.isfinite().all() and second.norm() > 0 and ops.taken() == 1

    def checkpointed():
        q, k, v = leaves()
        torch.manual_seed(1)
        from torch.utils.checkpoint import checkpoint
        checkpoint(lambda *x: attend(*x, dropout_p=0.3), q, k, v, use_reentrant=False).square().sum().backward()
        return q.grad

    def plain():
        q, k, v = leaves()
        torch.manual_seed(1)
        attend(q, k, v, dropout_p=0.3).square().sum().backward()
        return q.grad
    with accelerated(True):
        assert torch.equal(checkpointed(), plain())


def trap_06_compiled():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = torch.nn.Linear(64, 192)

        def forward(self, x):
            q, k, v = (t.view(*x.shape[:2], 4, 16).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
            return attend(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)

    layer, x = Layer(), torch.randn(2, 48, 64)
    step = torch.compile(layer)

    def program():
        layer.zero_grad()
        y = step(x)
        y.square().sum().backward()
        return y.detach(), layer.qkv.weight.grad.clone()
    both(program, 1)  # one graph, compiled while off
    torch._dynamo.reset()
    with accelerated(True):
        while_on = program()
        assert ops.taken() == 1, ops.report()
    for a, b in zip(while_on, program()):  # compiled while on, run while off
        assert near(a, b)


def trap_08_stopped_between():
    q, k, v = leaves()
    with accelerated(True):
        y = attend(q, k, v, dropout_p=0.2)
    y.sum().backward()
    assert q.grad.isfinite().all()


def trap_09_no_warning():
    assert WARNED == [], WARNED
    run = subprocess.run([sys.executable, "-c", f"import torch; torch.ops.load_library({LIBRARY!r})"], capture_output=True,
                         text=True, check=True)
    assert run.stderr == "", run.stderr


def trap_12_not_reached():
    x = torch.randn(2, 10, 64)
    attention = torch.nn.MultiheadAttention(64, 4, batch_first=True)
    layer = torch.nn.TransformerEncoderLayer(64, 4, dropout=0.0, batch_first=True)

    def with_weights():
        return attention(x, x, x)

    def fast_path():
        with torch.no_grad():
            return attention.eval()(x, x, x, need_weights=False)[:1] + (layer.eval()(x),)

    def without_weights():
        return attention.train()(x, x, x, need_weights=False)[:1]

    def in_training():
        return [layer.train()(x)]

    def slow_path():
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            with torch.no_grad():
                return [layer.eval()(x)]
        finally:
            torch.backends.mha.set_fastpath_enabled(True)
    both(with_weights, 0)
    both(fast_path, 0)
    both(without_weights, 1)
    both(in_training, 1)
    both(slow_path, 1)
    torch._dynamo.reset()
    dropped = torch.compile(lambda q: attend(q, K, V, dropout_p=0.1))
    with accelerated(True):
        dropped(Q)
        assert ops.taken() == 0, ops.report()


def trap_12_scripted():
    @torch.jit.script
    def scripted(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    traced = torch.jit.trace(lambda q, k, v: attend(q, k, v, is_causal=True), (Q, K, V))
    for function in (scripted, traced):
        both(lambda: [function(Q, K, V)], 1)


def trap_13_one_runtime_and_hidden_symbols():
    with open("/proc/self/maps") as maps:
        loaded = {line.split()[-1] for line in maps if re.search(r"/lib(gomp|omp|iomp5)[^/]*$", line.strip())}
    if BY_GCC:
        assert len(loaded) == 1, loaded
    symbols = subprocess.run(["nm", "-D", "--defined-only", "-C", LIBRARY], capture_output=True, text=True, check=True).stdout
    shown = [line for line in symbols.splitlines() if "attentive::" in line and "typeinfo" not in line]
    assert not shown, shown[:5]
    flags = subprocess.run(["readelf", "-d", LIBRARY], capture_output=True, text=True, check=True).stdout
    assert "NODELETE" in flags, flags


failed = 0
for name, check in [(name, value) for name, value in globals().items() if name.startswith("trap_")]:
    try:
        check()
        print("passed", name, flush=True)
    except Exception:
        failed += 1
        print("FAILED", name, flush=True)
        traceback.print_exc(file=sys.stdout)
sys.exit(1 if failed else 0)

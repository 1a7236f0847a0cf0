"""The operators in PyTorch's machinery: its own checks, gradients, compiled and exported programs, autocast."""

import pytest
import torch

import attentive
import dense
from attentive import Mask, attention, attention_varlen

B, H, HKV, L, S, D = 2, 4, 2, 5, 7, 8
OPERATORS = torch.ops.attentive
TORCH_2_7 = torch.__version__.startswith("2.7.")


def qkv(dtype=torch.float32, grad=False, length=L, keys=S):
    torch.manual_seed(1)
    return [torch.randn(B, h, t, D, dtype=dtype, requires_grad=grad) for h, t in ((H, length), (HKV, keys), (HKV, keys))]


def packed(dtype=torch.float32, grad=False):
    torch.manual_seed(2)
    tokens = [torch.randn(t, h, D, dtype=dtype, requires_grad=grad) for h, t in ((H, 7), (HKV, 9), (HKV, 9))]
    return tokens + [torch.tensor([0, 3, 7]), torch.tensor([0, 4, 9])]


class TestOpcheck:
    """torch.library.opcheck: schema, registration of autograd, fake tensors, ahead-of-time dispatch with dynamic sizes."""

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
    @pytest.mark.parametrize("options", [
        {},
        {"dropout_p": 0.3, "dropout_key": 7, "causal": "bottom_right"},
        {"weights": "dropped", "logsumexp": True, "dropout_p": 0.3, "dropout_key": 7},
        {"bias": (H, L, S), "alibi_slopes": (H,), "sinks": (H,), "window_left": 3, "softcap": 2.0},
        {"align": "lengths", "key_lengths": [7, 4], "query_lengths": [5, 3], "logsumexp": True},
    ], ids=["plain", "dropout", "weights", "terms", "lengths"])
    def test_attention(self, options, dtype):
        options = dict(options)
        if "dropout_key" in options:
            options["dropout_key"] = torch.tensor(options["dropout_key"])
        for name in ("key_lengths", "query_lengths"):
            if name in options:
                options[name] = torch.tensor(options[name])
        if "bias" in options:
            for name in ("bias", "alibi_slopes", "sinks"):
                options[name] = torch.randn(options[name], dtype=dtype, requires_grad=True)
            options["bias"] = options["bias"].detach()[None].requires_grad_()
        # Two float64 or bfloat16 computations of one call differ by rounding where autograd composes the reference.
        tolerance = {} if dtype is not torch.bfloat16 else {"rtol": 2e-2, "atol": 2e-2}
        torch.library.opcheck(OPERATORS.attention.default, qkv(dtype, grad=True), options, **tolerance)

    @pytest.mark.parametrize("options", [
        {}, {"dropout_p": 0.3, "dropout_key": 7}, {"logsumexp": True, "causal": "bottom_right"}, {"sinks": (H,)},
    ], ids=["plain", "dropout", "logsumexp", "sinks"])
    def test_varlen(self, options):
        options = dict(options)
        if "dropout_key" in options:
            options["dropout_key"] = torch.tensor(options["dropout_key"])
        if "sinks" in options:
            options["sinks"] = torch.randn(H, requires_grad=True)
        torch.library.opcheck(OPERATORS.attention_varlen.default, packed(grad=True), options)

    def test_drawing(self):
        """A call that draws differs from its repetition, so ahead-of-time dispatch is not compared."""
        tests = ("test_schema", "test_faketensor", "test_autograd_registration")
        salt = torch.randperm(0)
        torch.library.opcheck(OPERATORS.draw_dropout_key.default, (salt,), test_utils=tests)
        torch.library.opcheck(OPERATORS.draw_dropout_state.default, (salt, 0.3, (B, H, L, S)), test_utils=tests)
        torch.library.opcheck(OPERATORS.draw_dropout_state.default, (salt, 0.3, (H,), *packed()[3:]), test_utils=tests)

    def test_only_the_operators_that_draw_are_random(self):
        for name in ("attention", "attention_varlen", "attention_backward", "attention_varlen_backward"):
            assert torch.Tag.nondeterministic_seeded not in getattr(OPERATORS, name).default.tags
        for name in ("draw_dropout_key", "draw_dropout_state"):
            assert torch.Tag.nondeterministic_seeded in getattr(OPERATORS, name).default.tags


class TestGradients:
    def test_gradcheck(self):
        q, k, v = qkv(torch.float64, grad=True)
        bias = torch.randn(L, S, dtype=torch.float64, requires_grad=True)
        slopes = torch.rand(H, dtype=torch.float64, requires_grad=True)
        sinks = torch.randn(H, dtype=torch.float64, requires_grad=True)

        def results(q, k, v, bias, slopes, sinks):
            return attention(q, k, v, mask=Mask.bias(bias), alibi_slopes=slopes, sinks=sinks, causal="bottom_right", softcap=2.0,
                             dropout_p=0.3, dropout_key=torch.tensor(3), weights="dropped", logsumexp=True)
        assert torch.autograd.gradcheck(results, (q, k, v, bias, slopes, sinks))

    def test_gradcheck_of_packed_sequences(self):
        *tokens, ends_q, ends_k = packed(torch.float64, grad=True)
        sinks = torch.randn(H, dtype=torch.float64, requires_grad=True)

        def results(q, k, v, sinks):
            return attention_varlen(q, k, v, ends_q, ends_k, sinks=sinks, causal="bottom_right", logsumexp=True)[::2]
        assert torch.autograd.gradcheck(results, (*tokens, sinks))

    def test_gradgradcheck(self):
        q, k, v = (x.detach()[:1, :2, :3, :4].clone().requires_grad_() for x in qkv(torch.float64))
        assert torch.autograd.gradgradcheck(lambda *x: attention(*x, causal="bottom_right"), (q, k, v))

    def test_the_kernel_twice(self):
        """Second derivatives of the float32 kernel are those of the definition in float64."""
        def second(dtype):
            q, k, v = (x.detach().to(dtype).requires_grad_() for x in qkv())
            first, = torch.autograd.grad(attention(q, k, v, causal="bottom_right").square().sum(), q, create_graph=True)
            return torch.autograd.grad(first.square().sum(), [q, k, v])
        for a, b in zip(second(torch.float32), second(torch.float64), strict=True):
            torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-5)


def turned(x):
    """The numbers of x with dimensions that lie in reverse order."""
    order = list(range(x.dim()))[::-1]
    return x.permute(order).contiguous().permute(order).clone(memory_format=torch.preserve_format)


def with_gaps(x):
    """The numbers of x between others in memory."""
    between = torch.full_like(x, torch.nan) if x.is_floating_point() else torch.zeros_like(x)
    return torch.stack([x, between], -1)[..., 0]


class TestSavedTensorHooks:
    """Hooks of saved tensors may hand back copies of any strides: no derivative changes."""

    @pytest.mark.parametrize("move", [torch.clone, turned, with_gaps], ids=lambda move: move.__name__)
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
    def test_derivatives(self, move, dtype):
        q, k, v = qkv(dtype, grad=True)
        *tokens, ends_q, ends_k = packed(dtype, grad=True)
        bias = torch.randn(1, H, L, S, dtype=dtype, requires_grad=True)
        slopes, sinks = (torch.rand(H, dtype=dtype, requires_grad=True) for _ in range(2))
        key = torch.tensor(5)
        terms = {"alibi_slopes": slopes, "sinks": sinks, "dropout_p": 0.2, "dropout_key": key, "logsumexp": True}
        mask = Mask.bias(bias) & Mask.key_lengths(torch.tensor([7, 4])) & (torch.rand(L, S) > 0.2)

        def merged(q, k, v):
            parts = [attention(q, k[:, :, own], v[:, :, own], logsumexp=True) for own in (slice(0, 3), slice(3, S))]
            return attentive.merge_attention([one.output for one in parts], [one.logsumexp for one in parts])

        def accelerated(q, k, v):
            with attentive.enabled():
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, bias, dropout_p=0.2, enable_gqa=True),
        more = [slopes, sinks]
        calls = {
            "attention": (lambda: attention(q, k, v, mask=mask, softcap=2.0, weights="dropped", **terms), [q, k, v, bias, *more]),
            "torch": (lambda: (attention(q, k, v, causal="bottom_right", backend="torch"),), [q, k, v]),
            "packed": (lambda: attention_varlen(*tokens, ends_q, ends_k, window=(2, 1), **terms)[::2], [*tokens, *more]),
            "merge_attention": (lambda: merged(q, k, v), [q, k, v]),
            "enable": (lambda: accelerated(q, k, v), [q, k, v, bias]),
        }
        for name, (call, leaves) in calls.items():
            def derivatives():
                torch.manual_seed(3)
                loss = sum(x.square().sum() for x in call())
                first = torch.autograd.grad(loss, leaves, retain_graph=True)
                graph = torch.autograd.grad(loss, leaves, create_graph=True)
                if name == "torch":  # which has no second derivative where the kernel computes it
                    return first
                return *first, *graph, *torch.autograd.grad(sum(x.square().sum() for x in graph), leaves)
            want = derivatives()
            with torch.autograd.graph.saved_tensors_hooks(move, lambda x: x):
                got = derivatives()
            for n, (a, b) in enumerate(zip(got, want, strict=True)):
                limit = (1e-11 if dtype is torch.float64 else 2e-5) * b.abs().max().item()
                assert (a - b).abs().max() <= limit, (name, n)


class TestMergeAttention:
    def parts(self, dtype=torch.float32, grad=False):
        q, k, v = (x.detach().requires_grad_(grad) for x in qkv(dtype))
        own = (slice(0, 3), slice(3, 4), slice(4, S))
        return q, k, v, [attention(q, k[:, :, at], v[:, :, at], logsumexp=True) for at in own]

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
    def test_numbers(self, dtype):
        q, k, v, parts = self.parts(dtype)
        y, lse = attentive.merge_attention([one.output for one in parts], [one.logsumexp for one in parts])
        want, _, want_lse = dense.attend(q.double(), k.double(), v.double())
        assert y.dtype is dtype and lse.dtype is (torch.float64 if dtype is torch.float64 else torch.float32)
        dense.close(y, want, dtype)
        dense.close(lse, want_lse, dtype)

    def test_a_part_of_minus_infinity_has_no_share(self):
        nothing, junk = torch.full((2, 3), -torch.inf), torch.full((2, 3, 4), torch.nan)
        leaves = [x.requires_grad_() for x in (junk, torch.randn(2, 3, 4), nothing, torch.randn(2, 3))]
        for outputs, sums in ((leaves[:2], leaves[2:]), ([junk, junk], [nothing, nothing])):
            y, lse = attentive.merge_attention(outputs, sums)
            if sums[1] is nothing:
                assert y.eq(0).all() and lse.eq(-torch.inf).all()
            else:
                assert y.equal(outputs[1]) and lse.equal(sums[1])
            for gradient in torch.autograd.grad(y.sum() + lse.sum(), [junk, nothing]):
                assert gradient.eq(0).all()

    def test_machinery(self):
        def whole(q, k, v):
            parts = [attention(q, k[:, :, at], v[:, :, at], logsumexp=True) for at in (slice(0, 3), slice(3, 99))]
            return attentive.merge_attention([one.output for one in parts], [one.logsumexp for one in parts])

        def leaves():
            return [x.detach().requires_grad_() for x in qkv(torch.float64)]
        assert torch.autograd.gradcheck(whole, leaves()) and torch.autograd.gradgradcheck(whole, leaves())
        _, _, _, parts = self.parts(torch.float64)
        outputs, sums = ([one[n].detach() for one in parts] for n in (0, 2))
        torch.library.opcheck(OPERATORS.merge_attention.default, ([x.clone().requires_grad_() for x in outputs], sums))
        merge = attentive.merge_attention
        want = merge(outputs, sums)
        for dynamic in (False, True):
            compiled = torch.compile(lambda *x: merge(x[:3], x[3:]), fullgraph=True, dynamic=dynamic)
            for got in (compiled(*outputs, *sums), compiled(*(x[:, :, 1:] for x in (*outputs, *sums)))):
                for a, b in zip(got, want, strict=True):
                    torch.testing.assert_close(a, b[:, :, -a.shape[2]:])
        gradient = torch.func.grad(lambda x: merge([x, *outputs[1:]], sums)[0].square().sum())(outputs[0])
        assert gradient.shape == outputs[0].shape and gradient.abs().max() > 0
        mapped = torch.func.vmap(lambda *x: merge(x[:3], x[3:]))(*outputs, *sums)
        torch.testing.assert_close(mapped, want)
        meta = merge([x.to("meta") for x in outputs], [x.to("meta") for x in sums])
        assert meta[0].shape == want[0].shape and meta[1].shape == want[1].shape
        with torch._subclasses.FakeTensorMode() as mode:
            fake = merge([mode.from_tensor(x) for x in outputs], [mode.from_tensor(x) for x in sums])
        assert fake[0].shape == want[0].shape and fake[1].dtype is torch.float64

    def test_errors(self):
        x, sums = torch.ones(2, 3, 4), torch.ones(2, 3)
        for outputs, logsumexps, message in (
            ([], [], "merge_attention: expected one part or more, got none"),
            ([x, x], [sums], "expected as many logsumexps as outputs, got 2 outputs and 1 logsumexps"),
            ([x], [x], r"expected a logsumexp \(..., Tq\) for an output of shape \[2, 3, 4\], got one of"),
            (7, [sums], "merge_attention: expected outputs of type List.Tensor., got"),
        ):
            with pytest.raises(TypeError if outputs == 7 else ValueError, match=message):
                attentive.merge_attention(outputs, logsumexps)


class Attend(torch.nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, q, k, v):
        return attention(q, k, v, **self.options)


def trained(module, arguments):
    leaves = [x.detach().clone().requires_grad_() for x in arguments]
    result = module(*leaves)
    output = result if isinstance(result, torch.Tensor) else result.output + result.logsumexp[..., None]
    return [output.detach(), *torch.autograd.grad(output.square().sum(), leaves)]


def assert_same(got, want):
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=5e-6)
        assert a.shape == b.shape and a.stride() == b.stride()


class TestCompile:
    @pytest.mark.parametrize("options", [
        {"causal": "bottom_right"},
        {"mask": Mask.key_lengths(torch.tensor([7, 4])) & Mask(torch.ones(L, S, dtype=torch.bool))},
        {"dropout_p": 0.3, "dropout_key": torch.tensor(5)},
        {"logsumexp": True, "softcap": 2.0, "window": (2, 1)},
        {"align": "lengths", "mask": Mask.key_lengths(torch.tensor([7, 4])) & Mask.query_lengths(torch.tensor([5, 3]))},
    ], ids=["causal", "masks", "dropout", "logsumexp", "lengths"])
    def test_forward_and_backward(self, options):
        module = Attend(**options)
        compiled = torch.compile(module, fullgraph=True)
        assert_same(trained(compiled, qkv()), trained(module, qkv()))

    def test_dynamic_sizes(self):
        from torch._inductor.compile_fx import compile_fx
        torch._dynamo.reset()
        graphs = []

        def counting(graph, inputs):
            graphs.append(graph)
            return compile_fx(graph, inputs)
        module = Attend(causal="bottom_right", logsumexp=True)
        compiled = torch.compile(module, fullgraph=True, dynamic=True, backend=counting)
        compilations = []
        for length, keys in ((5, 7), (6, 11), (9, 13), (9, 9)):
            arguments = qkv(length=length, keys=keys)
            assert_same(trained(compiled, arguments), trained(module, arguments))
            compilations.append(len(graphs))
        assert compilations[1:] == compilations[:-1]  # nothing is compiled again for other sizes

    def test_packed(self):
        *tokens, ends_q, ends_k = packed()
        compiled = torch.compile(lambda q, k, v: attention_varlen(q, k, v, ends_q, ends_k, causal="bottom_right"), fullgraph=True)
        want = trained(lambda q, k, v: attention_varlen(q, k, v, ends_q, ends_k, causal="bottom_right"), tokens)
        assert_same(trained(compiled, tokens), want)


def drawn(q, k, v):
    return attention(q, k, v, dropout_p=0.5)


def drawn_by_key(q, k, v):
    return attention(q, k, v, dropout_p=0.5, dropout_key=attentive.draw_dropout_key())


def drawn_as_by_nn_dropout(q, k, v):
    return attention(q, k, v, dropout_p=0.5, dropout_stream="aten")


ENDS = torch.tensor([0, 4, 10]), torch.tensor([0, 8, 14])


def drawn_packed(q, k, v, stream="any"):
    q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, v))
    return attention_varlen(q, k, v, *ENDS, dropout_p=0.5, dropout_stream=stream)


def drawn_packed_as_by_nn_dropout(q, k, v):
    return drawn_packed(q, k, v, "aten")


every_drawing_call = pytest.mark.parametrize(
    "call", [drawn, drawn_by_key, drawn_as_by_nn_dropout, drawn_packed, drawn_packed_as_by_nn_dropout])


def assert_one_mask(output, v):
    """The output is linear in the values, so its sum comes from the gradient if both passes drop the same weights."""
    output.sum().backward()
    torch.testing.assert_close((v.grad * v).sum(), output.sum(), rtol=1e-4, atol=1e-3)


@pytest.fixture
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("fresh")
class TestDrawingPrograms:
    """Calls with equal inputs draw twice, whoever rewrites the program; torch.manual_seed gives the bits of eager calls."""

    @every_drawing_call
    @pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
    @pytest.mark.parametrize("backend", ["aot_eager", "aot_eager_decomp_partition", "inductor"])
    def test_compiled(self, backend, grad, call):
        inputs = qkv(grad=grad)
        program = lambda *inputs: (call(*inputs), call(*inputs))
        compiled = torch.compile(program, fullgraph=True, backend=backend)
        torch.manual_seed(4)
        first, second = compiled(*inputs)
        again, _ = compiled(*inputs)
        torch.manual_seed(4)
        want = program(*inputs)
        assert not first.equal(second) and not first.equal(again) and not second.equal(again)
        torch.testing.assert_close((first, second), want)
        if grad:
            assert_one_mask(first + 2 * second, inputs[2])

    @every_drawing_call
    def test_compiled_beside_others(self, call):
        """Under fallback_random, a compiled program has the bits of the eager one, in both passes."""
        import torch._inductor.config as inductor
        inputs = qkv(grad=True)

        def program(q, k, v):
            total = 0
            for _ in range(3):
                y = call(torch.nn.functional.dropout(q, 0.2), k, torch.nn.functional.dropout(v, 0.3))
                total = total + torch.rand(y.shape) * y  # a compiled rand_like of PyTorch 2.7 takes other strides
            return total
        results = []
        with inductor.patch(fallback_random=True):
            for one in (program, torch.compile(program, fullgraph=True)):
                torch.manual_seed(6)
                y = one(*inputs)
                results.append([y, *torch.autograd.grad(y.square().sum(), inputs), torch.get_rng_state()])
        torch.testing.assert_close(results[1], results[0])

    @pytest.mark.parametrize("kept", [False, True])
    @pytest.mark.parametrize("budget", [0.5, 0.0])
    def test_memory_budget(self, budget, kept):
        """A compiled backward pass that would draw anew is refused; one that keeps the draws has the eager gradients."""
        import torch._functorch.config as config
        keeps = {"is_non_builtin_to_include": kept} if hasattr(config, "is_non_builtin_to_include") else {}
        if kept and not keeps:
            pytest.skip("this PyTorch has no setting that keeps the results of operators of other libraries")
        weight = torch.randn(8, 8, requires_grad=True)

        def program(x):
            for _ in range(2):
                x = x + torch.relu(attention(x @ weight, x @ weight.T, x, dropout_p=0.4)) @ weight
            return x.square().sum()
        x = torch.randn(2, 3, 16, 8, requires_grad=True)
        torch.manual_seed(4)
        want = torch.autograd.grad(program(x), (x, weight))
        with config.patch(activation_memory_budget=budget, **keeps):
            compiled = torch.compile(program, fullgraph=True, backend="aot_eager_decomp_partition")
            torch.manual_seed(4)
            if budget > 0 and kept:
                torch.testing.assert_close(torch.autograd.grad(compiled(x), (x, weight)), want)
            else:
                text = "Observed exception" if TORCH_2_7 else "expected activation_memory_budget = 1, or a budget above 0 with"
                with pytest.raises(Exception, match=text):
                    compiled(x)

    @every_drawing_call
    @pytest.mark.parametrize("use_reentrant", [False, True], ids=["hooks", "reentrant"])
    @pytest.mark.parametrize("backend", [None, "aot_eager", "inductor"])
    def test_checkpointed(self, backend, use_reentrant, call):
        from torch.utils.checkpoint import checkpoint
        inputs = qkv(grad=True)
        program = lambda *x: checkpoint(lambda *x: call(*x) + 2 * call(*x), *x, use_reentrant=use_reentrant)
        if backend:
            program = torch.compile(program, fullgraph=True, backend=backend)
        torch.manual_seed(4)
        y = program(*inputs)
        torch.manual_seed(4)
        torch.testing.assert_close(y, call(*inputs) + 2 * call(*inputs))
        assert_one_mask(y, inputs[2])

    @every_drawing_call
    def test_exported(self, call, tmp_path):
        class Twice(torch.nn.Module):
            def forward(self, q, k, v):
                return call(q, k, v), call(q, k, v)
        inputs = tuple(qkv())
        torch.export.save(torch.export.export(Twice(), inputs, strict=False), tmp_path / "twice.pt2")
        program = torch.export.load(tmp_path / "twice.pt2")
        package = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "twice_package.pt2"))
        torch.manual_seed(4)
        want = Twice()(*inputs)
        for one in (program.module(), program.run_decompositions().module(), torch.compile(program.module()),
                    torch._inductor.aoti_load_package(package)):
            torch.manual_seed(4)
            first, second = one(*inputs)
            assert not first.equal(second)
            torch.testing.assert_close((first, second), want)
            assert not first.equal(one(*inputs)[0])

    @every_drawing_call
    def test_traced_to_torchscript(self, call):
        inputs = tuple(qkv())
        traced = torch.jit.trace(lambda *x: (call(*x), call(*x)), inputs, check_trace=False)
        for _ in range(4):  # the executor changes its graph during the first calls
            first, second = traced(*inputs)
            assert not first.equal(second)


def exported():
    queries, keys = torch.export.Dim("queries", min=2, max=4096), torch.export.Dim("keys", min=2, max=4096)
    sizes = ({2: queries}, {2: keys}, {2: keys})
    return torch.export.export(Attend(causal="bottom_right", logsumexp=True), tuple(qkv()), dynamic_shapes=sizes)


class TestExport:
    def test_exported_program(self, tmp_path):
        torch.export.save(exported(), tmp_path / "attend.pt2")
        program = torch.export.load(tmp_path / "attend.pt2")
        assert "attentive.attention" in program.graph_module.code
        for length, keys in ((5, 7), (8, 12)):
            arguments = qkv(length=length, keys=keys)
            got, want = program.module()(*arguments), attention(*arguments, causal="bottom_right", logsumexp=True)
            assert got[0].equal(want.output) and got[-1].equal(want.logsumexp)

    def test_aotinductor(self, tmp_path):
        package = torch._inductor.aoti_compile_and_package(exported(), package_path=str(tmp_path / "attend.pt2"))
        program = torch._inductor.aoti_load_package(package)
        for length, keys in ((5, 7), (8, 12)):
            arguments = qkv(length=length, keys=keys)
            got, want = program(*arguments), attention(*arguments, causal="bottom_right", logsumexp=True)
            torch.testing.assert_close(got[0], want.output)
            torch.testing.assert_close(got[-1], want.logsumexp)


def test_autocast():
    q, k, v = qkv(grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y = attention(q, k, v, causal="bottom_right")
        assert y.dtype == torch.bfloat16
        assert y.equal(attention(q.bfloat16(), k.bfloat16(), v.bfloat16(), causal="bottom_right"))
    y.float().square().sum().backward()
    assert q.grad.dtype == torch.float32
    want = trained(Attend(causal="bottom_right"), [x.detach().double() for x in (q, k, v)])[1]
    dense.close(q.grad, want, torch.bfloat16)


def test_meta_tensors():
    q, k, v = (x.to("meta") for x in qkv())
    y = attention(q, k, v)
    assert y.device.type == "meta" and y.shape == (B, H, L, D)


def test_heads_merge_without_a_copy():
    y = attention(*qkv())
    assert y.transpose(1, 2).is_contiguous()
    merged = y.transpose(1, 2).flatten(2)
    assert merged.data_ptr() == y.data_ptr()


def test_inference_and_no_grad():
    q, k, v = qkv(grad=True)
    want = attention(q, k, v)
    assert want.requires_grad
    with torch.no_grad():
        got = attention(q, k, v)
        assert not got.requires_grad
    with torch.inference_mode():
        assert attention(q.clone(), k.clone(), v.clone()).equal(got)
    dense.close(got, want, torch.float32)  # without a graph, few queries take another path
    assert attentive.attention(q, k.detach(), v.detach()).requires_grad


class TestTransforms:
    """A transform that the operators have no rule for is an error, never another number."""

    def test_forward_mode(self):
        from torch.autograd import forward_ad
        q, k, v = qkv()
        for name, x in (("q", q), ("k", k), ("v", v)):
            with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="does not compute forward-mode derivatives"):
                arguments = {"q": q, "k": k, "v": v, name: forward_ad.make_dual(x, torch.ones_like(x))}
                attention(**arguments)
        with pytest.raises(NotImplementedError, match="does not compute forward-mode derivatives"):
            torch.func.jvp(lambda q: attention(q, k, v), (q,), (q,))
        with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="attention_varlen: the operator"):
            *tokens, ends_q, ends_k = packed()
            attention_varlen(forward_ad.make_dual(tokens[0], tokens[0]), *tokens[1:], ends_q, ends_k)

    def test_functional_gradient(self):
        q, k, v = qkv()
        with pytest.raises(RuntimeError, match="functorch"):
            torch.func.grad(lambda q: attention(q, k, v).sum())(q)

    @every_drawing_call
    def test_randomness_of_vmap(self, call):
        items = [torch.stack([x, x, x]) for x in qkv()]
        with pytest.raises(RuntimeError, match="randomness error mode"):
            torch.func.vmap(call)(*items)
        torch.manual_seed(4)
        same = torch.func.vmap(call, randomness="same")(*items)
        torch.manual_seed(4)
        different = torch.func.vmap(call, randomness="different")(*items)
        torch.manual_seed(4)
        want = [call(*(x[n] for x in items)) for n in range(3)]
        for n in range(3):
            torch.testing.assert_close(same[n], want[0])
            torch.testing.assert_close(different[n], want[n])
            assert not want[n].equal(want[n - 1])

    @every_drawing_call
    @pytest.mark.usefixtures("fresh")
    def test_randomness_of_a_compiled_vmap(self, call):
        items = [torch.stack([x, x]) for x in qkv()]
        mapped = lambda randomness: torch.compile(
            lambda *x: torch.func.vmap(call, randomness=randomness)(*x), fullgraph=True, backend="aot_eager")(*items)
        same, different = mapped("same"), mapped("different")
        torch.testing.assert_close(same[0], same[1])
        assert not different[0].equal(different[1])
        with pytest.raises(Exception, match="randomness error mode"):
            mapped("error")

    def test_vmap_of_a_call_that_draws_nothing(self):
        items = [torch.stack([x, x]) for x in qkv()]
        for options in ({"dropout_p": 0.5, "dropout_key": torch.tensor(3)}, {"dropout_p": 0.0}, {"dropout_p": 1.0}):
            got = torch.func.vmap(lambda *x: attention(*x, **options))(*items)
            torch.testing.assert_close(got[1], attention(*qkv(), **options))

    def test_vmap(self):
        q, k, v = (torch.stack([x, x + 1, x * 2]) for x in qkv())
        got = torch.func.vmap(lambda q, k, v: attention(q, k, v, causal="bottom_right"))(q, k, v)
        for n in range(3):
            dense.close(got[n], attention(q[n], k[n], v[n], causal="bottom_right"), torch.float32)

"""The gated delta rule: against its recurrence and the functions of ``transformers``, and in PyTorch's machinery."""

import pytest
import torch

import attentive
from attentive import gated_delta_rule, gated_delta_rule_

B, HK, HV, T, DK, DV = 2, 2, 4, 70, 8, 6
OPERATORS = torch.ops.attentive
NAMES = ("q", "k", "v", "gate", "beta", "state")


def drawn(dtype=torch.float32, channels=False, length=T, batch=B, sequences=None, heads=HV, grad=False):
    torch.manual_seed(1)
    numbers = torch.float64 if dtype is torch.float64 else torch.float32
    shapes = {"q": (batch, HK, length, DK), "k": (batch, HK, length, DK), "v": (batch, heads, length, DV),
              "gate": (batch, heads, length, DK) if channels else (batch, heads, length), "beta": (batch, heads, length),
              "state": (sequences or batch, heads, DK, DV)}
    x = {name: torch.randn(shape, dtype=torch.float64) for name, shape in shapes.items()}
    x["gate"], x["beta"] = -0.2 * x["gate"].sigmoid(), x["beta"].sigmoid()
    return [x[name].to(dtype if name in ("q", "k", "v") else numbers).requires_grad_(grad) for name in NAMES]


def recurrence(q, k, v, gate=None, beta=None, state=None, *, scale=None, normalize_eps=None, delta=True, sequence_offsets=None):
    """The definition, token by token, in the dtype of its arguments."""
    if sequence_offsets is not None:
        ends = sequence_offsets.tolist()
        parts = []
        for n, (first, last) in enumerate(zip(ends, ends[1:], strict=False)):
            cut = [x if x is None else x[:, :, first:last] for x in (q, k, v, gate, beta)]
            parts.append(recurrence(*cut, state if state is None else state[n:n + 1], scale=scale, normalize_eps=normalize_eps, delta=delta))
        return torch.cat([y for y, _ in parts], 2), torch.cat([last for _, last in parts])
    if normalize_eps is not None:
        q, k = (x / (x.square().sum(-1, keepdim=True) + normalize_eps).sqrt() for x in (q, k))
    q, k = (x.repeat_interleave(v.shape[1] // x.shape[1], 1) for x in (q, k))
    gate = torch.zeros(v.shape[:3], dtype=v.dtype) if gate is None else gate
    gate = gate if gate.dim() == 4 else gate[..., None]
    beta = torch.ones(v.shape[:3], dtype=v.dtype) if beta is None else beta
    s = v.new_zeros(*v.shape[:2], q.shape[3], v.shape[3]) if state is None else state
    rows = [v[:, :, :0]]
    for t in range(v.shape[2]):
        s = gate[:, :, t, :, None].exp() * s
        found = torch.einsum("bhd,bhdm->bhm", k[:, :, t], s) if delta else 0.0
        s = s + torch.einsum("bhd,bhm->bhdm", k[:, :, t], beta[:, :, t, None] * (v[:, :, t] - found))
        rows.append(torch.einsum("bhd,bhdm->bhm", q[:, :, t] * (q.shape[3] ** -0.5 if scale is None else scale), s)[:, :, None])
    return torch.cat(rows, 2), s


def with_gradients(function, arguments, **options):
    leaves = [x if x is None else x.detach().requires_grad_() for x in arguments]
    results = function(*leaves, **options)
    loss = sum((x * torch.linspace(-1, 1, x.numel(), dtype=x.dtype).reshape(x.shape)).sum() for x in results if x.numel())
    given = [x for x in leaves if x is not None]
    return [*results, *(torch.autograd.grad(loss, given, allow_unused=True) if torch.is_tensor(loss) else [])]


def assert_near(got, want, tolerance):
    for n, (a, b) in enumerate(zip(got, want, strict=True)):
        assert a.shape == b.shape
        assert (a.double() - b.double()).abs().max() <= tolerance * max(b.double().abs().max(), 1e-3) if a.numel() else True, n


def chunk_loop(function, normalized=True):
    """A function of ``transformers`` with the arguments of ``gated_delta_rule``."""
    def called(q, k, v, gate, beta, state):
        y, last = function(*(x.transpose(1, 2) for x in (q, k, v, gate, beta)), initial_state=state, output_final_state=True,
                           use_qk_l2norm_in_kernel=normalized)
        return y.transpose(1, 2), last
    return called


OPTIONS = {
    "normalised": dict(normalize_eps=1e-6),
    "channels": dict(normalize_eps=1e-6, channels=True),
    "plain": dict(normalize_eps=1e-6, absent=("gate", "beta", "state")),
    "linear": dict(delta=False, scale=0.3, absent=("beta",)),
    "packed": dict(normalize_eps=1e-6, offsets=[0, 3, 3, T]),
    "one token": dict(normalize_eps=1e-6, length=1),
    "no token": dict(length=0),
}


def call_of(name, dtype=torch.float32):
    options = dict(OPTIONS[name])
    offsets, absent = options.pop("offsets", None), options.pop("absent", ())
    shape = {"channels": options.pop("channels", False), "length": options.pop("length", T)}
    if offsets is not None:
        shape.update(batch=1, sequences=len(offsets) - 1)
        options["sequence_offsets"] = torch.tensor(offsets)
    arguments = [None if name in absent else x for name, x in zip(NAMES, drawn(dtype, **shape), strict=True)]
    return arguments, options


class TestNumbers:
    @pytest.mark.parametrize("name", OPTIONS)
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
    def test_recurrence(self, name, dtype):
        arguments, options = call_of(name, dtype)
        got = with_gradients(gated_delta_rule, arguments, **options)
        assert got[0].dtype is dtype and got[1].dtype is (torch.float64 if dtype is torch.float64 else torch.float32)
        for x, gradient in zip([x for x in arguments if x is not None], got[2:], strict=True):
            assert gradient.dtype is x.dtype and gradient.shape == x.shape
        want = with_gradients(recurrence, [x if x is None else x.double() for x in arguments], **options)
        want = [torch.zeros_like(a) if b is None else b for a, b in zip(got, want, strict=True)]
        limit = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}[dtype]
        assert_near(got, want, limit)

    def test_chunks_of_one_sequence(self):
        """The state that a call returns continues it."""
        q, k, v, gate, beta, state = drawn()
        whole = gated_delta_rule(q, k, v, gate, beta, state, normalize_eps=1e-6)
        rows = []
        for first, last in ((0, 7), (7, 8), (8, T)):
            y, state = gated_delta_rule(*(x[:, :, first:last] for x in (q, k, v, gate, beta)), state, normalize_eps=1e-6)
            rows.append(y)
        assert_near([torch.cat(rows, 2), state], whole, 2e-6)

    def test_gates_of_minus_infinity(self):
        q, k, v, gate, beta, state = drawn()
        gate[:, :, 5] = -torch.inf
        state[:] = 1e30
        y = gated_delta_rule(q, k, v, gate, beta, state, normalize_eps=1e-6)[0][:, :, 5:]
        want = gated_delta_rule(*(x[:, :, 5:] for x in (q, k, v, gate, beta)), normalize_eps=1e-6)[0]
        assert_near([y], [want], 1e-6)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
    def test_no_result_is_an_argument(self, dtype):
        """An operator returns none, even if no token changes the state."""
        arguments = drawn(dtype, length=0)
        found = gated_delta_rule(*arguments)[1]
        assert found.equal(arguments[5]) and found.data_ptr() != arguments[5].data_ptr()

    def test_strides(self):
        """Tensors as ``transformers`` has them, (B, T, H, D)."""
        arguments = drawn()
        turned = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in arguments[:5]] + arguments[5:]
        got, want = (with_gradients(gated_delta_rule, x, normalize_eps=1e-6) for x in (turned, arguments))
        for a, b in zip(got, want, strict=True):
            assert a.equal(b)
        found = OPERATORS.gated_delta_rule_backward(torch.randn_like(got[0]), None, *turned)
        meta = OPERATORS.gated_delta_rule_backward(got[0].detach().to("meta"), None, *(x.to("meta") for x in turned))
        assert [x.stride() for x in found] == [x.stride() for x in meta] == [x.stride() for x in turned]


class TestTransformers:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
    def test_torch_chunk_gated_delta_rule(self, dtype):
        qwen = pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next")
        self.compare(getattr(qwen, "torch_chunk_gated_delta_rule"), drawn(dtype), dtype)

    def test_chunk_kimi_delta_attention(self):
        kimi = pytest.importorskip("transformers.models.kimi_linear.modeling_kimi_linear")
        arguments = drawn(channels=True, heads=HK)
        self.compare(kimi.chunk_kimi_delta_attention, arguments, torch.float32)

    @pytest.mark.parametrize("normalized", [False, True])
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
    def test_error_of_half_types(self, dtype, normalized):
        """At most twice that of the chunk loop in this dtype, or that of float32, against the recurrence in float64."""
        qwen = pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next")
        torch.manual_seed(3)
        shapes = {"q": (1, 2, 1024, 32), "k": (1, 2, 1024, 32), "v": (1, 2, 1024, 24), "gate": (1, 2, 1024), "beta": (1, 2, 1024), "state": (1, 2, 32, 24)}
        x = {name: torch.randn(shape) for name, shape in shapes.items()}
        x["gate"], x["beta"] = -0.2 * torch.rand(shapes["gate"]), torch.rand(shapes["beta"])
        if not normalized:
            x["q"], x["k"] = (torch.nn.functional.normalize(x[name], dim=-1) for name in ("q", "k"))
        arguments = [x[name].to(torch.float32 if name in ("gate", "state") else dtype) for name in NAMES]
        incoming = [torch.randn(shapes["v"]).to(dtype), torch.randn(shapes["state"])]
        options = {"normalize_eps": 1e-6} if normalized else {}

        def results(function, numbers=None):
            leaves = [x.to(numbers).requires_grad_() for x in arguments] if numbers else [x.clone().requires_grad_() for x in arguments]
            found = function(*leaves)
            return [*found, *torch.autograd.grad(found, leaves, [g.to(y.dtype) for g, y in zip(incoming, found, strict=True)])]

        want = results(lambda *x: recurrence(*x, **options), torch.float64)
        ours = results(lambda *x: gated_delta_rule(*x, **options))
        theirs = results(chunk_loop(qwen.torch_chunk_gated_delta_rule, normalized))
        for n, (a, b, c) in enumerate(zip(ours, theirs, want, strict=True)):
            of_a, of_b = (((y.double() - c).abs().max() / c.abs().max()).item() for y in (a, b))
            assert a.dtype is b.dtype
            assert of_a <= max(2 * of_b, 2e-6 if n < 2 else 1e-5), (n, of_a, of_b)

    @staticmethod
    def compare(function, arguments, dtype):
        want = with_gradients(chunk_loop(function), arguments)
        got = with_gradients(gated_delta_rule, arguments, normalize_eps=1e-6)
        assert_near(got, want, 2e-5 if dtype is torch.float32 else 2e-2)


class TestMachinery:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
    @pytest.mark.parametrize("name", [name for name in OPTIONS if name != "no token"])
    def test_opcheck(self, name, dtype):
        arguments, options = call_of(name, dtype)
        offsets = options.pop("sequence_offsets", None)
        leaves = [x if x is None else x.clone().requires_grad_() for x in arguments]
        tolerance = {} if dtype is not torch.bfloat16 else {"rtol": 2e-2, "atol": 2e-2}
        torch.library.opcheck(OPERATORS.gated_delta_rule.default, (*leaves, offsets), options, **tolerance)
        y, state = gated_delta_rule(*arguments, sequence_offsets=offsets, **options)
        for incoming in ((torch.randn_like(y), torch.randn_like(state)), (torch.randn_like(y), None), (None, torch.randn_like(state))):
            torch.library.opcheck(OPERATORS.gated_delta_rule_backward.default, (*incoming, *arguments, offsets), options, **tolerance)

    @pytest.mark.parametrize("channels", [False, True])
    def test_second_derivatives(self, channels):
        small = drawn(torch.float64, channels=channels, length=10, batch=1, grad=True)
        for check in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
            assert check(lambda *x: gated_delta_rule(*x, normalize_eps=1e-6), small, fast_mode=True)

    def test_second_derivatives_of_the_kernel(self):
        def second(dtype):
            x = [x.to(dtype).requires_grad_() for x in drawn(length=10)]
            y, state = gated_delta_rule(*x, normalize_eps=1e-6)
            first = torch.autograd.grad(y.square().sum() + state.square().sum(), x, create_graph=True)
            return torch.autograd.grad(sum(one.square().sum() for one in first), x)
        assert_near(second(torch.float32), second(torch.float64), 1e-4)

    @pytest.mark.parametrize(("name", "backend"), [
        ("normalised", "inductor"), *((name, "aot_eager") for name in ("normalised", "channels", "plain", "packed")),
    ])  # fmt: skip
    def test_compile(self, name, backend):
        torch._dynamo.reset()
        arguments, options = call_of(name)
        compiled = torch.compile(lambda *x: gated_delta_rule(*(y if y is None else y * 1.0 for y in x), **options),
                                 fullgraph=True, backend=backend)
        assert_near(with_gradients(compiled, arguments), with_gradients(gated_delta_rule, arguments, **options), 1e-6)

    def test_dynamic_sizes(self):
        torch._dynamo.reset()
        compiled = torch.compile(lambda *x: gated_delta_rule(*x, normalize_eps=1e-6), fullgraph=True, dynamic=True)
        for length, batch in ((T, 5), (33, 3), (17, 7)):  # PyTorch takes sizes that are equal at first for one
            arguments = drawn(length=length, batch=batch)
            want = with_gradients(gated_delta_rule, arguments, normalize_eps=1e-6)
            with torch.compiler.set_stance("default" if length == T else "fail_on_recompile"):
                assert_near(with_gradients(compiled, arguments), want, 1e-6)

    def test_export(self):
        class Model(torch.nn.Module):
            def forward(self, *x):
                return gated_delta_rule(*x, normalize_eps=1e-6)
        arguments = tuple(drawn())
        exported = torch.export.export(Model(), arguments)
        assert "attentive.gated_delta_rule" in exported.graph_module.code
        assert_near(exported.module()(*arguments), Model()(*arguments), 0.0)

    @pytest.mark.parametrize("dims", [(0,) * 6, (1, 0, 2, 0, 0, 0), (0, None, 0, None, None, 0), (None,) * 3 + (0, None, None)], ids=str)
    def test_vmap(self, dims):
        arguments = drawn()
        mapped = [x if dim is None else torch.stack([x, 0.5 * x, x * x.sigmoid()], dim) for x, dim in zip(arguments, dims, strict=True)]
        got = torch.func.vmap(lambda *x: gated_delta_rule(*x, normalize_eps=1e-6), in_dims=dims)(*mapped)
        for n in range(3):
            item = [x if dim is None else x.select(dim, n) for x, dim in zip(mapped, dims, strict=True)]
            assert_near([x[n] for x in got], gated_delta_rule(*item, normalize_eps=1e-6), 1e-6)

    def test_vmap_of_packed_sequences(self):
        arguments, options = call_of("packed")
        q = torch.stack([arguments[0], -arguments[0]])
        got = torch.func.vmap(lambda q: gated_delta_rule(q, *arguments[1:], **options))(q)
        for n in range(2):
            assert_near([x[n] for x in got], gated_delta_rule(q[n], *arguments[1:], **options), 1e-6)

    @pytest.mark.parametrize("name", ["normalised", "packed"])
    def test_torch_func(self, name):
        arguments, options = call_of(name)
        def loss(*x):
            y, state = gated_delta_rule(*x, **options)
            return y.square().sum() + state.sin().sum()
        got = torch.func.grad(loss, argnums=tuple(range(6)))(*arguments)
        leaves = [x.clone().requires_grad_() for x in arguments]
        assert_near(got, torch.autograd.grad(loss(*leaves), leaves), 1e-5)
        if name != "packed":
            mapped = torch.func.vmap(torch.func.grad(loss), in_dims=(0,) + (None,) * 5)(torch.stack([arguments[0]] * 2), *arguments[1:])
            assert_near([mapped[1]], [got[0]], 1e-5)

    def test_gradients_of_a_mapped_call(self):
        arguments = drawn(grad=True)
        y = torch.func.vmap(lambda q: gated_delta_rule(q, *arguments[1:], normalize_eps=1e-6)[0])(torch.stack([arguments[0]] * 2))
        want = gated_delta_rule(*arguments, normalize_eps=1e-6)[0]
        got, want = (torch.autograd.grad(x.square().sum(), arguments[:5]) for x in (y, want))
        assert_near(got, [2 * x for x in want], 1e-5)

    @pytest.mark.parametrize("turned", [False, True])
    def test_without_memory(self, turned):
        arguments, options = call_of("packed")
        if turned:
            arguments[:3] = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in arguments[:3])
        want = gated_delta_rule(*arguments, **options)
        meta = gated_delta_rule(*(x.to("meta") for x in arguments), **{**options, "sequence_offsets": torch.empty(4, dtype=torch.int64, device="meta")})
        with torch._subclasses.FakeTensorMode() as mode:
            fake = gated_delta_rule(*map(mode.from_tensor, arguments), **{**options, "sequence_offsets": mode.from_tensor(options["sequence_offsets"])})
        for found in (meta, fake):
            assert [(x.shape, x.dtype, x.stride()) for x in found] == [(x.shape, x.dtype, x.stride()) for x in want]

    def test_autocast(self):
        arguments = drawn(grad=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y, state = gated_delta_rule(*arguments, normalize_eps=1e-6)
        assert y.dtype is torch.bfloat16 and state.dtype is torch.float32
        half = [x.bfloat16() for x in arguments[:3]]
        assert y.equal(gated_delta_rule(*half, *arguments[3:], normalize_eps=1e-6)[0])
        y.sum().backward()
        assert all(x.grad.dtype is torch.float32 for x in arguments)

    def test_threads(self):
        arguments = drawn()
        results = []
        for threads in (1, 2):
            before = torch.get_num_threads()
            torch.set_num_threads(threads)
            try:
                results.append(with_gradients(gated_delta_rule, arguments, normalize_eps=1e-6))
            finally:
                torch.set_num_threads(before)
        assert all(a.equal(b) for a, b in zip(*results, strict=True))

    def test_saved_tensor_hooks(self):
        arguments = drawn()
        def turned(x):
            order = list(range(x.dim()))[::-1]
            return x.permute(order).contiguous().permute(order)
        want = with_gradients(gated_delta_rule, arguments, normalize_eps=1e-6)
        with torch.autograd.graph.saved_tensors_hooks(turned, lambda x: x):
            got = with_gradients(gated_delta_rule, arguments, normalize_eps=1e-6)
        assert_near(got, want, 1e-6)

    def test_forward_mode_is_refused(self):
        arguments = drawn()
        with pytest.raises(NotImplementedError, match="gated_delta_rule: the operator does not compute forward-mode"):
            torch.func.jvp(lambda q: gated_delta_rule(q, *arguments[1:])[0], tuple(arguments[:1]), (torch.ones_like(arguments[0]),))


class TestErrors:
    @pytest.mark.parametrize(("change", "error", "message"), [
        ({"q": 7}, TypeError, "gated_delta_rule: expected q, k and v to be tensors, got int"),
        ({"q": torch.ones(2, 3)}, ValueError, r"gated_delta_rule: expected q of shape \(B, Hk, T, Dk\), got \(2, 3\)"),
        ({"k": torch.ones(B, HK, T, DK + 1)}, ValueError, r"expected k like q of shape \(2, 2, 70, 8\), got \(2, 2, 70, 9\)"),
        ({"v": torch.ones(B, 3, T, DV)}, ValueError, "expected a multiple of the 2 heads of q as heads of v, got 3"),
        ({"v": torch.ones(B, HV, T, DV, dtype=torch.float64)}, TypeError, "expected q of dtype Double like v, got Float"),
        ({"gate": torch.ones(B, HV)}, ValueError, r"expected gate of shape \(2, 4, 70\), or with 8 channels, got \(2, 4\)"),
        ({"beta": torch.ones(B, HV)}, ValueError, r"expected beta as a number per token of shape \(2, 4, 70\), got \(2, 4\)"),
        ({"beta": torch.ones(B, HV, T, dtype=torch.int64)}, TypeError, "expected beta"),
        ({"state": torch.ones(B, HV, DV, DK)}, ValueError, r"expected state as a matrix per head of shape \(2, 4, 8, 6\)"),
        ({"scale": float("inf")}, ValueError, "expected scale to be finite, got inf"),
        ({"normalize_eps": -1.0}, ValueError, "expected normalize_eps to be finite and not negative, got -1"),
        ({"sequence_offsets": torch.tensor([0, T])}, ValueError, "expected one row of packed sequences with sequence_offsets, got a batch of 2"),
        ({"scale": "big"}, TypeError, "gated_delta_rule: expected scale of type Optional.float., got str"),
        ({"beta": [1.0]}, TypeError, "gated_delta_rule: expected beta of type Optional.Tensor., got list"),
    ])  # fmt: skip
    def test_names(self, change, error, message):
        arguments = dict(zip(NAMES, drawn(grad=True), strict=True))
        with pytest.raises(error, match=message):
            gated_delta_rule(**{**arguments, **change})

    def test_offsets(self):
        arguments, _ = call_of("packed")
        for offsets, error, message in (
            (torch.tensor([0, 3, 2, T]), ValueError, "sequence_offsets never to decrease, got 3 before 2"),
            (torch.tensor([0, 3, 3, T + 1]), ValueError, "sequence_offsets to end at 70"),
            (torch.tensor([0.0, T]), TypeError, "sequence_offsets of dtype Long"),
        ):
            with pytest.raises(error, match=message):
                gated_delta_rule(*arguments, sequence_offsets=offsets)

    def test_shapes_without_memory(self):
        with pytest.raises(ValueError, match="gated_delta_rule: expected q, k and v of four dimensions, got 2, 4 and 4"):
            x = torch.ones(1, 2, 3, 4, device="meta")
            gated_delta_rule(x[0, 0], x, x)


class TestInPlace:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
    def test_equals_gated_delta_rule(self, dtype):
        for length in (0, 1, 5, T):
            *x, state = drawn(dtype, length=length)
            want, last = gated_delta_rule(*x, state, normalize_eps=1e-6)
            version = state._version
            got = gated_delta_rule_(state, *x, normalize_eps=1e-6)
            assert got.dtype is want.dtype and (state._version > version or length == 0)
            assert_near([got, state], [want, last], 1e-2 if dtype is torch.bfloat16 else 1e-5)

    def test_packed_sequences(self):
        (*x, state), options = call_of("packed")
        want, last = gated_delta_rule(*x, state, **options)
        assert_near([gated_delta_rule_(state, *x, **options), state], [want, last], 1e-5)

    def test_autocast(self):
        *x, state = drawn()
        with torch.autocast("cpu", torch.bfloat16):
            want, last = gated_delta_rule(*x, state)
            assert_near([gated_delta_rule_(state, *x), state], [want, last], 1e-2)
        assert want.dtype is torch.bfloat16

    def test_opcheck(self):
        *x, state = drawn()
        torch.library.opcheck(OPERATORS.gated_delta_rule_.default, (state, *x))

    def test_compile(self):
        *x, state = drawn(length=1)
        want, last = gated_delta_rule(*x, state)
        assert_near([torch.compile(gated_delta_rule_, fullgraph=True)(state, *x), state], [want, last], 1e-5)

    def test_errors(self):
        *x, state = drawn()
        kept = state.clone()
        turned = state.transpose(2, 3).contiguous().transpose(2, 3)
        for change, error, message in (
            ({"state": None}, TypeError, "gated_delta_rule_: expected state, q, k and v to be tensors, got None"),
            ({"state": state[:1]}, ValueError, r"gated_delta_rule_: expected state as a matrix per head of shape \(2, 4, 8, 6\)"),
            ({"state": turned}, ValueError, "gated_delta_rule_: expected state to be contiguous"),
            ({"state": state.double()}, TypeError, "gated_delta_rule_: expected state of dtype Float, got Double"),
            ({"beta": torch.ones(B, HV)}, ValueError, "gated_delta_rule_: expected beta as a number per token"),
        ):
            with pytest.raises(error, match=message):
                gated_delta_rule_(**{**dict(zip(NAMES, (*x, state), strict=True)), **change})
        assert torch.equal(state, kept)

    def test_no_gradient_flows(self):
        *x, state = drawn()
        assert not gated_delta_rule_(state, x[0].requires_grad_(), *x[1:]).requires_grad and not state.requires_grad


def test_is_listed():
    assert {"gated_delta_rule", "gated_delta_rule_", "GatedDeltaRuleResult"} <= set(attentive.__all__)

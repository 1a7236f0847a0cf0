"""Every option against the dense definition in float64, forward and backward; masks, dropout, packed sequences, errors."""

import pytest
import torch

import attentive
import dense
from attentive import Mask, attention, attention_varlen

B, H, HKV, L, S, D, DV = 2, 4, 2, 5, 7, 8, 6
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def drawn(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def case(name, dense_options, **options):
    return pytest.param(dense_options, options, id=name)


def make_cases():
    torch.manual_seed(1)
    keep = torch.rand(L, S) > 0.3
    keep[2] = False  # a query without keys
    pairs = torch.rand(B, H, L, S) > 0.3
    bias, head_bias = drawn(L, S), drawn(1, H, L, S)
    real = torch.ones(B, S, dtype=torch.bool)
    real[1, :3] = False
    lengths = torch.tensor([7, 4])
    shorter = torch.arange(S) < lengths[:, None]
    hidden_bias = bias.masked_fill(~keep, -torch.inf)
    slopes, sinks = torch.rand(H, dtype=torch.float64), drawn(H)
    batch_slopes = torch.rand(B, H, dtype=torch.float64)
    of_keys = lambda x: x[:, None, None]
    yield case("plain", {})
    yield case("keep", {"keep": keep}, mask=keep)
    yield case("keep of pairs", {"keep": pairs}, mask=Mask(pairs))
    yield case("keep of integers", {"keep": keep}, mask=Mask.keep(keep.int() * 3))
    yield case("hide", {"keep": keep}, mask=Mask.hide(~keep))
    yield case("bias", {"bias": bias}, mask=Mask.bias(bias))
    yield case("bias that hides", {"bias": hidden_bias}, mask=Mask.bias(hidden_bias))
    yield case("two biases", {"bias": bias + head_bias}, mask=Mask.bias(bias) & Mask.bias(head_bias))
    yield case("key_keep", {"keep": of_keys(real)}, mask=Mask.key_keep(real))
    yield case("key_lengths", {"keep": of_keys(shorter)}, mask=Mask.key_lengths(lengths))
    yield case("two lengths", {"keep": of_keys(shorter)}, mask=Mask.key_lengths(lengths.int()) & Mask.key_lengths(lengths + 0))
    yield case("per_batch", {"keep": pairs[:, :1]}, mask=Mask.per_batch(Mask(pairs[:, 0])))
    yield case("per_head", {"keep": pairs[:1]}, mask=Mask.per_head(Mask(pairs[0])))
    yield case(
        "all masks at once",
        {"keep": keep & pairs & of_keys(real) & of_keys(shorter), "bias": bias},
        mask=Mask(keep) & pairs & Mask.bias(bias) & Mask.key_keep(real) & Mask.key_lengths(lengths),
    )
    yield case("causal", {"causal": "bottom_right"}, causal="bottom_right")
    yield case("causal from the top left", {"causal": "top_left"}, causal="top_left")
    yield case("window", {"window": (2, 1)}, window=(2, 1))
    yield case("window to the left", {"window": (1, -1), "causal": "bottom_right"}, window=[1, -1], causal="bottom_right")
    few = torch.tensor([2, 5])
    yield case("query_lengths", {"query_lengths": few}, mask=Mask.query_lengths(few.int()) & Mask.query_lengths(few + 0))
    for causal in ("none", "bottom_right", "top_left"):
        options = {"causal": causal, "window": (2, 3), "alibi_slopes": slopes}
        yield case(f"aligned at the top left, {causal}", {"align": "top_left", **options}, align="top_left", **options)
        yield case(
            f"aligned by lengths, {causal}",
            {"align": "lengths", "key_lengths": lengths, "query_lengths": few, "bias": bias, **options},
            align="lengths", mask=Mask.key_lengths(lengths) & Mask.query_lengths(few) & Mask.bias(bias), **options,
        )
    yield case("scale", {"scale": -0.7}, scale=-0.7)
    yield case("softcap", {"softcap": 1.5}, softcap=1.5)
    yield case("slopes", {"alibi_slopes": slopes}, alibi_slopes=slopes)
    yield case("slopes of batch items", {"alibi_slopes": batch_slopes}, alibi_slopes=batch_slopes)
    yield case("sinks", {"sinks": sinks}, sinks=sinks)
    yield case("softmax_plus_one", {"softmax_plus_one": True}, softmax_plus_one=True)
    yield case(
        "many options",
        {"causal": "bottom_right", "window": (3, 0), "softcap": 2.0, "scale": 0.4, "alibi_slopes": slopes, "sinks": sinks,
         "keep": of_keys(shorter), "bias": bias},
        causal="bottom_right", window=(3, 0), softcap=2.0, scale=0.4, alibi_slopes=slopes, sinks=sinks,
        mask=Mask.key_lengths(lengths) & Mask.bias(bias),
    )


CASES = list(make_cases())


def inputs(dtype):
    """Leaves of this dtype, and leaves of the same values in float64."""
    torch.manual_seed(2)
    plain = [drawn(B, H, L, D), drawn(B, HKV, S, D), drawn(B, HKV, S, DV)]
    own = [x.to(dtype).requires_grad_() for x in plain]
    return own, [x.detach().double().requires_grad_() for x in own]


def of_dtype(options, dtype, found):
    """Options with tensors of floating-point numbers as leaves of this dtype; `found` collects them in order."""
    def leaf(x):
        x = x.to(dtype).requires_grad_()
        found.append(x)
        return x

    def converted(value):
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return leaf(value)
        if isinstance(value, Mask):
            biases = tuple(leaf(x) for x in value._bias)
            return Mask._of(value._keep, biases, value._key_keep, value._key_lengths, value._query_lengths)
        return value
    return {name: converted(value) for name, value in options.items()}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dense_options, options", CASES)
def test_option(dense_options, options, dtype):
    own, plain = inputs(dtype)
    # A bias must have one value in both computations, so it is rounded to the dtype first.
    rounded = lambda x: x.to(dtype).double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x
    terms, plain_terms = [], []
    given = of_dtype(options, dtype, terms)
    two_biases = isinstance(options.get("mask"), Mask) and len(options["mask"]._bias) == 2
    if two_biases:
        first, second = (rounded(x).requires_grad_() for x in options["mask"]._bias)
        plain_terms += [first, second]
        wanted = {"bias": first + second}
    else:
        order = {"alibi_slopes": 0, "sinks": 1, "bias": 2}
        wanted = {name: rounded(value) for name, value in dense_options.items()}
        for name in sorted((n for n in wanted if n in order), key=order.get):
            wanted[name].requires_grad_()
            plain_terms.append(wanted[name])
        # attention() was given them in the order of its own arguments.
        terms.sort(key=lambda x: 0 if x is given.get("alibi_slopes") else 1 if x is given.get("sinks") else 2)
    result = attention(*own, **given, weights="clean", logsumexp=True)
    output, weights, logsumexp = dense.attend(*plain, **wanted)
    for got, want in ((result.output, output), (result.weights, weights)):
        assert got.dtype == dtype
        dense.close(got, want, dtype)
    assert result.logsumexp.dtype == (torch.float64 if dtype is torch.float64 else torch.float32)
    dense.close(result.logsumexp, logsumexp, dtype)
    dense.close(attention(*own, **given), output, dtype)

    torch.manual_seed(3)
    given_output, given_weights = drawn(*output.shape).to(dtype), drawn(*weights.shape).to(dtype)
    seen = torch.isfinite(logsumexp)
    leaves, plain_leaves = own + terms, plain + plain_terms
    got = torch.autograd.grad(
        [result.output, result.weights, result.logsumexp], leaves, [given_output, given_weights, seen.to(result.logsumexp)]
    )
    want = torch.autograd.grad(
        [output, weights, logsumexp], plain_leaves, [given_output.double(), given_weights.double(), seen.double()]
    )
    assert len(got) == len(want)
    for a, b, leaf in zip(got, want, leaves, strict=True):
        assert a.shape == leaf.shape and a.dtype == leaf.dtype
        dense.close(a, b, dtype, gradient=True)


def test_ranks():
    torch.manual_seed(4)
    q, k, v = torch.randn(L, D), torch.randn(S, D), torch.randn(S, DV)
    flat = attention(q, k, v, causal="bottom_right")
    assert flat.shape == (L, DV)
    assert attention(q[None], k[None], v[None], causal="bottom_right")[0].equal(flat)
    assert attention(q[None, None], k[None, None], v[None, None], causal="bottom_right")[0, 0].equal(flat)
    assert attention(*(x[None, None, None] for x in (q, k, v)), causal="bottom_right")[0, 0, 0].equal(flat)


def test_results_on_request():
    (q, k, v), _ = inputs(torch.float32)
    assert isinstance(attention(q, k, v), torch.Tensor)
    result = attention(q, k, v, weights="clean")
    assert result.weights.shape == (B, H, L, S) and result.logsumexp is None
    result = attention(q, k, v, logsumexp=True)
    assert result.weights is None and result.logsumexp.shape == (B, H, L)


def test_hidden_keys_may_hold_anything():
    (q, k, v), _ = inputs(torch.float32)
    k, v = k.detach(), v.detach()
    want = attention(q, k[:, :, :4], v[:, :, :4])
    k[:, :, 4:], v[:, :, 4:] = torch.nan, torch.inf
    assert attention(q, k, v, mask=Mask.key_lengths(torch.tensor([4, 4]))).equal(want)


class TestDropout:
    options = dict(dropout_p=0.3, weights="dropped")

    def test_dense(self):
        """The weights that survive are multiplied by one factor, and so are their gradients."""
        for dtype in (torch.float64, torch.float32):
            own, plain = inputs(dtype)
            key = attentive.draw_dropout_key()
            result = attention(*own, dropout_key=key, **self.options)
            survive = round(0.7 * 65536) / 65536
            kept = (result.weights.detach() != 0).double() / survive
            assert 0.4 < (kept > 0).double().mean() < 0.95
            output, weights, _ = dense.attend(*plain, kept=kept)
            dense.close(result.output, output, dtype)
            dense.close(result.weights, weights * kept, dtype)
            torch.manual_seed(3)
            gradient = drawn(*output.shape)
            got = torch.autograd.grad(attention(*own, dropout_p=0.3, dropout_key=key), own, gradient.to(dtype))
            for a, b in zip(got, torch.autograd.grad(output, plain, gradient), strict=True):
                dense.close(a, b, dtype, gradient=True)

    def test_one_key_for_all_backends(self):
        (q, k, v), _ = inputs(torch.float32)
        key = torch.tensor(123)
        of = lambda backend: attention(q, k, v, dropout_key=key, backend=backend, **self.options).weights != 0
        assert of("native").equal(of("reference")) and of("auto").equal(of("native"))

    @pytest.mark.parametrize("stream", ["any", "counter", "aten"])
    def test_seed_and_generator(self, stream):
        (q, k, v), _ = inputs(torch.float32)
        ends_q, ends_k = torch.tensor([0, 2, 5]), torch.tensor([0, 4, 7])
        packed = [x[0].transpose(0, 1) for x in (q, k, v)]

        def run(**generator):
            return [
                attention(q, k, v, dropout_p=0.3, dropout_stream=stream, **generator),
                attention_varlen(*packed, ends_q, ends_k, dropout_p=0.3, dropout_stream=stream, **generator),
                attention(q, k, v, dropout_p=0.3, dropout_stream=stream, **generator),
            ]
        torch.manual_seed(5)
        first = run()
        after = torch.get_rng_state()
        torch.manual_seed(6)
        before = torch.get_rng_state()
        generator = torch.Generator().manual_seed(5)
        second = run(generator=generator)
        assert torch.get_rng_state().equal(before)  # the default generator was left alone
        assert generator.get_state().equal(after)
        for a, b in zip(first, second, strict=True):
            assert a.equal(b)
        assert not first[0].equal(first[2])

    def test_bits_of_nn_dropout(self):
        (q, k, v), _ = inputs(torch.float32)
        torch.manual_seed(7)
        weights = torch.nn.functional.dropout(attention(q, k, v, weights="clean").weights, 0.3)
        torch.manual_seed(7)
        got = attention(q, k, v, dropout_stream="aten", **self.options).weights
        assert (got != 0).equal(weights != 0)
        dense.close(got, weights, torch.float32)

    def test_nothing_is_drawn_for_0_and_1(self):
        (q, k, v), _ = inputs(torch.float32)
        generator = torch.Generator().manual_seed(5)
        before = generator.get_state()
        for p in (0.0, 1.0):
            attention(q, k, v, dropout_p=p, generator=generator)
        assert generator.get_state().equal(before)
        assert attention(q, k, v, dropout_p=1.0).count_nonzero() == 0

    def test_checkpointing_repeats_the_bits(self):
        from torch.utils.checkpoint import checkpoint
        (q, k, v), _ = inputs(torch.float32)
        torch.manual_seed(8)
        want = torch.autograd.grad(attention(q, k, v, dropout_p=0.3).sum(), q)[0]
        torch.manual_seed(8)
        got = torch.autograd.grad(checkpoint(lambda *x: attention(*x, dropout_p=0.3), q, k, v, use_reentrant=False).sum(), q)[0]
        assert got.equal(want)


class TestPacked:
    lengths_q, lengths_k = [3, 0, 4], [5, 2, 4]

    def packed(self, dtype):
        torch.manual_seed(9)
        tokens = [drawn(7, H, D), drawn(11, HKV, D), drawn(11, HKV, DV)]
        own = [x.to(dtype).requires_grad_() for x in tokens]
        ends = [torch.tensor([0, *n]).cumsum(0) for n in (self.lengths_q, self.lengths_k)]
        return own, [x.detach().double().requires_grad_() for x in own], ends

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    @pytest.mark.parametrize("options", [
        {}, {"causal": "bottom_right"}, {"causal": "top_left"}, {"window": (1, 1)}, {"scale": 0.3}, {"softcap": 1.5},
        {"softmax_plus_one": True}, {"alibi_slopes": True}, {"sinks": True},
    ], ids=lambda options: "".join(options) or "plain")
    def test_option(self, options, dtype):
        own, plain, ends = self.packed(dtype)
        torch.manual_seed(10)
        terms = {name: torch.rand(H, dtype=torch.float64).to(dtype) for name, value in options.items() if value is True
                 and name != "softmax_plus_one"}
        terms = {name: value.requires_grad_() for name, value in terms.items()}
        plain_terms = {name: value.detach().double().requires_grad_() for name, value in terms.items()}
        result = attention_varlen(*own, *ends, **{**options, **terms}, logsumexp=True)
        outputs, logsumexps = [], []
        for n in range(3):
            q, k, v = (x[a[n]:a[n + 1]].transpose(0, 1)[None] for x, a in zip(plain, (ends[0], ends[1], ends[1]), strict=True))
            output, _, logsumexp = dense.attend(q, k, v, **{**options, **plain_terms})
            outputs.append(output[0].transpose(0, 1))
            logsumexps.append(logsumexp[0])
        output, logsumexp = torch.cat(outputs), torch.cat(logsumexps, dim=1)
        dense.close(result.output, output, dtype)
        dense.close(result.logsumexp, logsumexp, dtype)
        assert attention_varlen(*own, *ends, **{**options, **terms}).shape == (7, H, DV)
        seen = torch.isfinite(logsumexp).double()
        gradient = drawn(*output.shape)
        gradient = gradient.to(dtype).double()
        got = torch.autograd.grad([result.output, result.logsumexp], own + list(terms.values()),
                                  [gradient.to(dtype), seen.to(result.logsumexp)])
        want = torch.autograd.grad([output, logsumexp], plain + list(plain_terms.values()), [gradient, seen])
        for a, b in zip(got, want, strict=True):
            dense.close(a, b, dtype, gradient=True)


class TestMask:
    def test_refusals(self):
        x = torch.zeros(L, S)
        with pytest.raises(TypeError, match=r"Mask: expected a bool tensor .*float32 tensor of shape \(5, 7\); say Mask.keep"):
            Mask(x)
        with pytest.raises(TypeError, match="Mask.keep: expected a bool or integer tensor .* use Mask.bias"):
            Mask.keep(x)
        with pytest.raises(TypeError, match="Mask.hide: expected a bool or integer tensor"):
            Mask.hide(x)
        with pytest.raises(TypeError, match="Mask.bias: expected a floating-point tensor, got bool tensor"):
            Mask.bias(x > 0)
        with pytest.raises(ValueError, match=r"Mask.key_keep: expected a mask of shape \(B, S\), got bool tensor of shape \(7,\)"):
            Mask.key_keep(x[0] > 0)
        with pytest.raises(TypeError, match="Mask.key_lengths: expected an integer tensor"):
            Mask.key_lengths(x[0])
        with pytest.raises(ValueError, match=r"Mask.key_lengths: expected lengths of shape \(B,\)"):
            Mask.key_lengths(x.long())
        with pytest.raises(TypeError, match="Mask.keep: expected mask to be a tensor, got list"):
            Mask.keep([True])
        with pytest.raises(TypeError, match="neither true nor false"):
            Mask(x > 0) and Mask(x > 0)
        with pytest.raises(TypeError, match="unsupported operand"):
            Mask() & 3

    def test_rank_3_must_say_what_it_is(self):
        (q, k, v), _ = inputs(torch.float32)
        rank_3 = torch.ones(B, L, S, dtype=torch.bool)
        for mask in (Mask(rank_3), Mask(rank_3) & Mask(rank_3), torch.ones(B, H, L, S, dtype=torch.bool) & Mask(rank_3)):
            with pytest.raises(ValueError, match="could be per batch or per head"):
                attention(q, k, v, mask=mask)
        of_3 = [x[:, 0] for x in (q, k, v)]
        both = attention(*of_3, mask=Mask(rank_3) & torch.ones(B, 1, L, S, dtype=torch.bool))
        assert both.equal(attention(*of_3))

    def test_several_biases_are_added_in_the_precision_of_q(self):
        (q, k, v), _ = inputs(torch.float32)
        torch.manual_seed(11)
        first, second = torch.randn(2, L, S).bfloat16()
        got = attention(q, k, v, mask=Mask.bias(first) & Mask.bias(second))
        assert got.equal(attention(q, k, v, mask=Mask.bias(first.float() + second.float())))

    def test_describes_itself(self):
        assert Mask().empty() and repr(Mask()) == "Mask()"
        mask = Mask.hide(torch.zeros(L, S, dtype=torch.bool)) & Mask.key_lengths(torch.tensor([3]))
        assert not mask.empty()
        assert repr(mask) == "Mask.keep(bool tensor of shape (5, 7)) & Mask.key_lengths(int64 tensor of shape (1,))"


class TestErrors:
    def refused(self, error, text, **options):
        x = torch.randn(1, 2, 3, 4)
        with pytest.raises(error, match=text) as caught:
            attention(x, x, x, **options)
        assert "\n" not in str(caught.value)  # no stack of C++ functions

    def test_values(self):
        self.refused(ValueError, 'expected causal to be "none", "bottom_right" or "top_left", got "yes"', causal="yes")
        self.refused(ValueError, "expected scale to be finite and not 0, got 0", scale=0.0)
        self.refused(ValueError, "softcap", softcap=-1.0)
        self.refused(ValueError, "dropout_p", dropout_p=1.5)
        self.refused(ValueError, "expected dropout_key to be one int64 number", dropout_p=0.5, dropout_key=torch.zeros(2))
        self.refused(ValueError, r"expected sinks of shape \(2,\)", sinks=torch.zeros(3))
        self.refused(ValueError, r"expected mask to broadcast to \(1, 2, 3, 3\)", mask=torch.ones(3, 4, dtype=torch.bool))
        self.refused(ValueError, "expected key_lengths in", mask=Mask.key_lengths(torch.tensor([4])))
        self.refused(ValueError, "expected query_lengths in", mask=Mask.query_lengths(torch.tensor([9])))
        self.refused(ValueError, r"expected key_lengths \(Mask::key_lengths\) with Align::Lengths, got none", align="lengths")
        self.refused(ValueError, 'expected align to be "bottom_right", "top_left" or "lengths", got "right"', align="right")
        self.refused(TypeError, "expected align to be a string, got", align=True)
        self.refused(ValueError, "backend torch cannot express this call", backend="torch", softcap=1.0)
        self.refused(ValueError, "a generator or a dropout_key, got both", dropout_p=0.5, dropout_key=torch.tensor(1),
                     generator=torch.Generator())

    def test_types(self):
        self.refused(TypeError, 'causal is not a flag: say causal="bottom_right"', causal=True)
        self.refused(TypeError, "expected backend to be a string, got int", backend=3)
        self.refused(TypeError, r"expected window to be a pair \(left, right\), got 3", window=3)
        self.refused(TypeError, "expected mask to be an attentive.Mask or a bool tensor, got str", mask="causal")
        self.refused(TypeError, "Mask: expected a bool tensor", mask=torch.zeros(3, 3))
        self.refused(TypeError, "scale", scale="half")
        self.refused(TypeError, "sinks", sinks=3)
        self.refused(TypeError, "attention: expected dropout_p of type float, got str", dropout_p="half")
        for stream in ("any", "aten"):
            self.refused(TypeError, "attention: expected generator of type .*, got int", dropout_p=0.5, generator=3,
                         dropout_stream=stream)
        x = torch.randn(1, 2, 3, 4)
        with pytest.raises(TypeError, match="expected q, k and v of one dtype"):
            attention(x, x, x.double())
        with pytest.raises(TypeError, match="expected q, k and v to be tensors, got float32 tensor .*, list and NoneType"):
            attention(x, [1], None)
        with pytest.raises(TypeError, match="expected cu_seqlens_k to be a tensor, got list"):
            attention_varlen(x[0], x[0], x[0], torch.tensor([0, 2]), [0, 2])

    def test_a_mask_that_changes_before_backward(self):
        x = torch.randn(1, 2, 3, 4, requires_grad=True)
        bias = torch.zeros(3, 3)
        y = attention(x, x, x, mask=Mask.bias(bias))
        bias.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_explain():
    (q, k, v), _ = inputs(torch.float32)
    found = attentive.explain(q, k, v, causal="bottom_right", dropout_p=0.1)
    assert found.chosen == "native"
    assert [one.backend for one in found.candidates] == ["native", "torch", "reference"]
    assert str(found).splitlines()[:2] == [
        "backend              why", "native     chosen    this package's CPU kernel, O(L) memory"
    ]
    assert "refused" in str(found)
    note = attentive.explain(q, k, v, mask=Mask.key_lengths(torch.tensor([0, 7])))
    assert "see no key" in note.notes[0] and f"note: {note.notes[0]}" in str(note)
    assert attentive.explain(q.double(), k.double(), v.double()).chosen != "native"
    with pytest.raises(ValueError, match="explain: expected scale"):
        attentive.explain(q, k, v, scale=0.0)

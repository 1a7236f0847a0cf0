"""attentive.flash_attn: flash-attn's functions against their definition in float64, on drawn calls; dropout, caches, errors, names."""

import importlib
import importlib.util
import inspect
import random
import sys

import pytest
import torch

import attentive.flash_attn
from attentive.flash_attn import (
    bert_padding,
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
    flash_attn_with_kvcache,
)
from dense import close

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
OPTIONS = dict(dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None,
               deterministic=False, return_attn_probs=False)
REQUIRED = inspect.Parameter.empty
SIGNATURES = {  # of flash-attn 2.8.3
    flash_attn_func: dict(q=REQUIRED, k=REQUIRED, v=REQUIRED, **OPTIONS),
    flash_attn_kvpacked_func: dict(q=REQUIRED, kv=REQUIRED, **OPTIONS),
    flash_attn_qkvpacked_func: dict(qkv=REQUIRED, **OPTIONS),
    flash_attn_varlen_func: dict(q=REQUIRED, k=REQUIRED, v=REQUIRED, cu_seqlens_q=REQUIRED, cu_seqlens_k=REQUIRED,
                                 max_seqlen_q=REQUIRED, max_seqlen_k=REQUIRED, **OPTIONS, block_table=None),
    flash_attn_varlen_kvpacked_func: dict(q=REQUIRED, kv=REQUIRED, cu_seqlens_q=REQUIRED, cu_seqlens_k=REQUIRED,
                                          max_seqlen_q=REQUIRED, max_seqlen_k=REQUIRED, **OPTIONS),
    flash_attn_varlen_qkvpacked_func: dict(qkv=REQUIRED, cu_seqlens=REQUIRED, max_seqlen=REQUIRED, **OPTIONS),
    flash_attn_with_kvcache: dict(
        q=REQUIRED, k_cache=REQUIRED, v_cache=REQUIRED, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None,
        cache_batch_idx=None, cache_leftpad=None, block_table=None, softmax_scale=None, causal=False, window_size=(-1, -1),
        softcap=0.0, rotary_interleaved=True, alibi_slopes=None, num_splits=0, return_softmax_lse=False),
}


@pytest.mark.parametrize("function", SIGNATURES, ids=lambda function: function.__name__)
def test_signatures(function):
    parameters = inspect.signature(function).parameters
    assert [(name, one.default) for name, one in parameters.items()] == list(SIGNATURES[function].items())
    assert all(one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for one in parameters.values())


def definition(q, k, v, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None, softmax_scale=None, kept=None):
    """Of one sequence, q (L, H, D), k (S, Hkv, D): output (L, H, Dv), logsumexp (H, L) and weights (H, L, S), in float64.

    kept: factors of the weights, 0 for a dropped one.
    """
    heads = torch.arange(q.shape[1]) // (q.shape[1] // k.shape[1])
    scores = torch.einsum("ihd,jhd->hij", q, k[:, heads]) * (q.shape[2] ** -0.5 if softmax_scale is None else softmax_scale)
    if softcap > 0:
        scores = softcap * torch.tanh(scores / softcap)
    distance = torch.arange(q.shape[0])[:, None] + k.shape[0] - q.shape[0] - torch.arange(k.shape[0])
    if alibi_slopes is not None:
        scores = scores - alibi_slopes.double()[:, None, None] * distance.abs()
    left, right = window_size
    hidden = (distance < 0) if causal else torch.zeros_like(distance, dtype=torch.bool)
    if left >= 0:
        hidden = hidden | (distance > left)
    if right >= 0:
        hidden = hidden | (-distance > right)
    blind = hidden.all(1, keepdim=True)
    scores = scores.masked_fill(hidden & ~blind, -torch.inf)
    weights = torch.softmax(scores, 2).masked_fill(blind, 0.0)
    lse = torch.logsumexp(scores, 2).masked_fill(blind[:, 0], -torch.inf)
    return torch.einsum("hij,jhd->ihd", weights if kept is None else weights * kept, v[:, heads]), lse, weights


def drawn_options(draw, heads, batch):
    window = draw.choice([(-1, -1), (-1, -1), (draw.randint(0, 4), draw.randint(-1, 4)), (-1, 2), (2, -1), (-7, 0)])
    slopes = draw.choice([None, None, torch.rand(heads), torch.rand(batch, heads)])
    return dict(causal=draw.random() < 0.5, window_size=draw.choice([window, list(window)]), softcap=draw.choice([0.0, 0.0, 1.5]),
                alibi_slopes=slopes, softmax_scale=draw.choice([None, None, 0.3]))


def of_item(options, n):
    slopes = options["alibi_slopes"]
    return dict(options, alibi_slopes=slopes[n] if slopes is not None and slopes.dim() == 2 else slopes)


def drawn(dtype, *shape):
    return torch.randn(*shape, dtype=torch.float64).to(dtype)


def leaves(*tensors):
    """Leaves of these tensors, and leaves of the same values in float64."""
    return [x.detach().requires_grad_() for x in tensors], [x.detach().double().requires_grad_() for x in tensors]


def compare(dtype, got, want, own, plain):
    """Compares outputs, logsumexps, and the gradients of a loss on both."""
    (out, lse), (wanted, wanted_lse) = got, want
    assert out.is_contiguous() and out.dtype == dtype
    assert lse.dtype == (torch.float64 if dtype is torch.float64 else torch.float32)
    close(out, wanted, dtype)
    close(lse, wanted_lse, dtype)
    grad, seen = drawn(dtype, *out.shape), wanted_lse > -torch.inf
    both = [(x * grad.to(x.dtype)).sum() + 0.1 * x_lse[seen].sum() for x, x_lse in ((out, lse), (wanted, wanted_lse))]
    for x, y in zip(*(torch.autograd.grad(loss, inputs, allow_unused=True) for loss, inputs in zip(both, (own, plain)))):
        close(torch.zeros(()) if x is None else x, torch.zeros(()) if y is None else y, dtype, gradient=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("seed", range(25))
def test_padded(seed, dtype):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    batch, queries, keys, kv_heads, dim = draw.randint(1, 3), draw.randint(1, 9), draw.randint(1, 9), draw.randint(1, 2), 8
    heads = kv_heads * draw.randint(1, 3)
    options = drawn_options(draw, heads, batch)
    own, plain = leaves(drawn(dtype, batch, queries, heads, dim), drawn(dtype, batch, keys, kv_heads, dim),
                        drawn(dtype, batch, keys, kv_heads, draw.choice([dim, 5])))
    out, lse, empty = flash_attn_func(*own, **options, deterministic=draw.random() < 0.5, return_attn_probs=True)
    assert empty.shape == (0,)
    items = [definition(*(x[n] for x in plain), **of_item(options, n)) for n in range(batch)]
    want = [torch.stack([one[i] for one in items]) for i in range(2)]
    compare(dtype, (out, lse), want, own, plain)
    assert torch.equal(flash_attn_func(*own, **options), out)


def ends_of(lengths):
    return torch.tensor([0, *lengths]).cumsum(0, dtype=torch.int32)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("seed", range(25))
def test_packed(seed, dtype):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    batch, kv_heads, dim = draw.randint(1, 4), draw.randint(1, 2), 8
    heads = kv_heads * draw.randint(1, 3)
    queries, keys = ([draw.randint(0, 7) for _ in range(batch)] for _ in range(2))
    options = drawn_options(draw, heads, batch)
    own, plain = leaves(drawn(dtype, sum(queries), heads, dim), drawn(dtype, sum(keys), kv_heads, dim),
                        drawn(dtype, sum(keys), kv_heads, draw.choice([dim, 5])))
    ends = ends_of(queries), ends_of(keys), max(queries), max(keys)
    out, lse, empty = flash_attn_varlen_func(*own, *ends, **options, return_attn_probs=True)
    assert empty.shape == (0,)
    pieces = zip(plain[0].split(queries), plain[1].split(keys), plain[2].split(keys))
    items = [definition(*each, **of_item(options, n)) for n, each in enumerate(pieces)]
    compare(dtype, (out, lse), (torch.cat([one[0] for one in items]), torch.cat([one[1] for one in items], 1)), own, plain)
    assert torch.equal(flash_attn_varlen_func(*own, *ends, **options), out)


def test_packed_projections():
    """The functions of stacked tensors hand every argument on."""
    torch.manual_seed(1)
    options = (0.3, 0.4, True, (2, 0), 1.5, torch.rand(4), True, True)
    ends = ends_of([2, 5, 1])

    def same(function, other):
        results = []
        for one in (function, other):
            torch.manual_seed(2)
            results.append(one())
        for a, b in zip(*results):
            assert torch.equal(a, b)
    q, k, v = (drawn(torch.float32, 2, 5, 4, 8) for _ in range(3))
    same(lambda: flash_attn_qkvpacked_func(torch.stack([q, k, v], 2), *options), lambda: flash_attn_func(q, k, v, *options))
    same(lambda: flash_attn_kvpacked_func(q, torch.stack([k, v], 2), *options), lambda: flash_attn_func(q, k, v, *options))
    q, k, v = (drawn(torch.float32, 8, 4, 8) for _ in range(3))
    plain = lambda: flash_attn_varlen_func(q, k, v, ends, ends, 5, 5, *options)
    same(lambda: flash_attn_varlen_qkvpacked_func(torch.stack([q, k, v], 1), ends, 5, *options), plain)
    same(lambda: flash_attn_varlen_kvpacked_func(q, torch.stack([k, v], 1), ends, ends, 5, 5, *options), plain)
    stacked = torch.stack([q, k, v], 1).requires_grad_()
    flash_attn_varlen_qkvpacked_func(stacked, ends, 5).square().sum().backward()
    apart = [x.clone().requires_grad_() for x in (q, k, v)]
    flash_attn_varlen_func(*apart, ends, ends, 5, 5).square().sum().backward()
    assert torch.equal(stacked.grad, torch.stack([x.grad for x in apart], 1))


def factors(signed, p):
    """What dropout multiplies each weight with, read from an S_dmask."""
    survivors = max(round((1 - p) * 65536), 1)
    return (~signed.signbit()).double() * 65536 / survivors


@pytest.mark.parametrize("dtype", (torch.float64, torch.float32, torch.bfloat16), ids=str)
@pytest.mark.parametrize("slopes", (None, (4,), (3, 4)), ids=str)
def test_dropout(slopes, dtype):
    """S_dmask holds the weights and what was dropped, with which the definition has the same outputs and gradients."""
    torch.manual_seed(3)
    options = dict(causal=True, window_size=(6, 0), alibi_slopes=None if slopes is None else torch.rand(slopes))
    own, plain = leaves(drawn(dtype, 3, 7, 4, 8), drawn(dtype, 3, 9, 2, 8), drawn(dtype, 3, 9, 2, 8))
    out, lse, signed = flash_attn_func(*own, 0.3, **options, return_attn_probs=True)
    kept = factors(signed, 0.3)
    items = [definition(*(x[n] for x in plain), **of_item(options, n), kept=kept[n]) for n in range(3)]
    want = [torch.stack([one[i] for one in items]) for i in range(3)]
    compare(dtype, (out, lse), want[:2], own, plain)
    close(signed.abs(), want[2], dtype)
    assert 0.5 < kept[want[2] > 0].gt(0).double().mean() < 0.9

    queries, keys = [3, 0, 6], [5, 2, 6]
    own, plain = leaves(drawn(dtype, 9, 4, 8), drawn(dtype, 13, 2, 8), drawn(dtype, 13, 2, 8))
    out, lse, signed = flash_attn_varlen_func(*own, ends_of(queries), ends_of(keys), 6, 6, 0.3, **options, return_attn_probs=True)
    assert signed.shape == (3, 4, 6, 6)
    kept = factors(signed, 0.3)
    pieces = zip(plain[0].split(queries), plain[1].split(keys), plain[2].split(keys))
    items = [definition(*each, **of_item(options, n), kept=kept[n, :, : queries[n], : keys[n]]) for n, each in enumerate(pieces)]
    compare(dtype, (out, lse), (torch.cat([one[0] for one in items]), torch.cat([one[1] for one in items], 1)), own, plain)
    for n, one in enumerate(items):
        close(signed[n, :, : queries[n], : keys[n]].abs(), one[2], dtype)


@pytest.mark.parametrize("packed", (False, True), ids=("padded", "packed"))
@pytest.mark.parametrize("rank", (1, 2), ids=("slopes (H)", "slopes (B, H)"))
def test_dropout_follows_the_seed(packed, rank):
    torch.manual_seed(4)
    q, k = torch.zeros(2, 64, 2, 8), torch.randn(2, 64, 2, 8)  # so that all weights are equal
    ones, ends = torch.ones_like(k), ends_of([64, 64])
    slopes = torch.zeros((2,) if rank == 1 else (2, 2))

    def called(p=0.25, **more):
        if packed:
            return flash_attn_varlen_func(q.flatten(0, 1), k.flatten(0, 1), ones.flatten(0, 1), ends, ends, 64, 64, p,
                                          alibi_slopes=slopes, **more)
        out = flash_attn_func(q, k, ones, p, alibi_slopes=slopes, **more)
        return (out[0] if more else out).flatten(0, 1)
    first, other = called(), called()
    assert not torch.equal(first, other)
    torch.manual_seed(5)
    again = called()
    torch.manual_seed(5)
    assert torch.equal(called(), again)
    torch.manual_seed(5)
    close(called(return_attn_probs=True)[0] if packed else called(return_attn_probs=True), again, torch.float32)
    assert not torch.equal(again[:64], again[64:])  # each sequence has bits of its own
    assert abs(again.mean().item() - 1) < 0.05  # the weights keep their mean
    assert torch.equal(called(1.0), torch.zeros_like(again))


def rotated(x, cos, sin, positions, interleaved):
    """x (L, H, D): the first features turned by the angles of its positions (L)."""
    width = 2 * cos.shape[1]
    i = torch.arange(cos.shape[1])
    first, second = (2 * i, 2 * i + 1) if interleaved else (i, i + cos.shape[1])
    y, c, s = x.clone(), cos[positions][:, None], sin[positions][:, None]
    y[..., first] = x[..., first] * c - x[..., second] * s
    y[..., second] = x[..., first] * s + x[..., second] * c
    assert torch.equal(y[..., width:], x[..., width:])
    return y


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("seed", range(40))
def test_cache(seed, dtype):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    batch, kv_heads, dim, capacity, queries = draw.randint(1, 3), draw.randint(1, 2), 8, 12, draw.choice([1, 1, 3])
    heads = kv_heads * draw.randint(1, 3)
    options = drawn_options(draw, heads, batch)
    new = draw.choice([None, queries, 2])
    indexed, padded, turned = (draw.random() < 0.5 for _ in range(3))
    turned = turned and new is not None
    rows = draw.sample(range(batch + 2), batch) if indexed else list(range(batch))
    lengths = [draw.randint(0, capacity - (new or 0)) for _ in range(batch)]
    kind = draw.choice(["tensor", "int", "none" if new is None else "tensor"])
    lengths = [capacity] * batch if kind == "none" else [lengths[0]] * batch if kind == "int" else lengths
    first = [draw.randint(0, n) if padded else 0 for n in lengths]
    q = drawn(dtype, batch, queries, heads, dim)
    caches = [drawn(dtype, batch + 2 * indexed, capacity, kv_heads, dim) for _ in range(2)]
    for cache in caches:  # what is no token of an item is never read
        for n, row in enumerate(rows):
            cache[row, : first[n]] = cache[row, lengths[n] :] = torch.nan
    fresh = [None, None] if new is None else [drawn(dtype, batch, new, kv_heads, dim) for _ in range(2)]
    angles = drawn(torch.float64, capacity + queries, draw.choice([2, dim // 2]))
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    interleaved = draw.random() < 0.5
    own = [cache.clone() for cache in caches]
    out, lse = flash_attn_with_kvcache(
        q, *own, *fresh, *((cos, sin) if turned else (None, None)), rotary_interleaved=interleaved, return_softmax_lse=True,
        cache_seqlens={"tensor": torch.tensor(lengths, dtype=torch.int32), "int": lengths[0], "none": None}[kind],
        cache_batch_idx=torch.tensor(rows, dtype=torch.int32) if indexed else None,
        cache_leftpad=torch.tensor(first, dtype=torch.int32) if padded else None, num_splits=draw.choice([0, 3]), **options)
    wanted = [cache.double() for cache in caches]
    for n, row in enumerate(rows):
        end = lengths[n]
        one = q[n].double()
        if new is not None:
            places, end = torch.arange(end, end + new), end + new
            k = fresh[0][n].double()
            if turned:
                moves = options["causal"] or max(options["window_size"]) >= 0
                k = rotated(k, cos.double(), sin.double(), places, interleaved)
                one = rotated(one, cos.double(), sin.double(), lengths[n] + torch.arange(queries) * moves, interleaved)
                k, one = k.to(dtype).double(), one.to(dtype).double()  # the cache holds rounded numbers
            wanted[0][row, places], wanted[1][row, places] = k, fresh[1][n].double()
        want, want_lse, _ = definition(one, *(cache[row, first[n] : end] for cache in wanted), **of_item(options, n))
        close(out[n], want, dtype)
        close(lse[n], want_lse, dtype)
    for got, cache in zip(own, wanted):
        torch.testing.assert_close(got.double(), cache, rtol=1e-6 if dtype is torch.float32 else 0, atol=1e-6 if turned else 0, equal_nan=True)


def test_decoding_step_by_step_equals_the_whole():
    torch.manual_seed(6)
    q, k, v = (torch.randn(2, 9, heads, 8) for heads in (4, 2, 2))
    cache = torch.zeros(2, 16, 2, 8), torch.zeros(2, 16, 2, 8)
    options = dict(causal=True, window_size=(4, 0), alibi_slopes=torch.rand(4))
    steps = [flash_attn_with_kvcache(q[:, i : i + 1], *cache, k[:, i : i + 1], v[:, i : i + 1], cache_seqlens=i, **options)
             for i in range(9)]
    close(torch.cat(steps, 1), flash_attn_func(q, k, v, **options), torch.float32)


def test_cache_has_no_gradients():
    q = torch.randn(1, 1, 2, 8, requires_grad=True)
    cache = torch.randn(1, 4, 2, 8, requires_grad=True)
    assert not flash_attn_with_kvcache(q, cache, cache).requires_grad


X = torch.zeros(2, 3, 4, 8)  # (B, L, H, D)
K = torch.zeros(2, 5, 2, 8)
P = torch.zeros(6, 4, 8)  # packed
ENDS = torch.tensor([0, 2, 6])
TABLE = torch.zeros(9, 4)
REFUSALS = {
    "flash_attn_func: expected q, k and v of shapes (B, L, H, D), (B, S, Hkv, D) and (B, S, Hkv, Dv), H a multiple of Hkv, got "
    "float32 tensor of shape (2, 3, 4, 8), float32 tensor of shape (2, 5, 3, 8) and float32 tensor of shape (2, 5, 3, 8)":
        lambda: flash_attn_func(X, torch.zeros(2, 5, 3, 8), torch.zeros(2, 5, 3, 8)),
    "got float32 tensor of shape (3, 4, 8), ": lambda: flash_attn_func(X[0], K, K),
    "got float32 tensor of shape (1, 3, 4, 8), ": lambda: flash_attn_func(X[:1], K, K),
    "got float32 tensor of shape (2, 3, 4, 7), ": lambda: flash_attn_func(X[..., :7], K, K),
    "and float32 tensor of shape (2, 4, 2, 8)": lambda: flash_attn_func(X, K, K[:, :4]),
    "flash_attn_func: expected q, k and v to be tensors, got float32 tensor of shape (2, 3, 4, 8), list and ":
        lambda: flash_attn_func(X, [K], K),
    "flash_attn_func: expected window_size to be a pair (left, right), got 3": lambda: flash_attn_func(X, K, K, window_size=3),
    "window_size to be a pair (left, right), got (1, 2, 3)": lambda: flash_attn_func(X, K, K, window_size=(1, 2, 3)),
    "flash_attn_func: expected softcap to be a number, got NoneType": lambda: flash_attn_func(X, K, K, softcap=None),
    "flash_attn_func: expected dropout_p to be a number, got str": lambda: flash_attn_func(X, K, K, "0.1"),
    "flash_attn_func: expected softmax_scale to be a number, got str": lambda: flash_attn_func(X, K, K, softmax_scale="1"),
    "flash_attn_func: expected alibi_slopes of shape (4,) or (2, 4), got list": lambda: flash_attn_func(X, K, K, alibi_slopes=[1.0]),
    "flash_attn_func: expected alibi_slopes of shape (4,) or (2, 4), got float32 tensor of shape (3,)":
        lambda: flash_attn_func(X, K, K, alibi_slopes=torch.zeros(3)),
    "expected dropout_p in [0, 1], got 1.5": lambda: flash_attn_func(X, K, K, 1.5),
    "expected q, k and v": lambda: flash_attn_func(X, K.double(), K),
    "unexpected keyword argument 'sinks'": lambda: flash_attn_func(X, K, K, sinks=None),
    "flash_attn_qkvpacked_func: expected qkv to be a tensor of shape (B, L, 3, H, D), got float32 tensor of shape (2, 3, 4, 8)":
        lambda: flash_attn_qkvpacked_func(X),
    "flash_attn_kvpacked_func: expected kv to be a tensor of shape (B, S, 2, Hkv, D), got ":
        lambda: flash_attn_kvpacked_func(X, torch.zeros(2, 5, 3, 2, 8)),
    "flash_attn_varlen_qkvpacked_func: expected qkv to be a tensor of shape (T, 3, H, D), got ":
        lambda: flash_attn_varlen_qkvpacked_func(P, ENDS, 4),
    "flash_attn_varlen_kvpacked_func: expected kv to be a tensor of shape (Tk, 2, Hkv, D), got list":
        lambda: flash_attn_varlen_kvpacked_func(P, [P, P], ENDS, ENDS, 4, 4),
    "flash_attn_varlen_func: expected q, k and v of shapes (Tq, H, D), (Tk, Hkv, D) and (Tk, Hkv, Dv), H a multiple of Hkv, got ":
        lambda: flash_attn_varlen_func(X, P, P, ENDS, ENDS, 4, 4),
    "flash_attn_varlen_func: expected block_table to be None, as no cache is paged here, got int64 tensor of shape (3,)":
        lambda: flash_attn_varlen_func(P, P, P, ENDS, ENDS, 4, 4, block_table=ENDS),
    "attention_varlen: expected cu_seqlens_k to be a tensor, got list": lambda: flash_attn_varlen_func(P, P, P, ENDS, [0, 6], 4, 4),
    "expected cu_seqlens_q (1,) to start at 0, never to decrease and to end at 6, got int":
        lambda: flash_attn_varlen_func(P, P, P, 6, ENDS, 4, 4, 0.1, return_attn_probs=True),
    "cu_seqlens_q": lambda: flash_attn_varlen_func(P, P, P, ENDS + 1, ENDS, 4, 4),
    "flash_attn_varlen_func: expected cu_seqlens_k (3,) to start at 0, never to decrease and to end at 6, got [0, 2, 5]":
        lambda: flash_attn_varlen_func(P, P, P, ENDS, torch.tensor([0, 2, 5]), 4, 4, 0.1, return_attn_probs=True),
    "to end at 6, got [0, 7, 6]": lambda: flash_attn_varlen_func(P, P, P, ENDS, torch.tensor([0, 7, 6]), 4, 4,
                                                                alibi_slopes=torch.zeros(2, 4)),
    "expected cu_seqlens_k (3,) to start at 0, never to decrease and to end at 6, got [0, 6]":
        lambda: flash_attn_varlen_func(P, P, P, ENDS, ENDS[::2], 4, 4, alibi_slopes=torch.zeros(2, 4)),
    "to end at 6, got [1, 2, 6]": lambda: flash_attn_varlen_func(P, P, P, torch.tensor([1, 2, 6]), ENDS, 4, 4,
                                                                alibi_slopes=torch.zeros(2, 4)),
    "flash_attn_varlen_func: expected alibi_slopes of shape (4,) or (2, 4), got float32 tensor of shape (3, 4)":
        lambda: flash_attn_varlen_func(P, P, P, ENDS, ENDS, 4, 4, alibi_slopes=torch.zeros(3, 4)),
    "flash_attn_with_kvcache: expected block_table to be None": lambda: flash_attn_with_kvcache(X, K, K, block_table=ENDS),
    "flash_attn_with_kvcache: expected q, k_cache and v_cache of shapes (B, L, H, D), (B, S, ":
        lambda: flash_attn_with_kvcache(X[:1], K, K),
    "expected q, k_cache and v_cache of shapes (B, L, H, D), (C, S, ":
        lambda: flash_attn_with_kvcache(X, K[0], K, cache_batch_idx=torch.tensor([0, 1])),
    "flash_attn_with_kvcache: expected k and v together, and rotary_cos and rotary_sin together with both, got ['k']":
        lambda: flash_attn_with_kvcache(X, K, K, k=K, cache_seqlens=0),
    "together with both, got ['rotary_cos', 'rotary_sin']":
        lambda: flash_attn_with_kvcache(X, K, K, rotary_cos=TABLE, rotary_sin=TABLE, cache_seqlens=0),
    "together with both, got ['k', 'v', 'rotary_sin']":
        lambda: flash_attn_with_kvcache(X, K, K, K, K, rotary_sin=TABLE, cache_seqlens=0),
    "flash_attn_with_kvcache: expected cache_seqlens, the place of k and v in the cache, got None":
        lambda: flash_attn_with_kvcache(X, K, K, K[:, :1], K[:, :1]),
    "flash_attn_with_kvcache: expected cache_seqlens from 0 to 4, got [5, 5]":
        lambda: flash_attn_with_kvcache(X, K, K, K[:, :1], K[:, :1], cache_seqlens=5),
    "flash_attn_with_kvcache: expected cache_seqlens from 0 to 5, got [-1, 0]":
        lambda: flash_attn_with_kvcache(X, K, K, cache_seqlens=torch.tensor([-1, 0])),
    "flash_attn_with_kvcache: expected cache_seqlens to be integers of shape (2,), got float32 tensor of shape (2,)":
        lambda: flash_attn_with_kvcache(X, K, K, cache_seqlens=torch.zeros(2)),
    "expected cache_batch_idx from 0 to 1, got [0, 2]":
        lambda: flash_attn_with_kvcache(X, K, K, cache_batch_idx=torch.tensor([0, 2])),
    "expected cache_batch_idx to be integers of shape (2,), got int64 tensor of shape (3,)":
        lambda: flash_attn_with_kvcache(X, K, K, cache_batch_idx=ENDS),
    "expected cache_leftpad from 0 to [2, 3], got [2, 4]":
        lambda: flash_attn_with_kvcache(X, K, K, cache_seqlens=torch.tensor([2, 3]), cache_leftpad=torch.tensor([2, 4])),
    "expected k and v with the heads and dtype of the cache, float32 tensor of shape (2, 5, 2, 8) and ":
        lambda: flash_attn_with_kvcache(X, K, K, K[:, :1].double(), K[:, :1], cache_seqlens=0),
    "and float32 tensor of shape (2, 5, 2, 8), got float32 tensor of shape (2, 1, 1, 8) and ":
        lambda: flash_attn_with_kvcache(X, K, K, K[:, :1, :1], K[:, :1, :1], cache_seqlens=0),
    "flash_attn_with_kvcache: expected rotary_cos and rotary_sin of one shape (positions, R / 2), R <= 8, for positions to 4, got ":
        lambda: flash_attn_with_kvcache(X, K, K, K[:, :1], K[:, :1], TABLE[:4], TABLE[:4], cache_seqlens=4),
    "R <= 8, for positions to 6, got": lambda: flash_attn_with_kvcache(X, K, K, K[:, :1], K[:, :1], TABLE[:6], TABLE[:6],
                                                                       cache_seqlens=4, causal=True),
    "(positions, R / 2), R <= 8, for positions to 0, got float32 tensor of shape (9, 4) and float32 tensor of shape (9, 3)":
        lambda: flash_attn_with_kvcache(X, K, K, K[:, :1], K[:, :1], TABLE, TABLE[:, :3], cache_seqlens=0),
    "for positions to 0, got float32 tensor of shape (9, 5)":
        lambda: flash_attn_with_kvcache(X, K, K, K[:, :1], K[:, :1], torch.zeros(9, 5), torch.zeros(9, 5), cache_seqlens=0),
    "R <= 8, for positions to 0, got list and list":
        lambda: flash_attn_with_kvcache(X, K, K, K[:, :1], K[:, :1], [1.0], [0.0], cache_seqlens=0),
    "unexpected keyword argument 'dropout_p'": lambda: flash_attn_with_kvcache(X, K, K, dropout_p=0.0),
}


@pytest.mark.parametrize("message", REFUSALS)
def test_refusals(message):
    with pytest.raises((ValueError, TypeError)) as error:
        REFUSALS[message]()
    assert message in str(error.value)


def test_an_error_leaves_the_cache_as_it_was():
    cache = torch.randn(2, 5, 2, 8), torch.randn(2, 5, 2, 8)
    before = [x.clone() for x in cache]
    with pytest.raises(TypeError, match="alibi_slopes"):  # which the operator finds, after the new tokens were written
        flash_attn_with_kvcache(X, *cache, K[:, :2], K[:, :2], cache_seqlens=1, alibi_slopes=torch.zeros(4, dtype=torch.int32))
    assert all(torch.equal(x, y) for x, y in zip(cache, before))


def test_compiled():
    q, k, v = (torch.randn(2, 6, heads, 8, requires_grad=True) for heads in (4, 2, 2))
    function = lambda q, k, v: flash_attn_func(q, k, v, causal=True, window_size=(3, 0), softcap=2.0)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")(q, k, v)
    assert torch.equal(compiled, function(q, k, v))
    got, want = (torch.autograd.grad(y.square().sum(), (q, k, v)) for y in (compiled, function(q, k, v)))
    assert all(torch.equal(x, y) for x, y in zip(got, want))


def test_bert_padding():
    torch.manual_seed(7)
    x = torch.randn(3, 5, 2, 4, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[1, 1, 1, 0, 0], [0, 0, 0, 1, 1], [0, 0, 0, 0, 0]])
    packed, indices, ends, longest, used = bert_padding.unpad_input(x, mask)
    assert torch.equal(packed, x[mask.bool()]) and indices.tolist() == [0, 1, 2, 8, 9]
    assert ends.tolist() == [0, 3, 5, 5] and ends.dtype == torch.int32 and longest == 3 and isinstance(longest, int)
    assert used.tolist() == [3, 2, 0] and used.dtype == torch.int32
    padded = bert_padding.pad_input(packed, indices, 3, 5)
    assert torch.equal(padded, x * mask[:, :, None, None])
    assert torch.equal(torch.autograd.grad(padded.sum(), x)[0], mask[:, :, None, None].expand(x.shape).double())
    assert torch.equal(bert_padding.index_first_axis(x.flatten(0, 1), indices), packed)
    assert torch.equal(bert_padding.index_put_first_axis(packed, indices, 15), padded.flatten(0, 1))

    unused = torch.tensor([[0, 0, 0, 1, 0], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0]])
    for more in (unused, unused.bool()):
        packed, indices, ends, longest, used = bert_padding.unpad_input(x, mask.to(more.dtype), more)
        assert torch.equal(packed, x[(mask + unused).bool()]) and used.tolist() == [3, 2, 0]
        assert ends.tolist() == [0, 4, 6, 7] and longest == 4 and indices.tolist() == [0, 1, 2, 3, 8, 9, 10]

    lengths = torch.tensor([[2, 3, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 0]])
    packed, indices, ends, longest = bert_padding.unpad_input_for_concatenated_sequences(x, lengths)
    assert indices.tolist() == [0, 1, 2, 3, 4, 5] and torch.equal(packed, x.flatten(0, 1)[:6])
    assert ends.tolist() == [0, 2, 5, 6] and ends.dtype == torch.int32 and longest == 3


@pytest.fixture
def installed():
    attentive.flash_attn.install()
    yield
    attentive.flash_attn.uninstall()


MODEL = """
import torch
from flash_attn import flash_attn_func, flash_attn_with_kvcache, __version__
from flash_attn.bert_padding import index_first_axis, pad_input, unpad_input
from flash_attn.flash_attn_interface import flash_attn_varlen_qkvpacked_func
import flash_attn.flash_attn_interface
from flash_attn import bert_padding, flash_attn_interface

assert flash_attn.flash_attn_interface is flash_attn_interface and bert_padding.pad_input is pad_input
"""


def test_install(installed):
    attentive.flash_attn.install()  # changes nothing
    names = {}
    exec(MODEL, names)
    assert names["flash_attn_func"] is flash_attn_func
    assert tuple(map(int, names["__version__"].split("."))) >= (2, 8, 3)
    for name in ("flash_attn", "flash_attn.flash_attn_interface", "flash_attn.bert_padding"):
        assert importlib.util.find_spec(name).name == name
        assert sys.modules[name].__version__ == names["__version__"]
    assert importlib.util.find_spec("flash_attn.layers") is None
    for name in ("flash_attn.layers", "flash_attn.ops.rms_norm"):
        with pytest.raises(ModuleNotFoundError, match=name.rpartition(".")[0] if name.count(".") > 1 else name):
            importlib.import_module(name)
    attentive.flash_attn.uninstall()
    attentive.flash_attn.uninstall()  # changes nothing
    with pytest.raises(ModuleNotFoundError, match="flash_attn"):
        exec(MODEL, {})


def test_install_refuses_beside_a_real_one(tmp_path, monkeypatch):
    (tmp_path / "flash_attn").mkdir()
    (tmp_path / "flash_attn" / "__init__.py").write_text("real = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for _ in range(2):  # installed, then imported
        with pytest.raises(ImportError, match="attentive.flash_attn.install: expected no flash_attn to be there"):
            attentive.flash_attn.install()
        assert importlib.import_module("flash_attn").real
    sys.modules["flash_attn"].__spec__ = None
    with pytest.raises(ImportError, match="expected no flash_attn to be there"):
        attentive.flash_attn.install()
    attentive.flash_attn.uninstall()
    assert sys.modules.pop("flash_attn").real


@pytest.mark.parametrize("cuda", (False, True))
def test_what_transformers_answers_stays(cuda, monkeypatch):
    utils = pytest.importorskip("transformers.utils.import_utils")
    monkeypatch.setattr(utils, "is_torch_cuda_available", lambda: cuda)
    functions = [getattr(utils, f"is_flash_attn_{release}_available", None) for release in (2, 3, 4)]
    functions = [one for one in functions if one is not None]  # 4.56 knows no fourth

    def answers():
        for one in (*functions, utils.is_flash_attn_greater_or_equal):
            getattr(one, "cache_clear", lambda: None)()
        return [one() for one in functions], utils.is_flash_attn_greater_or_equal("2.1.0")
    before = answers()
    attentive.flash_attn.install()
    try:
        assert answers() == before
    finally:
        attentive.flash_attn.uninstall()
        answers()

"""The functions of flash-attn 2, computed by ``attentive.attention``."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import one_hot
from torch.nn.utils.rnn import pad_sequence

from attentive._mask import _INTEGERS, describe
from attentive.functional import AttentionResult, attention, attention_varlen, draw_dropout_key

__all__ = ["flash_attn_func", "flash_attn_kvpacked_func", "flash_attn_qkvpacked_func", "flash_attn_varlen_func",
           "flash_attn_varlen_kvpacked_func", "flash_attn_varlen_qkvpacked_func", "flash_attn_with_kvcache"]  # fmt: skip

_PADDED = "(B, L, H, D), (B, S, Hkv, D) and (B, S, Hkv, Dv)"
_PACKED = "(Tq, H, D), (Tk, Hkv, D) and (Tk, Hkv, Dv)"
_INDEXED = "(B, L, H, D), (C, S, Hkv, D) and (C, S, Hkv, Dv)"


def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
                    alibi_slopes=None, deterministic=False, return_attn_probs=False):  # fmt: skip
    """Attention of q (B, L, H, D) to k (B, S, Hkv, D) and v (B, S, Hkv, Dv) -> (B, L, H, Dv), contiguous.

    Query i stands at key i + S - L, from which ``causal``, the window and ALiBi count. H must be a multiple of Hkv: query head
    h reads key head h // (H / Hkv). float64, float32, bfloat16 or float16; any head size.

    * ``window_size``: (left, right), keys to either side of a query's own that it may see; a negative number means all.
    * ``softcap``: 0 means none. ``softmax_scale``: 1 / sqrt(D) if None. ``alibi_slopes``: (H,) or (B, H).
    * ``dropout_p``: the probability of dropping a weight; ``torch.manual_seed`` repeats its bits, which are not those of CUDA.
    * ``deterministic`` changes nothing: every call is.
    * ``return_attn_probs``: returns (out, softmax_lse, S_dmask). softmax_lse (B, H, L) is the natural logarithm of the softmax
      denominators, bias included, float32 or float64, with gradients, and -inf for a query that sees no key. S_dmask
      (B, H, L, S) holds the rows of the softmax, negative where dropout has dropped the weight; without dropout it is empty.

    A query that sees no key gets 0. Raises ValueError or TypeError, naming the argument, what was expected and what came.
    Memory: O(B L H Dv); O(B H L S) for an S_dmask.

        y = flash_attn_func(q, k, v, causal=True, window_size=(255, 0))
    """
    _check("flash_attn_func", q, k, v)
    options = _options("flash_attn_func", dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, len(q), q.shape[2])
    return _attend(q, k, v, options, return_attn_probs)


def flash_attn_qkvpacked_func(qkv, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
                              alibi_slopes=None, deterministic=False, return_attn_probs=False):  # fmt: skip
    """``flash_attn_func`` of qkv (B, L, 3, H, D)."""
    parts = _unpack("flash_attn_qkvpacked_func", "qkv", qkv, 3, "(B, L, 3, H, D)")
    options = dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs
    return flash_attn_func(*parts, *options)


def flash_attn_kvpacked_func(q, kv, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
                             alibi_slopes=None, deterministic=False, return_attn_probs=False):  # fmt: skip
    """``flash_attn_func`` of q (B, L, H, D) and kv (B, S, 2, Hkv, D)."""
    parts = _unpack("flash_attn_kvpacked_func", "kv", kv, 2, "(B, S, 2, Hkv, D)")
    options = dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs
    return flash_attn_func(q, *parts, *options)


def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, softmax_scale=None,
                           causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False,
                           return_attn_probs=False, block_table=None):  # fmt: skip
    """``flash_attn_func`` for N sequences that are packed without padding: q (Tq, H, D), k and v (Tk, Hkv, D) -> (Tq, H, Dv).

    ``cu_seqlens_q``, ``cu_seqlens_k``: (N + 1), int32 or int64: sequence n owns the rows cu_seqlens[n] to cu_seqlens[n + 1] - 1.
    ``max_seqlen_q``, ``max_seqlen_k`` are not read. softmax_lse has the shape (H, Tq), S_dmask (N, H, longest q, longest k).

    ``block_table``, a paged cache, is a ValueError. Memory: O(Tq H Dv), beside an S_dmask. Slopes of shape (N, H) mean a call for
    each sequence.

        y = flash_attn_varlen_func(q, k, v, ends, ends, longest, longest, causal=True)
    """
    caller = "flash_attn_varlen_func"
    _check(caller, q, k, v, _PACKED)
    _refuse_pages(caller, block_table)
    sequences = cu_seqlens_q.numel() - 1 if isinstance(cu_seqlens_q, Tensor) else 0
    options = _options(caller, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, sequences, q.shape[1])
    options["dropout_key"] = draw_dropout_key() if dropout_p > 0 else None
    by_sequence = alibi_slopes is not None and alibi_slopes.dim() == 2
    with_mask = return_attn_probs and dropout_p > 0
    if by_sequence or with_mask:
        queries = _lengths(caller, "cu_seqlens_q", cu_seqlens_q, sequences, len(q))
        keys = _lengths(caller, "cu_seqlens_k", cu_seqlens_k, sequences, len(k))

    def call(v, **changed):
        if not by_sequence:
            return attention_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, logsumexp=True, **{**options, **changed})
        found = []
        for n, piece in enumerate(zip(q.split(queries), k.split(keys), v.split(keys), strict=True)):
            own = {**options, **changed, "alibi_slopes": alibi_slopes[n]}
            own["dropout_key"] = None if own["dropout_key"] is None else own["dropout_key"] + n
            found.append(attention(*(x.transpose(0, 1)[None] for x in piece), logsumexp=True, **own))
        out = torch.cat([one.output[0].transpose(0, 1) for one in found])
        return AttentionResult(out, None, torch.cat([one.logsumexp[0] for one in found], 1))

    found = call(v)
    if not return_attn_probs:
        return found.output
    signed = q.new_empty(0)
    if with_mask:
        with torch.no_grad():  # the weights are the outputs for values that are 1 at one key
            places = one_hot(torch.cat([torch.arange(count) for count in keys]), max(keys))
            ones = places.to(q.dtype)[:, None].expand(-1, k.shape[1], -1)
            signed = _signed(call(ones).output, call(ones, dropout_p=0.0).output)
            signed = pad_sequence(signed.split(queries), batch_first=True).transpose(1, 2)
    return found.output, found.logsumexp, signed


def flash_attn_varlen_qkvpacked_func(qkv, cu_seqlens, max_seqlen, dropout_p=0.0, softmax_scale=None, causal=False,
                                     window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False,
                                     return_attn_probs=False):  # fmt: skip
    """``flash_attn_varlen_func`` of qkv (T, 3, H, D)."""
    parts = _unpack("flash_attn_varlen_qkvpacked_func", "qkv", qkv, 3, "(T, 3, H, D)")
    return flash_attn_varlen_func(*parts, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, dropout_p, softmax_scale, causal,
                                  window_size, softcap, alibi_slopes, deterministic, return_attn_probs)  # fmt: skip


def flash_attn_varlen_kvpacked_func(q, kv, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0,
                                    softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None,
                                    deterministic=False, return_attn_probs=False):  # fmt: skip
    """``flash_attn_varlen_func`` of q (Tq, H, D) and kv (Tk, 2, Hkv, D)."""
    parts = _unpack("flash_attn_varlen_kvpacked_func", "kv", kv, 2, "(Tk, 2, Hkv, D)")
    return flash_attn_varlen_func(q, *parts, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale,
                                  causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs)  # fmt: skip


@torch.no_grad()
def flash_attn_with_kvcache(q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None,
                            cache_batch_idx=None, cache_leftpad=None, block_table=None, softmax_scale=None, causal=False,
                            window_size=(-1, -1), softcap=0.0, rotary_interleaved=True, alibi_slopes=None, num_splits=0,
                            return_softmax_lse=False):  # fmt: skip
    """Attention of q (B, L, H, D) to a cache, k_cache (C, S, Hkv, D) and v_cache (C, S, Hkv, Dv) -> (B, L, H, Dv); no gradients.

    * ``cache_seqlens``: an int or (B,): how many tokens each item's cache holds; S if None.
    * ``k``, ``v`` (B, N, Hkv, D): new tokens, written into the cache, in place, at cache_seqlens before the attention.
    * ``cache_batch_idx`` (B,): the row of the cache that an item has; its own index if None, for which C must be B.
    * ``cache_leftpad`` (B,): the first token of each item that is real; those before it are not seen.
    * ``rotary_cos``, ``rotary_sin`` (positions, R / 2): rotate the first R features of k and q, k at its place in the cache, q at
      cache_seqlens + i if ``causal`` or with a window, else all of q at cache_seqlens. ``rotary_interleaved``: features 0 and 1,
      2 and 3 form the pairs; else 0 and R / 2, 1 and R / 2 + 1.
    * ``return_softmax_lse``: returns (out, softmax_lse), of shape (B, H, L).

    Query i of an item stands at the key i + n - L, where n counts its tokens, new ones included. The other arguments are those
    of ``flash_attn_func``; ``num_splits`` changes nothing, and ``block_table``, a paged cache, is a ValueError. Raises as
    ``flash_attn_func``; an error leaves the cache as it was. Memory: O(B L H Dv): the cache is read where it lies.

        y = flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=lengths, causal=True)
    """
    caller = "flash_attn_with_kvcache"
    _check(caller, q, k_cache, v_cache, _PADDED if cache_batch_idx is None else _INDEXED, "q, k_cache and v_cache")
    _refuse_pages(caller, block_table)
    (batch, queries, heads), (rows, capacity), new = q.shape[:3], k_cache.shape[:2], 0
    options = _options(caller, 0.0, softmax_scale, causal, window_size, softcap, alibi_slopes, batch, heads)
    given = [name for name, x in (("k", k), ("v", v), ("rotary_cos", rotary_cos), ("rotary_sin", rotary_sin)) if x is not None]
    if given not in ([], ["k", "v"], ["k", "v", "rotary_cos", "rotary_sin"]):
        raise ValueError(f"{caller}: expected k and v together, and rotary_cos and rotary_sin together with both, got {given}")
    if k is not None:
        _check(caller, q, k, v)
        if cache_seqlens is None:
            raise ValueError(f"{caller}: expected cache_seqlens, the place of k and v in the cache, got None")
        if any(x.shape[2:] != cache.shape[2:] or x.dtype != cache.dtype for x, cache in ((k, k_cache), (v, v_cache))):
            raise ValueError(f"{caller}: expected k and v with the heads and dtype of the cache, {describe(k_cache)} and "
                             f"{describe(v_cache)}, got {describe(k)} and {describe(v)}")  # fmt: skip
        new = k.shape[1]
    counts = partial(_counts, caller, batch)
    before = counts("cache_seqlens", capacity if cache_seqlens is None else cache_seqlens, capacity - new)
    after = before + new
    first = counts("cache_leftpad", 0 if cache_leftpad is None else cache_leftpad, after)
    row = counts("cache_batch_idx", torch.arange(batch) if cache_batch_idx is None else cache_batch_idx, rows - 1)
    at = row[:, None], before[:, None] + torch.arange(new)
    if rotary_cos is not None:
        turns = causal or options["window"] != (-1, -1)  # otherwise all queries stand at one place
        q = _rotate(caller, q, rotary_cos, rotary_sin, before[:, None] + torch.arange(queries) * turns, rotary_interleaved)
        k = _rotate(caller, k, rotary_cos, rotary_sin, at[1], rotary_interleaved)
    spans = list(zip(first.tolist(), after.tolist(), strict=True))
    places = [(slice(n, n + 1), slice(r, r + 1), span) for n, (r, span) in enumerate(zip(row.tolist(), spans, strict=True))]
    if cache_batch_idx is None and len(set(spans)) == 1:  # one call for all items
        places = [(slice(None), slice(None), spans[0])]
    kept = k_cache[at], v_cache[at]
    try:
        if new:
            k_cache[at], v_cache[at] = k, v
        found = []
        for items, cached, span in places:
            slopes = alibi_slopes if alibi_slopes is None or alibi_slopes.dim() == 1 else alibi_slopes[items]
            keys, values = (cache[cached, slice(*span)] for cache in (k_cache, v_cache))
            found.append(_attend(q[items], keys, values, {**options, "alibi_slopes": slopes}, True))
    except Exception:
        k_cache[at], v_cache[at] = kept
        raise
    out, lse = (torch.cat([one[i] for one in found]) for i in range(2))
    return (out, lse) if return_softmax_lse else out


def _attend(q, k, v, options, return_attn_probs):
    call = partial(attention, *(x.transpose(1, 2) for x in (q, k, v)), **options)
    if not return_attn_probs:
        return call().transpose(1, 2)
    signed = q.new_empty(0)
    if options["dropout_p"] == 0:
        found = call(logsumexp=True)
    else:
        call.keywords["dropout_key"] = draw_dropout_key()
        found = call(logsumexp=True, weights="dropped")
        with torch.no_grad():
            signed = _signed(found.weights, call(weights="clean").weights)
    return found.output.transpose(1, 2), found.logsumexp, signed


def _signed(dropped, clean):
    return torch.where(dropped == 0, -clean, clean)


def _check(caller, q, k, v, shapes=_PADDED, names="q, k and v"):
    if not all(isinstance(x, Tensor) for x in (q, k, v)):
        raise TypeError(f"{caller}: expected {names} to be tensors, got {describe(q)}, {describe(k)} and {describe(v)}")
    if (
        not q.dim() == k.dim() == v.dim() == (3 if shapes is _PACKED else 4)
        or (k.shape[:-1], k.shape[-1]) != (v.shape[:-1], q.shape[-1])
        or q.shape[-2] % max(k.shape[-2], 1) != 0
        or (shapes is _PADDED and q.shape[0] != k.shape[0])
    ):
        raise ValueError(f"{caller}: expected {names} of shapes {shapes}, H a multiple of Hkv, got {describe(q)}, {describe(k)} "
                         f"and {describe(v)}")  # fmt: skip


def _unpack(caller, name, packed, parts, shape):
    if not isinstance(packed, Tensor) or packed.dim() != shape.count(",") + 1 or packed.shape[-3] != parts:
        raise ValueError(f"{caller}: expected {name} to be a tensor of shape {shape}, got {describe(packed)}")
    return packed.unbind(-3)


def _refuse_pages(caller, block_table):
    if block_table is not None:
        raise ValueError(f"{caller}: expected block_table to be None, as no cache is paged here, got {describe(block_table)}")


def _options(caller, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, batch, heads):
    """The arguments by the names of ``attention``."""
    numbers = {"dropout_p": dropout_p, "softmax_scale": 1.0 if softmax_scale is None else softmax_scale, "softcap": softcap}
    for name, x in numbers.items():
        if not isinstance(x, (int, float)):
            raise TypeError(f"{caller}: expected {name} to be a number, got {describe(x)}")
    if alibi_slopes is not None and getattr(alibi_slopes, "shape", None) not in ((heads,), (batch, heads)):
        raise ValueError(f"{caller}: expected alibi_slopes of shape ({heads},) or ({batch}, {heads}), got {describe(alibi_slopes)}")
    try:
        left, right = (max(int(size), -1) for size in window_size)
    except (TypeError, ValueError):
        raise TypeError(f"{caller}: expected window_size to be a pair (left, right), got {window_size!r}") from None
    return {
        "causal": "bottom_right" if causal else "none",
        "window": (left, right),
        "scale": softmax_scale,
        "softcap": softcap if softcap > 0 else None,
        "alibi_slopes": alibi_slopes,
        "dropout_p": dropout_p,
        "dropout_stream": "counter",  # the same bits with weights and without, on every backend
    }


def _lengths(caller, name, ends, sequences, total):
    fits = isinstance(ends, Tensor) and ends.shape == (sequences + 1,) and sequences > 0
    lengths = ends.diff().tolist() if fits else [-1]
    if min(lengths) < 0 or ends[0] != 0 or ends[-1] != total:
        raise ValueError(f"{caller}: expected {name} ({sequences + 1},) to start at 0, never to decrease and to end at {total}, got "
                         f"{ends.tolist() if isinstance(ends, Tensor) else describe(ends)}")  # fmt: skip
    return lengths


def _counts(caller, batch, name, x, most):
    """The integers of each batch item, from 0 to ``most``."""
    if isinstance(x, int):
        x = torch.full((batch,), x)
    if not isinstance(x, Tensor) or x.dtype not in _INTEGERS or x.shape != (batch,):
        raise ValueError(f"{caller}: expected {name} to be integers of shape ({batch},), got {describe(x)}")
    if ((x < 0) | (x > most)).any():
        raise ValueError(f"{caller}: expected {name} from 0 to {torch.as_tensor(most).tolist()}, got {x.tolist()}")
    return x.long()


def _rotate(caller, x, cos, sin, positions, interleaved):
    """x (B, L, H, D), its first R features turned by the rows ``positions`` (B, L) of cos and sin (positions, R / 2)."""
    half = cos.shape[-1] if isinstance(cos, Tensor) and isinstance(sin, Tensor) and cos.dim() == 2 else x.shape[-1]
    if 2 * half > x.shape[-1] or cos.shape != sin.shape or (positions >= len(cos)).any():
        raise ValueError(f"{caller}: expected rotary_cos and rotary_sin of one shape (positions, R / 2), R <= {x.shape[-1]}, for "
                         f"positions to {int(positions.max())}, got {describe(cos)} and {describe(sin)}")  # fmt: skip
    computed = torch.promote_types(x.dtype, torch.float32)
    cos, sin = (table[positions][:, :, None].to(computed) for table in (cos, sin))
    turned = x[..., : 2 * half].to(computed)
    a, b = (turned[..., ::2], turned[..., 1::2]) if interleaved else turned.chunk(2, -1)
    turned = torch.stack((a * cos - b * sin, a * sin + b * cos), -1 if interleaved else -2).flatten(-2)
    return torch.cat((turned.to(x.dtype), x[..., 2 * half :]), -1)

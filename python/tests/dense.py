"""The definition of attention, written down densely in float64, and what the tests share."""

import torch


def positions(queries, keys, origin):
    """Positions of the queries, of which the first stands at key `origin`, and of the keys."""
    return torch.arange(queries)[:, None] + origin, torch.arange(keys)[None, :]


def origins(queries, keys, align, key_lengths, query_lengths):
    """Where the first query stands: a number, or (B, 1, 1, 1)."""
    if align == "lengths":
        return (key_lengths - (queries if query_lengths is None else query_lengths))[:, None, None, None]
    return 0 if align == "top_left" else keys - queries


def visible_pairs(queries, keys, causal="none", window=(-1, -1), align="bottom_right", key_lengths=None, query_lengths=None):
    origin = origins(queries, keys, align, key_lengths, query_lengths)
    i, j = positions(queries, keys, origin)
    row = torch.arange(queries)[:, None]
    visible = (i >= 0) & (j >= 0) if align == "lengths" else torch.ones(queries, keys, dtype=torch.bool)
    if causal == "bottom_right":
        visible = visible & (j <= (i if align == "lengths" else row + keys - queries))
    if causal == "top_left":
        visible = visible & (j <= row)
    left, right = window
    if left >= 0:
        visible = visible & (j >= i - left)
    if right >= 0:
        visible = visible & (j <= i + right)
    if key_lengths is not None:
        visible = visible & (j < key_lengths[:, None, None, None])
    if query_lengths is not None:
        visible = visible & (row < query_lengths[:, None, None, None])
    return visible


def attend(q, k, v, *, keep=None, bias=None, causal="none", window=(-1, -1), scale=None, softcap=None, alibi_slopes=None,
           sinks=None, softmax_plus_one=False, kept=None, align="bottom_right", key_lengths=None, query_lengths=None):
    """Output, weights before dropout, and logsumexp of q (B, H, L, D), k and v (B, Hkv, S, D).

    kept: factors of the weights, 0 for a dropped one.
    """
    group = q.shape[1] // k.shape[1]
    heads = torch.arange(q.shape[1]) // group
    k, v = k[:, heads], v[:, heads]
    queries, keys = q.shape[2], k.shape[2]
    scores = torch.einsum("bhid,bhjd->bhij", q, k) * (scale if scale is not None else q.shape[3] ** -0.5)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias
    if alibi_slopes is not None:
        i, j = positions(queries, keys, origins(queries, keys, align, key_lengths, query_lengths))
        scores = scores - alibi_slopes[..., None, None] * (i - j).abs()
    visible = visible_pairs(queries, keys, causal, window, align, key_lengths, query_lengths).expand(scores.shape)
    if keep is not None:
        visible = visible & keep
    visible = visible & (scores > -torch.inf)
    blind = ~visible.any(-1, keepdim=True)
    logits = scores.masked_fill(~visible, -torch.inf).masked_fill(blind, 0.0)
    more = []
    if sinks is not None:
        more.append(sinks[None, :, None, None].expand(*logits.shape[:3], 1))
    if softmax_plus_one:
        more.append(torch.zeros(*logits.shape[:3], 1, dtype=logits.dtype))
    logsumexp = torch.logsumexp(torch.cat([logits, *more], dim=-1), dim=-1, keepdim=True)
    weights = torch.exp(logits - logsumexp).masked_fill(blind, 0.0)
    used = weights if kept is None else weights * kept
    return used @ v, weights, logsumexp.masked_fill(blind, -torch.inf).squeeze(-1)


def close(got, want, dtype, gradient=False):
    """Compares within the tolerance of the dtype (docs/conventions.md)."""
    rtol, atol = {
        torch.float64: (1e-12, 1e-13),
        torch.float32: (1e-5, 5e-6 if gradient else 2e-6),
        torch.bfloat16: (2e-2, 2e-2),
        torch.float16: (2e-3, 2e-3),
    }[dtype]
    torch.testing.assert_close(got.detach().double(), want.detach().double(), rtol=rtol, atol=atol)

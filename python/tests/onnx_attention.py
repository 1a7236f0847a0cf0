"""ONNX's operator Attention (opsets 23 to 25) over ``attentive.attention``: its arguments, defaults and outputs, for PyTorch's tensors.

Causal order, windows and lengths become options, so that no mask of pairs is made that the call did not bring; only the debugging
output ``qk_matmul_output`` of modes 0 to 2 is composed of a product and such masks.
"""

import torch
import torch.nn.functional as F

from attentive import Mask, attention


def onnx_attention(
    q, k, v, attn_mask=None, past_key=None, past_value=None, nonpad_kv_seqlen=None, *, is_causal=0, scale=None, softcap=0.0,
    q_num_heads=None, kv_num_heads=None, left_window_size=-1, right_window_size=-1, qk_matmul_output_mode=None, softmax_precision=None,
):
    """Returns Y, present_key, present_value and qk_matmul_output, which is None unless a mode is given.

    q, k and v (B, heads, tokens, D), or (B, tokens, heads * D) with both numbers of heads. A mask of True keeps. The mode 0 is that
    of the documentation, the scores before the softcap, and so is a mask of one row for all queries; onnx 1.23.2's reference
    evaluator returns the scores after the softcap, and reads such a mask beside is_causal as if all queries were the first.
    softmax_precision 11 computes in float64; the others add nothing, since a softmax over a half type is float32 here.
    """
    merged = q.dim() == 3
    if merged:
        q, k, v = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x, heads in ((q, q_num_heads), (k, kv_num_heads), (v, kv_num_heads)))
    queries, new, past = q.shape[2], k.shape[2], 0
    if past_key is not None:
        past = past_key.shape[2]
        k, v = torch.cat([past_key, k], 2), torch.cat([past_value, v], 2)
    present, keys = (k, v), k.shape[2]
    mask = Mask() if nonpad_kv_seqlen is None else Mask.key_lengths(nonpad_kv_seqlen)
    options = {"scale": scale, "softcap": softcap or None}
    more_keys = more_queries = 0
    # Query i stands at key i + offset.
    offset = past if nonpad_kv_seqlen is None else nonpad_kv_seqlen.view(-1, 1, 1, 1) - queries
    if is_causal or left_window_size >= 0 or right_window_size >= 0:
        options["window"] = left_window_size, right_window_size
        options["align"] = "lengths" if nonpad_kv_seqlen is not None else "bottom_right" if past else "top_left"
        options["causal"] = "none" if not is_causal else "top_left" if options["align"] == "top_left" else "bottom_right"
        if nonpad_kv_seqlen is not None and not is_causal and right_window_size != 0 and (nonpad_kv_seqlen < queries).any():
            raise NotImplementedError(
                "onnx_attention: expected is_causal=1 or right_window_size=0 where a sequence has fewer keys than queries: a query that "
                "stands before the first key sees nothing here, but the keys to the right of it in ONNX"
            )
        if past:  # queries that are not as many as the new keys: the last one stands beyond the last key, or before it
            more_keys, more_queries = max(0, queries - new), max(0, new - queries)
    call = F.pad(q, (0, 0, 0, more_queries)), F.pad(k, (0, 0, 0, more_keys)), F.pad(v, (0, 0, 0, more_keys))
    if more_keys:
        mask &= Mask.key_lengths(torch.full(q.shape[:1], keys))
    if attn_mask is not None:
        attn_mask = attn_mask.reshape((1,) * (4 - attn_mask.dim()) + attn_mask.shape)
        hidden = False if attn_mask.dtype is torch.bool else -torch.inf
        attn_mask = F.pad(attn_mask, (0, keys - attn_mask.shape[-1]), value=hidden)
        padded = F.pad(attn_mask, (0, more_keys, 0, more_queries if attn_mask.shape[2] > 1 else 0), value=hidden)
        mask &= Mask.keep(padded) if attn_mask.dtype is torch.bool else Mask.bias(padded)
    if softmax_precision == 11:
        call = [x.double() for x in call]
    result = attention(*call, mask=mask, weights="clean" if qk_matmul_output_mode == 3 else "none", **options)
    y, weights = (result.output, result.weights) if qk_matmul_output_mode == 3 else (result, None)
    y = y[:, :, :queries].to(q.dtype)
    if merged:
        y = y.transpose(1, 2).flatten(2)

    scores = None
    if qk_matmul_output_mode == 3:
        scores = weights[:, :, :queries, :keys].to(q.dtype)
    elif qk_matmul_output_mode is not None:
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        scores = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT * scale
        if softcap and qk_matmul_output_mode > 0:
            scores = softcap * (scores / softcap).tanh()
        if qk_matmul_output_mode == 2:
            place = torch.arange(queries).view(-1, 1) + offset
            key, seen = torch.arange(keys), torch.ones(queries, keys, dtype=torch.bool)
            for bounded, condition in ((is_causal, key <= place), (left_window_size >= 0, key >= place - left_window_size),
                                       (right_window_size >= 0, key <= place + right_window_size),
                                       (nonpad_kv_seqlen is not None, key < offset + queries)):
                seen = seen & condition if bounded else seen
            if attn_mask is not None:
                seen, bias = (seen & attn_mask, 0) if attn_mask.dtype is torch.bool else (seen, attn_mask)
                scores = scores + bias
            scores = scores.masked_fill(~seen, -torch.inf)
    return y, *present, scores

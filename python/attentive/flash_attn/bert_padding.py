"""flash-attn's functions between padded batches and packed sequences."""

from __future__ import annotations

import torch
from torch.nn.functional import pad

__all__ = ["index_first_axis", "index_put_first_axis", "pad_input", "unpad_input", "unpad_input_for_concatenated_sequences"]


def index_first_axis(input, indices):
    """The rows ``indices`` (n,) of input (rows, ...) -> (n, ...)."""
    return input[indices]


def index_put_first_axis(values, indices, first_axis_dim):
    """(first_axis_dim, ...) with the rows of values (n, ...) at ``indices`` (n,), and 0 elsewhere."""
    return values.new_zeros(first_axis_dim, *values.shape[1:]).index_copy(0, indices, values)


def pad_input(hidden_states, indices, batch, seqlen):
    """The inverse of ``unpad_input``: hidden_states (n, ...) -> (batch, seqlen, ...), with 0 where no token is.

        padded = pad_input(out, indices, batch, seqlen)
    """
    return index_put_first_axis(hidden_states, indices, batch * seqlen).unflatten(0, (batch, seqlen))


def unpad_input(hidden_states, attention_mask, unused_mask=None):
    """Packs the tokens of hidden_states (B, S, ...) whose attention_mask (B, S) is 1 or true.

    ``unused_mask`` (B, S): more tokens that get a place. Returns the packed tokens (n, ...), their indices (n,) in the flattened
    batch, cu_seqlens (B + 1) int32, the longest length as an int, and the count (B,) int32 of those of attention_mask.

        x, indices, cu_seqlens, longest, used = unpad_input(x, mask)
    """
    placed = attention_mask if unused_mask is None else attention_mask + unused_mask
    used = attention_mask.sum(-1, dtype=torch.int32)
    return (*_packed(hidden_states, placed, placed.sum(-1, dtype=torch.int32)), used)


def unpad_input_for_concatenated_sequences(hidden_states, attention_mask_in_length):
    """Packs hidden_states (B, S, ...) whose rows hold several sequences one after another, then padding.

    ``attention_mask_in_length`` (B, S): the lengths of a row's sequences, then zeros. Returns the first four of ``unpad_input``.

        x, indices, cu_seqlens, longest = unpad_input_for_concatenated_sequences(x, torch.tensor([[2, 3, 0, 0, 0, 0]]))
    """
    placed = torch.arange(attention_mask_in_length.shape[1]) < attention_mask_in_length.sum(-1, keepdim=True)
    return _packed(hidden_states, placed, attention_mask_in_length[attention_mask_in_length != 0])


def _packed(hidden_states, placed, lengths):
    indices = placed.flatten().nonzero().flatten()
    cu_seqlens = pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    return hidden_states.flatten(0, 1)[indices], indices, cu_seqlens, int(lengths.max())

"""The attention classes of the notebooks, restated: same parameter names, same order of random draws, same numbers.

Three classes share a published name with another one; `case_name` holds the published name.
Parameters are created in the order the notebooks create them, so a seed gives the notebooks' weights.
"""

import math

import torch
from torch import nn


def attend(query, key, value, hidden=None, dropout=None, root=math.sqrt):
    """softmax(query key^T / sqrt(d)) value over the last two dimensions; returns the context and the weights.

    hidden: boolean, true where a query must not look. dropout: applied to the weights, and the weights
    returned are those after it. root: how sqrt(d) is computed.
    """
    scores = query @ key.transpose(-2, -1) / root(key.shape[-1])
    if hidden is not None:
        scores = scores.masked_fill(hidden, -math.inf)
    weights = scores.softmax(dim=-1)
    if dropout is not None:
        weights = dropout(weights)
    return weights @ value, weights


def split_heads(x, heads):
    """(..., T, heads*d) -> (..., heads, T, d)."""
    return x.unflatten(-1, (heads, -1)).transpose(-3, -2)


def merge_heads(x):
    """(..., heads, T, d) -> (..., T, heads*d)."""
    return x.transpose(-3, -2).flatten(-2)


def causal_buffer(context_length):
    """Ones above the diagonal: the float buffer `mask` that the chapter-3 classes keep in their state."""
    return torch.ones(context_length, context_length).triu(diagonal=1)


def expect_divisible(module, **sizes):
    (width, size), (heads, count) = sizes.items()
    if size % count:
        raise ValueError(f"{module}: expected {width} divisible by {heads}, got {size} and {count}")


# --- Chapter 3 ----------------------------------------------------------------------------------------------------


class SelfAttention_v1(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.W_query = nn.Parameter(torch.rand(d_in, d_out))
        self.W_key = nn.Parameter(torch.rand(d_in, d_out))
        self.W_value = nn.Parameter(torch.rand(d_in, d_out))

    def forward(self, x):
        return attend(x @ self.W_query, x @ self.W_key, x @ self.W_value)[0]


class SelfAttention_v2(nn.Module):
    def __init__(self, d_in, d_out, qkv_bias=False):
        super().__init__()
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)

    def forward(self, x):
        return attend(self.W_query(x), self.W_key(x), self.W_value(x))[0]


class MatrixSelfAttention(nn.Module):
    case_name = "SelfAttention"

    def __init__(self, d_model, d_k):
        super().__init__()
        self.W_Q = nn.Parameter(torch.randn(d_model, d_k))
        self.W_K = nn.Parameter(torch.randn(d_model, d_k))
        self.W_V = nn.Parameter(torch.randn(d_model, d_k))

    def forward(self, x):
        return attend(x @ self.W_Q, x @ self.W_K, x @ self.W_V)[0]


class CausalAttention(SelfAttention_v2):
    def __init__(self, d_in, d_out, context_length, dropout, qkv_bias=False):
        super().__init__(d_in, d_out, qkv_bias)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", causal_buffer(context_length))

    def forward(self, x):
        tokens = x.shape[-2]
        hidden = self.mask.bool()[:tokens, :tokens]
        return attend(self.W_query(x), self.W_key(x), self.W_value(x), hidden, self.dropout)[0]


class MultiHeadAttentionWrapper(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        self.heads = nn.ModuleList(
            CausalAttention(d_in, d_out, context_length, dropout, qkv_bias) for _ in range(num_heads)
        )

    def forward(self, x):
        return torch.cat([head(x) for head in self.heads], dim=-1)


class MultiHeadAttention(CausalAttention):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__(d_in, d_out, context_length, dropout, qkv_bias)
        expect_divisible("MultiHeadAttention", d_out=d_out, num_heads=num_heads)
        self.num_heads = num_heads
        self.out_proj = nn.Linear(d_out, d_out)

    def forward(self, x):
        tokens = x.shape[-2]
        hidden = self.mask.bool()[:tokens, :tokens]
        query, key, value = (split_heads(w(x), self.num_heads) for w in (self.W_query, self.W_key, self.W_value))
        return self.out_proj(merge_heads(attend(query, key, value, hidden, self.dropout)[0]))


# --- The toy self-attention notebook ------------------------------------------------------------------------------


def dropout_or_identity(p):
    return nn.Dropout(p) if p > 0 else nn.Identity()


class ScaledDotProductAttention(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.dropout = dropout_or_identity(dropout)

    def forward(self, Q, K, V, mask=None):
        return attend(Q, K, V, None if mask is None else mask == 0, self.dropout)


class MultiHeadSelfAttention(nn.Module):
    def __init__(self, d_model=128, num_heads=4, dropout=0.0):
        super().__init__()
        expect_divisible("MultiHeadSelfAttention", d_model=d_model, num_heads=num_heads)
        self.num_heads = num_heads
        self.W_q = nn.Linear(d_model, d_model, bias=False)
        self.W_k = nn.Linear(d_model, d_model, bias=False)
        self.W_v = nn.Linear(d_model, d_model, bias=False)
        self.W_o = nn.Linear(d_model, d_model, bias=False)
        self.attn = ScaledDotProductAttention(dropout)
        self.dropout = dropout_or_identity(dropout)

    def forward(self, x, mask=None):
        query, key, value = (split_heads(w(x), self.num_heads) for w in (self.W_q, self.W_k, self.W_v))
        context, weights = self.attn(query, key, value, mask=mask)
        return self.dropout(self.W_o(merge_heads(context))), weights


# --- The multi-head blog, as it was meant -------------------------------------------------------------------------


def float32_root(width):
    """The blog's divisor, also in float64: it differs from the root of 6 by 8.9e-8."""
    return torch.sqrt(torch.tensor(width, dtype=torch.float32))


def scaled_dot_product_attention(Q, K, V):
    return attend(Q, K, V, root=float32_root)


class SharedHeadAttention(nn.Module):
    """One head_dim-wide projection for all heads; as published it attended over heads and ignored the mask."""

    case_name = "MultiHeadAttention"

    def __init__(self, embed_size, heads):
        super().__init__()
        expect_divisible("MultiHeadAttention", embed_size=embed_size, heads=heads)
        head_dim = embed_size // heads
        self.heads = heads
        self.values = nn.Linear(head_dim, head_dim, bias=False)
        self.keys = nn.Linear(head_dim, head_dim, bias=False)
        self.queries = nn.Linear(head_dim, head_dim, bias=False)
        self.fc_out = nn.Linear(embed_size, embed_size)

    def forward(self, values, keys, query, mask=None):
        value = self.values(split_heads(values, self.heads))
        key = self.keys(split_heads(keys, self.heads))
        query = self.queries(split_heads(query, self.heads))
        context, _ = attend(query, key, value, None if mask is None else mask == 0, root=float32_root)
        return self.fc_out(merge_heads(context))


# --- The fused self-attention of a vision transformer -------------------------------------------------------------


class FusedSelfAttention(nn.Module):
    case_name = "SelfAttention"

    def __init__(self, embed_dim, num_heads=8):
        super().__init__()
        expect_divisible("SelfAttention", embed_dim=embed_dim, num_heads=num_heads)
        self.num_heads = num_heads
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x):
        query, key, value = (split_heads(part, self.num_heads) for part in self.qkv(x).chunk(3, dim=-1))
        return self.proj(merge_heads(attend(query, key, value)[0]))

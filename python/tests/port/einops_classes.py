"""Classes that need einops, for the tests of attentive-port; cases.py leaves them out where einops is not installed."""

import functools

import torch
import torch.nn.functional as F
from einops import einsum, pack, rearrange, reduce, repeat, unpack
from einops.layers.torch import Rearrange, Reduce
from torch import nn


class PatternAttention(nn.Module):
    """Attention whose reshapes are patterns; the last layer is absent where it would do nothing."""

    def __init__(self, width, heads=4, size=8, dropout=0.1):
        super().__init__()
        self.heads, self.scale = heads, size**-0.5
        self.softmax = nn.Softmax(dim=-1)
        self.packed = nn.Linear(width, 3 * heads * size, bias=False)
        needless = heads == 1 and size == width
        self.last = nn.Identity() if needless else nn.Sequential(nn.Linear(heads * size, width), nn.Dropout(dropout))

    def forward(self, x, mask=None):
        q, k, v = map(lambda t: rearrange(t, "b t (h s) -> b h t s", h=self.heads), self.packed(x).chunk(3, dim=-1))
        scores = torch.matmul(q, k.transpose(-1, -2)) * self.scale
        if mask is not None:
            scores = scores.masked_fill(~rearrange(mask, "b k -> b 1 1 k"), -torch.finfo(scores.dtype).max)
        mixed = torch.matmul(self.softmax(scores), v)
        return self.last(rearrange(mixed, "b h t s -> b t (h s)"))


class PatternVision(nn.Module):
    """Patches by a layer, a token by repeat, means by reduce and by a layer, and einops' own einsum with long names."""

    def __init__(self, *, image, patch, width, channels=3):
        super().__init__()
        assert image % patch == 0, "patches have to fit"
        self.patches = nn.Sequential(
            Rearrange("b c (rows up) (columns across) -> b (rows columns) (up across c)", up=patch, across=patch),
            nn.LayerNorm(channels * patch**2),
            nn.Linear(channels * patch**2, width),
        )
        self.places = nn.Parameter(torch.randn(1, (image // patch) ** 2 + 1, width))
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.mix = nn.Parameter(torch.randn(width, width) * width**-0.5)
        self.pool = Reduce("b (n two) w -> b n w", reduction="mean", two=2)

    def forward(self, picture):
        x = self.patches(picture)
        items, n, _ = x.shape
        x = torch.cat((repeat(self.token, "1 1 w -> items 1 w", items=items), x), dim=1) + self.places[:, : (n + 1)]
        x = einsum(x, self.mix, "item token inner, inner outer -> item token outer")
        grid = rearrange(x[:, 1:], "b (rows columns) w -> b w rows columns", rows=2)
        highest = reduce(grid, "b w (rows two) columns -> b w rows columns", "max", two=2)
        return x[:, 0] + reduce(self.pool(x[:, 1:]), "b n w -> b w", "mean"), highest


class EncoderBase(nn.Module):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)


def turned_by(x, angles, scale=1.0):
    scale = 1.0 if scale is None else scale
    return x * angles.cos() * scale


def or_made(value, make):
    return value if value is not None else make() if callable(make) else make


class Packed(EncoderBase):
    """einops' pack and unpack, keywords that are empty, sizes that are tensors, defaults that are numbers, a lambda that never runs."""

    def __init__(self, dim, **kwargs):
        super().__init__(**kwargs)
        self.proj = nn.Linear(dim, 3 * dim)

    @property
    def width(self):
        return self.proj.in_features

    def packed(self, items, pattern):
        return pack(items, pattern)

    def forward(self, x, mask):
        width = self.width
        (both, shapes), (rows, _) = self.packed([x[:, :2], x[:, 2:]], "b * d"), self.packed([x], "* d")
        parts = self.proj(both).chunk(3, dim=-1)
        q, k, v = (rearrange(part, "b n (h d) -> b h n d", h=2) for part in parts)
        mask = or_made(mask, lambda: torch.zeros(1, x.shape[1]).bool())
        longest = mask.sum(1).max() + 1
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None])
        merged = functools.partial(rearrange, pattern="b h n d -> b n (h d)")
        y = turned_by(merged(y), both, None)
        first, last = unpack(y, shapes, "b * d")
        wide = x.new_zeros((x.size(0), longest, width))
        wide[:, :1] += last[:, :1]
        return first, last, wide, rows.sum()

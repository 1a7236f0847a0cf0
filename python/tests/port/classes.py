"""Classes as people write them: every one becomes C++ that equals it. cases.py says how attentive-port is called for each."""

import copy
import math
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Dict, List, NamedTuple, Optional, Tuple, Union

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor, einsum

EPSILON = 1e-6
NEGATIVE = float("-inf")


# Encoders and decoders.


class SelfAttention(nn.Module):
    """Multi-head attention of one tensor, or of two if a memory is given."""

    def __init__(self, width: int, heads: int, dropout: float = 0.1):
        super().__init__()
        if width % heads != 0:
            raise ValueError(f"width {width} is not a multiple of {heads} heads")
        self.heads = heads
        self.size = width // heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def split(self, x: Tensor) -> Tensor:
        """(B, T, width) -> (B, heads, T, size)"""
        batch, tokens, _ = x.shape
        return x.view(batch, tokens, self.heads, self.size).transpose(1, 2)

    def forward(self, x: Tensor, memory: Optional[Tensor] = None, mask: Optional[Tensor] = None) -> Tensor:
        source = x if memory is None else memory
        q, k, v = self.split(self.query(x)), self.split(self.key(source)), self.split(self.value(source))
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(self.size)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)  # zero: may not be seen
        weights = self.dropout(F.softmax(scores, dim=-1))
        mixed = torch.matmul(weights, v).transpose(1, 2).contiguous()
        return self.out(mixed.view(x.size(0), -1, self.heads * self.size))


class FeedForward(nn.Module):
    def __init__(self, width, hidden, dropout=0.1):
        super(FeedForward, self).__init__()
        self.net = nn.Sequential(
            nn.Linear(width, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, width),
        )

    def forward(self, x):
        return self.net(x)


class EncoderLayer(nn.Module):
    """One layer of an encoder, with the norms after the sums or before the sublayers."""

    def __init__(self, width: int, heads: int, hidden: int, dropout: float = 0.1, norm_first: bool = False):
        super().__init__()
        self.attention = SelfAttention(width, heads, dropout)
        self.feed_forward = FeedForward(width, hidden, dropout)
        self.norm_a = nn.LayerNorm(width)
        self.norm_b = nn.LayerNorm(width, eps=EPSILON)
        self.dropout = nn.Dropout(dropout)
        self.norm_first = norm_first

    def forward(self, x: Tensor, mask: Optional[Tensor] = None) -> Tensor:
        if self.norm_first:
            x = x + self.dropout(self.attention(self.norm_a(x), mask=mask))
            x = x + self.dropout(self.feed_forward(self.norm_b(x)))
        else:
            x = self.norm_a(x + self.dropout(self.attention(x, mask=mask)))
            x = self.norm_b(x + self.dropout(self.feed_forward(x)))
        return x


class DecoderLayer(nn.Module):
    """Causal attention, attention to an encoder's output, and a feed-forward part."""

    def __init__(self, width, heads, hidden, dropout=0.1):
        super().__init__()
        self.own = SelfAttention(width, heads, dropout)
        self.cross = SelfAttention(width, heads, dropout)
        self.feed_forward = FeedForward(width, hidden, dropout)
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(3)])
        self.dropout = nn.Dropout(p=dropout)

    @staticmethod
    def visible(tokens, device=None):
        return torch.tril(torch.ones(tokens, tokens, dtype=torch.bool, device=device))

    def forward(self, target, memory, memory_mask=None):
        causal = self.visible(target.size(1), target.device)
        before = target
        target = self.own(self.norms[0](target), mask=causal)
        target = before + self.dropout(target)
        before = target
        target = self.cross(self.norms[1](target), memory, memory_mask)
        target = before + self.dropout(target)
        return target + self.dropout(self.feed_forward(self.norms[2](target)))


class Waves(nn.Module):
    """Adds sines and cosines of the places."""

    def __init__(self, width: int, longest: int = 64, dropout: float = 0.1):
        super().__init__()
        rates = 10000.0 ** (-torch.arange(0, width, 2) / width)
        angles = torch.arange(longest, dtype=torch.float)[:, None] * rates
        table = torch.empty(longest, width)
        table[:, ::2] = angles.sin()
        table[:, 1::2] = angles.cos()
        self.register_buffer("table", table.unsqueeze(0))
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        x = x + self.table[:, : x.size(1)]
        return self.drop(x)


class Translator(nn.Module):
    """A whole encoder and decoder over token numbers; zero is padding."""

    def __init__(self, words: int, width: int = 32, heads: int = 4, layers: int = 2, dropout: float = 0.1):
        super().__init__()
        self.reads = nn.Embedding(words, width, padding_idx=0)
        self.writes = nn.Embedding(words, width, padding_idx=0)
        self.places = Waves(width, dropout=dropout)
        self.encoder = nn.ModuleList([EncoderLayer(width, heads, 2 * width, dropout) for _ in range(layers)])
        self.decoder = nn.ModuleList([DecoderLayer(width, heads, 2 * width, dropout) for _ in range(layers)])
        self.head = nn.Linear(width, words)
        self.width = width
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.xavier_uniform_(weight)

    def encode(self, source, mask):
        x = self.places(self.reads(source) * math.sqrt(self.width))
        for layer in self.encoder:
            x = layer(x, mask)
        return x

    def forward(self, source, target):
        mask = (source != 0).unsqueeze(1).unsqueeze(2)
        memory = self.encode(source, mask)
        y = self.places(self.writes(target) * self.width**0.5)
        for layer in self.decoder:
            y = layer(y, memory, mask)
        return F.log_softmax(self.head(y), dim=-1)


# A language model with its configuration and its loss.


@dataclass
class Settings:
    """Sizes of the model."""

    words: int = 50
    context: int = 16
    width: int = 32
    heads: int = 4
    layers: int = 2
    dropout: float = 0.1
    bias: bool = True
    gains: List[float] = field(default_factory=lambda: [1.0, 0.5])


class CausalBlock(nn.Module):
    def __init__(self, settings: Settings):
        super().__init__()
        self.settings = settings
        width, context = settings.width, settings.context
        self.before = nn.LayerNorm(width, bias=settings.bias)
        self.packed = nn.Linear(width, 3 * width, bias=settings.bias)
        self.back = nn.Linear(width, width, bias=settings.bias)
        self.between = nn.LayerNorm(width, bias=settings.bias)
        wide, back = nn.Linear(width, 4 * width, bias=settings.bias), nn.Linear(4 * width, width, bias=settings.bias)
        self.mlp = nn.ModuleDict({"wide": wide, "back": back})
        self.dropout = nn.Dropout(settings.dropout)
        self.register_buffer("past", torch.ones(context, context).tril()[None, None])

    def attend(self, x):
        b, t, c = x.size()
        shape = (b, t, self.settings.heads, c // self.settings.heads)
        q, k, v = self.packed(x).split(c, dim=2)
        q = q.view(shape).transpose(1, 2)
        k = k.view(shape).transpose(1, 2)
        v = v.view(shape).transpose(1, 2)
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(shape[-1]))
        scores = scores.masked_fill(self.past[..., :t, :t] == 0, NEGATIVE)
        scores = F.softmax(scores, dim=-1)
        scores = self.dropout(scores)
        mixed = scores @ v
        return self.dropout(self.back(mixed.transpose(1, 2).reshape(x.shape)))

    def forward(self, x):
        x = x + self.settings.gains[0] * self.attend(self.before(x))
        y = F.gelu(self.mlp.wide(self.between(x)), approximate="tanh")
        return x + self.settings.gains[1] * self.dropout(self.mlp["back"](y))


class SmallGPT(nn.Module):
    """Tokens to logits, and to a loss where targets are given. The head shares the embedding's weight."""

    def __init__(self, settings):
        super().__init__()
        self.settings = settings
        parts = dict(
            tokens=nn.Embedding(settings.words, settings.width),
            places=nn.Embedding(settings.context, settings.width),
            drop=nn.Dropout(settings.dropout),
            blocks=nn.ModuleList([CausalBlock(settings) for _ in range(settings.layers)]),
            norm=nn.LayerNorm(settings.width, bias=settings.bias),
        )
        self.body = nn.ModuleDict(parts)
        self.head = nn.Linear(settings.width, settings.words, bias=False)
        self.body.tokens.weight = self.head.weight
        self.apply(self._first_weights)
        # What returns to the residual stream begins smaller.
        for name, weight in self.named_parameters():
            if name.endswith("back.weight"):
                nn.init.normal_(weight, mean=0.0, std=0.02 / math.sqrt(2 * settings.layers))

    def _first_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, tokens, targets=None):
        _, t = tokens.size()
        assert t <= self.settings.context, f"{t} tokens, but the context has {self.settings.context}"
        places = torch.arange(t, dtype=torch.long, device=tokens.device)
        x = self.body.drop(self.body.tokens(tokens) + self.body.places(places))
        for block in self.body.blocks:
            x = block(x)
        x = self.body.norm(x)
        if targets is None:
            logits = self.head(x[:, [-1], :])  # the last place only
            loss = None
        else:
            logits = self.head(x)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.reshape(-1), ignore_index=-1)
        return logits, loss


# Vision.


class Patches(nn.Module):
    """Cuts an image into patches and projects them."""

    def __init__(self, image: int = 8, patch: int = 4, channels: int = 3, width: int = 32):
        super().__init__()
        self.grid = (image // patch, image // patch)
        self.count = self.grid[0] * self.grid[1]
        self.project = nn.Conv2d(channels, width, kernel_size=patch, stride=patch)

    def forward(self, x):
        return self.project(x).flatten(2).transpose(1, 2)


class PackedAttention(nn.Module):
    def __init__(self, width, heads=4, bias=False, scale=None, drop=0.0, drop_out=0.0):
        super().__init__()
        self.heads = heads
        self.scale = scale or (width // heads) ** -0.5
        self.packed = nn.Linear(width, width * 3, bias=bias)
        self.drop = nn.Dropout(drop)
        self.last = nn.Linear(width, width)
        self.drop_out = nn.Dropout(drop_out)

    def forward(self, x):
        b, n, c = x.shape
        three = self.packed(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = three[0], three[1], three[2]

        seen = (q @ k.transpose(-2, -1)) * self.scale
        seen = seen.softmax(dim=-1)
        seen = self.drop(seen)

        y = (seen @ v).transpose(1, 2).reshape(b, n, c)
        return self.drop_out(self.last(y))


class TwoLayers(nn.Module):
    def __init__(self, width, hidden=None, out=None, act=nn.GELU, drop=0.0):
        super().__init__()
        out = out or width
        hidden = hidden or width
        self.wide = nn.Linear(width, hidden)
        self.act = act()
        self.back = nn.Linear(hidden, out)
        self.drop = nn.Dropout(drop)

    def forward(self, x):
        x = self.drop(self.act(self.wide(x)))
        return self.drop(self.back(x))


def drop_items(x, rate: float = 0.0, training: bool = False):
    """Drops whole items of the batch."""
    if not training or rate == 0.0:
        return x
    kept = 1 - rate
    coin = torch.rand((x.size(0),) + (1,) * (x.dim() - 1), dtype=x.dtype, device=x.device)
    coin.add_(kept).floor_()
    return x / kept * coin


class DropItems(nn.Module):
    def __init__(self, rate=None):
        super().__init__()
        self.rate = rate

    def forward(self, x):
        return drop_items(x, self.rate, self.training)


class VisionBlock(nn.Module):
    def __init__(self, width, heads, ratio=4.0, drop=0.0, rate=0.0, act=nn.GELU, norm=nn.LayerNorm):
        super().__init__()
        self.norm_a = norm(width)
        self.attention = PackedAttention(width, heads=heads, bias=True, drop=drop, drop_out=drop)
        self.skip = DropItems(rate) if rate > 0.0 else nn.Identity()
        self.norm_b = norm(width)
        self.mlp = TwoLayers(width=width, hidden=int(width * ratio), act=act, drop=drop)

    def forward(self, x):
        x = x + self.skip(self.attention(self.norm_a(x)))
        x = x + self.skip(self.mlp(self.norm_b(x)))
        return x


class VisionTransformer(nn.Module):
    """Patches, a class token, positions, blocks and a classifier."""

    def __init__(self, image=8, patch=4, classes=10, width=32, depth=2, heads=4, rate=0.2, norm=partial(nn.LayerNorm, eps=1e-5)):
        super().__init__()
        self.features = self.width = width
        self.patches = Patches(image, patch, 3, width)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.zeros(1, 1 + self.patches.count, width))
        rates = [x.item() for x in torch.linspace(0, rate, depth)]
        self.blocks = nn.ModuleList([VisionBlock(width, heads, drop=0.1, rate=rates[i], norm=norm) for i in range(depth)])
        self.norm = norm(width)
        self.head = nn.Linear(width, classes) if classes > 0 else nn.Identity()
        nn.init.trunc_normal_(self.places, std=0.02)
        nn.init.trunc_normal_(self.token, std=0.02)
        self.apply(self._first_weights)

    def _first_weights(self, m):
        if isinstance(m, nn.Linear):
            nn.init.trunc_normal_(m.weight, std=0.02)
            if m.bias is not None:
                nn.init.constant_(m.bias, 0)
        elif isinstance(m, nn.LayerNorm):
            nn.init.constant_(m.weight, 1.0)

    def encode(self, x):
        x = self.patches(x)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), dim=1) + self.places
        for block in self.blocks:
            x = block(x)
        return self.norm(x)[:, 0]

    def forward(self, x):
        return self.head(self.encode(x))


def to_windows(x, side):
    """(B, H, W, C) -> (B * windows, side * side, C)"""
    b, h, w, c = x.shape
    tiles = x.view(b, h // side, side, w // side, side, c).transpose(2, 3)
    return tiles.contiguous().view(-1, side * side, c)


def from_windows(windows, side, h, w):
    items = int(windows.shape[0] / (h * w / side / side))
    tiles = windows.view(items, h // side, w // side, side, side, -1).transpose(2, 3)
    return tiles.contiguous().view(items, h, w, -1)


class WindowAttention(nn.Module):
    """Attention inside of a window, with a learned bias for each relative position."""

    def __init__(self, width: int, side: Tuple[int, int], heads: int, drop: float = 0.0):
        super().__init__()
        self.width, self.side, self.heads = width, side, heads
        self.scale = (width // heads) ** -0.5
        self.biases = nn.Parameter(torch.zeros((2 * side[0] - 1) * (2 * side[1] - 1), heads))
        grid = torch.stack(torch.meshgrid([torch.arange(self.side[0]), torch.arange(self.side[1])], indexing="ij"))
        points = torch.flatten(grid, 1)
        apart = (points[:, :, None] - points[:, None, :]).permute(1, 2, 0).contiguous()
        apart[:, :, 0] += side[0] - 1
        apart[:, :, 1] += side[1] - 1
        apart[:, :, 0] *= 2 * side[1] - 1
        self.register_buffer("which", apart.sum(-1))
        self.packed = nn.Linear(width, 3 * width)
        self.drop = nn.Dropout(drop)
        self.last = nn.Linear(width, width)
        self.softmax = nn.Softmax(dim=-1)
        nn.init.trunc_normal_(self.biases, std=0.02)

    def forward(self, x, mask=None):
        wb, n, c = x.shape
        q, k, v = self.packed(x).reshape(wb, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        q = q * self.scale
        scores = q @ k.transpose(-2, -1)
        bias = self.biases[self.which.view(-1)].view(n, n, -1)
        scores = scores + bias.permute(2, 0, 1).contiguous().unsqueeze(0)
        if mask is not None:
            windows = mask.shape[0]
            scores = scores.view(wb // windows, windows, self.heads, n, n) + mask.unsqueeze(1).unsqueeze(0)
            scores = scores.view(-1, self.heads, n, n)
            weights = self.softmax(scores)
        else:
            weights = self.softmax(scores)
        weights = self.drop(weights)
        return self.last((weights @ v).transpose(1, 2).reshape(wb, n, c))


class RolledWindows(nn.Module):
    """Windows over an image that is rolled by half of their width, with the mask that this needs."""

    def __init__(self, width, size, heads, side=4, shift=2):
        super().__init__()
        self.size, self.side, self.shift = size, side, shift
        if min(self.size) <= self.side:
            self.shift = 0
            self.side = min(self.size)
        assert 0 <= self.shift < self.side, "the shift is not less than the window"
        self.norm = nn.LayerNorm(width)
        self.attention = WindowAttention(width, (self.side, self.side), heads, drop=0.1)
        if self.shift > 0:
            h, w = self.size
            region = torch.zeros((1, h, w, 1))
            parts = (slice(0, -self.side), slice(-self.side, -self.shift), slice(-self.shift, None))
            number = 0
            for rows in parts:
                for columns in parts:
                    region[:, rows, columns, :] = number
                    number += 1
            region = to_windows(region, self.side).squeeze(-1)
            strangers = region.unsqueeze(1) - region.unsqueeze(2)
            hidden = strangers.masked_fill(strangers != 0, float(-100.0)).masked_fill(strangers == 0, 0.0)
        else:
            hidden = None
        self.register_buffer("hidden", hidden)

    def forward(self, x):
        h, w = self.size
        b, tokens, c = x.shape
        assert tokens == h * w, "the image has another size"
        y = self.norm(x).view(b, h, w, c)
        if self.shift > 0:
            y = torch.roll(y, shifts=(-self.shift, -self.shift), dims=(1, 2))
        y = self.attention(to_windows(y, self.side), mask=self.hidden)
        y = from_windows(y, self.side, h, w)
        if self.shift > 0:
            y = torch.roll(y, shifts=(self.shift, self.shift), dims=(1, 2))
        return x + y.view(b, tokens, c)


class SqueezeExcite(nn.Module):
    def __init__(self, channels, ratio=4):
        super(SqueezeExcite, self).__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.gate = nn.Sequential(
            nn.Linear(channels, channels // ratio, bias=False),
            nn.ReLU(inplace=True),
            nn.Linear(channels // ratio, channels, bias=False),
            nn.Sigmoid(),
        )

    def forward(self, x):
        b, c, _, _ = x.size()
        gate = self.gate(self.pool(x).view(b, c))
        return x * gate.view(b, c, 1, 1).expand_as(x)


class ChannelGate(nn.Module):
    """Pools by several ways, named by words, and adds what they give."""

    def __init__(self, channels, ratio=4, ways=["avg", "max"]):
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Flatten(), nn.Linear(channels, channels // ratio), nn.ReLU(), nn.Linear(channels // ratio, channels)
        )
        self.ways = ways

    def forward(self, x):
        total = None
        for way in self.ways:
            if way == "avg":
                pooled = F.avg_pool2d(x, (x.size(2), x.size(3)))
            elif way == "max":
                pooled = F.max_pool2d(x, (x.size(2), x.size(3)), stride=1)
            one = self.mlp(pooled)
            total = one if total is None else total + one
        return x * torch.sigmoid(total)[:, :, None, None]


class PlaceStatistics(nn.Module):
    def forward(self, x):
        return torch.cat((torch.max(x, 1)[0].unsqueeze(1), torch.mean(x, 1, keepdim=True)), dim=1)


class ConvGate(nn.Module):
    """A gate over channels, then one over places. A member has the name of its class."""

    def __init__(self, channels, channels_only=False):
        super().__init__()
        self.ChannelGate = ChannelGate(channels, ways=["max", "avg"])
        self.channels_only = channels_only
        if not channels_only:
            self.statistics = PlaceStatistics()
            self.places = nn.Sequential(nn.Conv2d(2, 1, 5, padding=2, bias=False), nn.BatchNorm2d(1, momentum=0.05))

    def forward(self, x):
        y = self.ChannelGate(x)
        if not self.channels_only:
            y = y * torch.sigmoid(self.places(self.statistics(y)))
        return y


class ImageAttention(nn.Module):
    """Attention over the places of an image, by 1x1 convolutions, behind a gate that begins near zero."""

    def __init__(self, channels):
        super().__init__()
        self.ask = nn.Conv2d(channels, channels // 8, 1)
        self.answer = nn.Conv2d(channels, channels // 8, 1)
        self.carry = nn.Conv2d(channels, channels, 1)
        self.gate = nn.Parameter(torch.full((1,), 0.1))

    def forward(self, x):
        b, c, h, w = x.size()
        q = self.ask(x).view(b, -1, h * w).permute(0, 2, 1)
        k = self.answer(x).view(b, -1, h * w)
        weights = torch.softmax(torch.bmm(q, k), dim=-1)
        v = self.carry(x).view(b, -1, h * w)
        y = torch.bmm(v, weights.permute(0, 2, 1)).view(b, c, h, w)
        return self.gate * y + x, weights


class TimedBlock(nn.Module):
    """A residual block of a diffusion model: group norms, an embedding of the step, a skip connection."""

    def __init__(self, channels: int, out: int, step_width: int = 15, dropout: float = 0.1):
        super().__init__()
        self.step_width = step_width
        self.of_step = nn.Sequential(nn.SiLU(), nn.Linear(step_width, 2 * out))
        self.first = nn.Sequential(nn.GroupNorm(4, channels), nn.SiLU(), nn.Conv2d(channels, out, 3, padding=1))
        self.norm = nn.GroupNorm(4, out)
        self.second = nn.Conv2d(out, out, 3, padding=1)
        self.dropout = nn.Dropout2d(dropout)
        self.skip = nn.Conv2d(channels, out, 1) if channels != out else nn.Identity()
        nn.init.zeros_(self.second.bias)

    @staticmethod
    def embed(steps: Tensor, width: int, slowest: float = 1000.0) -> Tensor:
        pairs = width // 2
        rates = torch.exp(torch.linspace(0.0, -math.log(slowest), pairs, device=steps.device))
        angles = steps.float()[:, None] * rates[None, :]
        both = torch.cat([angles.sin(), angles.cos()], dim=1)
        if width % 2:
            both = F.pad(both, (0, 1))
        return both

    def forward(self, x: Tensor, steps: Tensor) -> Tensor:
        h = self.first(x)
        scale, shift = self.of_step(self.embed(steps, self.step_width))[:, :, None, None].chunk(2, dim=1)
        h = self.norm(h) * (1 + scale) + shift
        h = self.second(self.dropout(F.silu(h)))
        return F.interpolate(self.skip(x) + h, scale_factor=2.0, mode="nearest")


def shifted(x, by, scale):
    return torch.addcmul(by[:, None], x, 1 + scale[:, None])


class ConditionedBlock(nn.Module):
    """A block whose norms and gates follow a condition."""

    def __init__(self, width, heads, ratio=2.0):
        super().__init__()
        self.plain_a = nn.LayerNorm(width, elementwise_affine=False, eps=EPSILON)
        self.attention = PackedAttention(width, heads=heads, bias=True)
        self.plain_b = nn.LayerNorm(width, elementwise_affine=False, eps=EPSILON)
        self.mlp = TwoLayers(width, int(width * ratio), act=partial(nn.GELU, approximate="tanh"))
        self.condition = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width, bias=True))
        nn.init.constant_(self.condition[-1].bias, 0.1)

    def forward(self, x, c):
        by_a, scale_a, gate_a, by_b, scale_b, gate_b = self.condition(c).chunk(6, dim=1)
        x = x + gate_a.unsqueeze(1) * self.attention(shifted(self.plain_a(x), by_a, scale_a))
        return x + gate_b.unsqueeze(1) * self.mlp(shifted(self.plain_b(x), by_b, scale_b))


# Positions.


class BucketedAttention(nn.Module):
    """Attention without a scale, whose biases are learned for buckets of distances: near ones singly, far ones by logarithms."""

    def __init__(self, config: SimpleNamespace):
        super().__init__()
        self.causal = config.causal
        self.buckets = config.buckets
        self.far = config.far
        self.heads = config.heads
        self.width = self.heads * config.head_width
        self.ask = nn.Linear(config.width, self.width, bias=False)
        self.answer = nn.Linear(config.width, self.width, bias=False)
        self.carry = nn.Linear(config.width, self.width, bias=False)
        self.last = nn.Linear(self.width, config.width, bias=False)
        self.bias_of = nn.Embedding(self.buckets, self.heads)
        self.rate = config.dropout

    @staticmethod
    def bucket_of(distance, both_ways=True, buckets=32, far=128):
        first = 0
        if both_ways:
            buckets //= 2
            first += (distance > 0).to(torch.long) * buckets
            distance = torch.abs(distance)
        else:
            distance = -torch.min(distance, torch.zeros_like(distance))
        singly = buckets // 2
        steps = torch.log(distance.float() / singly) / math.log(far / singly) * (buckets - singly)
        by_log = torch.min(singly + steps.to(torch.long), torch.full_like(distance, buckets - 1))
        first += torch.where(distance < singly, distance, by_log)
        return first

    def biases(self, queries, keys):
        device = self.bias_of.weight.device
        rows = torch.arange(queries, dtype=torch.long, device=device)[:, None]
        columns = torch.arange(keys, dtype=torch.long, device=device)[None, :]
        bucket = self.bucket_of(columns - rows, both_ways=(not self.causal), buckets=self.buckets, far=self.far)
        return self.bias_of(bucket).permute([2, 0, 1]).unsqueeze(0)

    def forward(self, x, memory=None):
        batch, tokens = x.shape[:2]
        source = x if memory is None else memory

        def by_head(t):
            return t.view(batch, -1, self.heads, self.width // self.heads).transpose(1, 2)

        q, k, v = by_head(self.ask(x)), by_head(self.answer(source)), by_head(self.carry(source))
        scores = torch.matmul(q, k.transpose(3, 2))
        scores += self.biases(tokens, source.shape[1])
        weights = nn.functional.softmax(scores.float(), dim=-1).type_as(scores)
        weights = nn.functional.dropout(weights, p=self.rate, training=self.training)
        mixed = torch.matmul(weights, v).transpose(1, 2).contiguous().view(batch, -1, self.width)
        return self.last(mixed)


def quarter_turn(x):
    """(a, b) -> (-b, a), by halves"""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)


def turned(q, k, cos, sin):
    return q * cos + quarter_turn(q) * sin, k * cos + quarter_turn(k) * sin


class Angles(nn.Module):
    """Cosines and sines of as many places as were asked for; not part of the state."""

    def __init__(self, size, base=10000, longest=32):
        super().__init__()
        speeds = base ** (-torch.arange(0, size, 2).float() / size)
        self.register_buffer("speeds", speeds, persistent=False)
        angles = torch.einsum("t,f->tf", torch.arange(longest).type_as(self.speeds), self.speeds)
        angles = torch.cat((angles, angles), dim=-1)
        self.register_buffer("cosines", angles.cos()[None, None, :, :], persistent=False)
        self.register_buffer("sines", angles.sin()[None, None, :, :], persistent=False)

    def forward(self, x, tokens: int):
        return self.cosines[:, :, :tokens, ...].to(dtype=x.dtype), self.sines[:, :, :tokens, ...].to(dtype=x.dtype)


class RotaryAttention(nn.Module):
    """Causal attention with rotary places and PyTorch's fused function."""

    def __init__(self, width: int, heads: int, dropout: float = 0.1):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.rate = dropout
        for name in ("ask", "answer", "carry", "last"):
            setattr(self, name, nn.Linear(width, width, bias=False))
        self.angles = Angles(self.size)

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.size()
        q = self.ask(x).view(b, t, self.heads, self.size).transpose(1, 2)
        k = self.answer(x).view(b, t, self.heads, self.size).transpose(1, 2)
        v = self.carry(x).view(b, t, self.heads, self.size).transpose(1, 2)
        cos, sin = self.angles(v, tokens=t)
        q, k = turned(q, k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=self.rate if self.training else 0.0, is_causal=True)
        return self.last(y.transpose(1, 2).contiguous().view(b, t, -1))


def circle(size: int, longest: int, base: float = 10000.0) -> Tensor:
    """A complex number of length one for each place and pair of features."""
    speeds = 1.0 / (base ** (torch.arange(0, size, 2)[: size // 2].float() / size))
    return torch.polar(torch.ones(longest, size // 2), torch.outer(torch.arange(longest, device=speeds.device), speeds))


def turn_pairs(x: Tensor, by: Tensor) -> Tensor:
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    by = by.view(1, pairs.shape[1], 1, pairs.shape[-1])
    return torch.view_as_real(pairs * by).flatten(3).type_as(x)


def copied(x: torch.Tensor, times: int) -> torch.Tensor:
    """(B, T, heads, size) -> (B, T, heads * times, size)"""
    b, t, heads, size = x.shape
    if times == 1:
        return x
    return x[:, :, :, None, :].expand(b, t, heads, times, size).reshape(b, t, heads * times, size)


class RootNorm(nn.Module):
    """A norm without mean, computed in float32."""

    def __init__(self, width: int, eps: float = 1e-6):
        super().__init__()
        self.eps = eps
        self.gain = nn.Parameter(torch.ones(width))

    def _unit(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        return self._unit(x.float()).type_as(x) * self.gain


class ComplexRotaryBlock(nn.Module):
    """Grouped heads, places by complex numbers, a norm of its own and a gated feed-forward part."""

    def __init__(self, width: int, heads: int, groups: Optional[int] = None, multiple: int = 8):
        super().__init__()
        self.groups = heads if groups is None else groups
        self.heads, self.size = heads, width // heads
        self.times = self.heads // self.groups
        self.ask = nn.Linear(width, heads * self.size, bias=False)
        self.answer = nn.Linear(width, self.groups * self.size, bias=False)
        self.carry = nn.Linear(width, self.groups * self.size, bias=False)
        self.last = nn.Linear(heads * self.size, width, bias=False)
        hidden = int(8 * width / 3)
        hidden = multiple * ((hidden + multiple - 1) // multiple)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        self.norm_a = RootNorm(width, eps=1e-5)
        self.norm_b = RootNorm(width)
        self.circle = circle(self.size, 32)  # a plain attribute: no buffer

    def attend(self, x: Tensor, by: Tensor, hidden: Optional[Tensor]) -> Tensor:
        b, t, _ = x.shape
        q, k, v = self.ask(x), self.answer(x), self.carry(x)
        q = turn_pairs(q.view(b, t, self.heads, self.size), by)
        k = turn_pairs(k.view(b, t, self.groups, self.size), by)
        v = v.view(b, t, self.groups, self.size)
        keys, values = copied(k, self.times).transpose(1, 2), copied(v, self.times).transpose(1, 2)
        q = q.transpose(1, 2)
        scores = torch.matmul(q, keys.transpose(2, 3)) / math.sqrt(self.size)
        if hidden is not None:
            scores = scores + hidden
        weights = F.softmax(scores.float(), dim=-1).type_as(q)
        return self.last(torch.matmul(weights, values).transpose(1, 2).contiguous().view(b, t, -1))

    def forward(self, x: Tensor) -> Tensor:
        t = x.shape[1]
        hidden = None
        if t > 1:
            hidden = torch.full((t, t), NEGATIVE, device=x.device)
            hidden = torch.triu(hidden, diagonal=1)
        h = x + self.attend(self.norm_a(x), self.circle[:t], hidden)
        y = self.norm_b(h)
        return h + self.down(F.silu(self.gate(y)) * self.up(y))


def slopes_of(heads):
    """One slope for each head; the function calls itself where the number of heads is no power of two."""

    def halving(count):
        return [2 ** (-8 * (i + 1) / count) for i in range(count)]

    if math.log2(heads).is_integer():
        return halving(heads)
    below = 2 ** math.floor(math.log2(heads))
    return halving(below) + slopes_of(2 * below)[::2][: heads - below]


class SlopedAttention(nn.Module):
    """Causal attention that lowers the scores of far keys, by a slope for each head."""

    def __init__(self, width, heads, dropout=0.1):
        super().__init__()
        self.heads = heads
        self.scale = (width // heads) ** -0.5
        self.packed = nn.Linear(width, 3 * width, bias=False)
        self.register_buffer("slopes", torch.tensor(slopes_of(heads)).view(heads, 1, 1))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        b, t, _ = x.shape
        k, q, v = self.packed(x).chunk(3, dim=-1)
        k = k.view(b, t, self.heads, -1).permute(0, 2, 3, 1)  # tokens last already
        q = q.view(b, t, self.heads, -1).transpose(1, 2)
        v = v.view(b, t, self.heads, -1).transpose(1, 2)
        places = torch.arange(t, device=x.device)
        bias = (self.slopes * (places[None, :] - places[:, None])).unsqueeze(0)
        scores = torch.matmul(q, k) * self.scale + bias
        later = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
        scores = scores.masked_fill(later, NEGATIVE)
        weights = self.dropout(scores.softmax(-1))
        return torch.matmul(weights, v).transpose(1, 2).flatten(2)


# Heads that share keys, windows, masks.


class OneKeyHead(nn.Module):
    """Many queries for one head of keys and values."""

    def __init__(self, width, heads=4, size=8, dropout=0.1):
        super().__init__()
        self.heads = heads
        self.scale = size**-0.5
        self.parts = (heads * size, size, size)
        self.packed = nn.Linear(width, sum(self.parts), bias=False)
        self.last = nn.Linear(heads * size, width, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        b, n, h = *x.shape[:2], self.heads
        q, k, v = self.packed(x).split(self.parts, dim=-1)
        q = q.reshape(b, n, h, -1).transpose(1, 2) * self.scale
        k, v = k.unsqueeze(1).expand(-1, h, -1, -1), v.unsqueeze(1).expand(-1, h, -1, -1)
        scores = einsum("b h i d, b h j d -> b h i j", q, k)
        weights = self.dropout(scores.softmax(dim=-1))
        mixed = einsum("b h i j, b h j d -> b h i d", weights, v)
        return self.last(mixed.transpose(1, 2).reshape(b, n, -1))


class GroupedAttention(nn.Module):
    """Groups of queries that share keys and values; arguments by keyword only."""

    def __init__(self, *, width: int, heads: int, groups: int, dropout: float = 0.1, dtype=None, bias: bool = False):
        super().__init__()
        assert width % heads == 0 and heads % groups == 0, "heads have to fit"
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.answer = nn.Linear(width, groups * self.size, bias=bias, dtype=dtype)
        self.carry = nn.Linear(width, groups * self.size, bias=bias, dtype=dtype)
        self.ask = nn.Linear(width, width, bias=bias, dtype=dtype)
        self.last = nn.Linear(width, width, bias=False, dtype=dtype)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        b, t, c = x.shape
        q = self.ask(x).view(b, t, self.heads, self.size).transpose(1, 2)
        k = self.answer(x).view(b, t, self.groups, self.size).transpose(1, 2)
        v = self.carry(x).view(b, t, self.groups, self.size).transpose(1, 2)
        k = k.repeat_interleave(self.heads // self.groups, dim=1)
        v = v.repeat_interleave(self.heads // self.groups, dim=1)
        scores = q @ k.transpose(2, 3)
        later = torch.triu(torch.ones(t, t, device=x.device), diagonal=1).bool()
        scores.masked_fill_(later, -torch.inf)
        weights = torch.softmax(scores / k.shape[-1] ** 0.5, dim=-1)
        weights = self.dropout(weights)
        mixed = (weights @ v).transpose(1, 2)
        mixed = mixed.reshape(b, t, c)
        return self.last(mixed)


class SlidingWindow(nn.Module):
    """A query sees its own key and the last `window - 1` before it."""

    def __init__(self, width: int, heads: int, window: int = 3):
        super().__init__()
        self.heads, self.window = heads, window
        self.weight = nn.Parameter(torch.empty(3 * width, width))
        self.bias = nn.Parameter(torch.zeros(3 * width))
        self.last = nn.Linear(width, width)
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.heads, -1).transpose(1, 2) for t in F.linear(x, self.weight, self.bias).chunk(3, -1))
        row, column = torch.arange(T, device=x.device).unsqueeze(1), torch.arange(T, device=x.device).unsqueeze(0)
        keep = (column <= row) & (row - column < self.window)
        scores = torch.einsum("bhid,bhjd->bhij", q, k) / (C // self.heads) ** 0.5
        weights = torch.softmax(scores.masked_fill(~keep, torch.finfo(scores.dtype).min), dim=-1)
        return self.last(torch.einsum("bhij,bhjd->bhid", weights, v).transpose(1, 2).reshape(B, T, C))


class CrossAttention(nn.Module):
    """Attention from x to a memory of another width; `padding` is True where the memory is padding."""

    def __init__(self, width: int, memory_width: int, heads: int = 4, dropout: float = 0.1):
        super().__init__()
        self.heads = heads
        self.ask = nn.Linear(width, width, bias=False)
        self.both = nn.Linear(memory_width, 2 * width, bias=False)
        self.last = nn.Sequential(nn.Linear(width, width), nn.Dropout(dropout))
        self.rate = dropout

    def forward(
        self, x: Tensor, memory: Tensor, padding: Optional[Tensor] = None, need_weights: bool = False
    ) -> Tuple[Tensor, Optional[Tensor]]:
        n, l, e = x.shape
        s = memory.shape[1]
        q = self.ask(x).reshape(n, l, self.heads, e // self.heads).permute(0, 2, 1, 3)
        k, v = self.both(memory).reshape(n, s, 2, self.heads, e // self.heads).permute(2, 0, 3, 1, 4)
        energy = q @ k.mT * (e // self.heads) ** -0.5
        if padding is not None:
            energy = energy.masked_fill(padding[:, None, None, :], float("-inf"))
        weights = F.softmax(energy, -1)
        dropped = F.dropout(weights, self.rate, self.training)
        y = self.last((dropped @ v).permute(0, 2, 1, 3).reshape(n, l, e))
        if need_weights:
            return y, weights.mean(dim=1)
        return y, None


class ItemMask(nn.Module):
    """One mask (L, S) for each item, which the heads share; `bias` is added to the scores. Keeps the weights to look at."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(4)])
        self.seen = None

    def forward(self, query, key, value, mask, bias):
        items = query.size(0)
        mask = mask.unsqueeze(1)
        q, k, v = [
            layer(t).view(items, -1, self.heads, layer.out_features // self.heads).transpose(1, 2)
            for layer, t in zip(self.layers, (query, key, value))
        ]
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))
        scores = scores + bias
        scores = scores.masked_fill(mask == 0, -1e9)
        weights = scores.softmax(dim=-1)
        self.seen = weights.detach()
        mixed = (weights @ v).transpose(1, 2).contiguous().view(items, -1, self.heads * v.size(-1))
        return self.layers[-1](mixed)


class WeightsAfterDropout(nn.Module):
    """Returns the weights after they were dropped; its scale divides the queries, and is not that of a head."""

    def __init__(self, divisor, rate=0.1):
        super().__init__()
        self.divisor = divisor
        self.dropout = nn.Dropout(rate)

    def forward(self, q, k, v, mask=None):
        weights = torch.matmul(q / self.divisor, k.transpose(2, 3))
        if mask is not None:
            weights = weights.masked_fill(mask == 0, -1e9)
        weights = self.dropout(F.softmax(weights, dim=-1))
        return torch.matmul(weights, v), weights


class FusedFunction(nn.Module):
    """PyTorch's function with a mask, and once more with its causal flag, which is aligned to the first key."""

    def forward(self, q, k, v, mask):
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        z = F.scaled_dot_product_attention(q[:, :, -2:], k, v, is_causal=True, scale=0.5)
        return y, z


class LibraryAttention(nn.Module):
    """torch.nn.MultiheadAttention with a bool mask, padding and weights."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, dropout=0.1, batch_first=True)
        self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(0.2)
        named = OrderedDict([("wide", nn.Linear(width, width * 2)), ("act", nn.GELU()), ("back", nn.Linear(width * 2, width))])
        self.mlp = nn.Sequential(named)

    def forward(self, x: Tensor, padding: Tensor):
        later = torch.ones(x.size(1), x.size(1), dtype=torch.bool, device=x.device).triu(1)
        n = self.norm(x)
        y, weights = self.attention(n, n, n, attn_mask=later, key_padding_mask=padding)
        return x + self.mlp(x + self.drop(y)), weights


class LibraryEncoder(nn.Module):
    """torch.nn's own layers in a stack."""

    def __init__(self, words: int, width: int, heads: int, hidden: int, layers: int, dropout: float = 0.1):
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, heads, hidden, dropout, activation="gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.embedding = nn.Embedding(words, width)
        self.head = nn.Linear(width, words)
        self.first_weights()

    def first_weights(self) -> None:
        self.embedding.weight.data.uniform_(-0.1, 0.1)
        self.head.bias.data.zero_()
        self.head.weight.data.normal_(std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.size(1))
        return self.head(self.encoder(self.embedding(tokens), mask))


# Other kinds of attention.


class LinearAttention(nn.Module):
    """Attention in linear time, with features elu(x) + 1."""

    def __init__(self, width, heads=4, causal=False, eps=1e-6):
        super().__init__()
        self.heads, self.causal, self.eps = heads, causal, eps
        self.packed = nn.Linear(width, 3 * width, bias=False)
        self.last = nn.Linear(width, width)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = map(lambda t: t.reshape(b, n, self.heads, d // self.heads), self.packed(x).chunk(3, dim=-1))
        q, k = F.elu(q) + 1, F.elu(k) + 1
        if self.causal:
            sums = torch.einsum("bthk,bthv->bthkv", k, v).cumsum(dim=1)
            norm = 1 / (torch.einsum("bthk,bthk->bth", q, k.cumsum(1)) + self.eps)
            y = torch.einsum("bthk,bthkv,bth->bthv", q, sums, norm)
        else:
            sums = torch.einsum("bthk,bthv->bhkv", k, v)
            norm = 1 / (torch.einsum("bthk,bhk->bth", q, k.sum(dim=1)) + self.eps)
            y = torch.einsum("bthk,bhkv,bth->bthv", q, sums, norm)
        return self.last(y.reshape(b, n, d))


def right_angles(rows, columns):
    """Random directions, at right angles in blocks, as long as normal vectors are."""
    blocks = []
    for _ in range(rows // columns):
        q, _ = torch.linalg.qr(torch.randn(columns, columns))
        blocks.append(q.t())
    left = rows % columns
    if left > 0:
        q, _ = torch.linalg.qr(torch.randn(columns, columns))
        blocks.append(q.t()[:left])
    lengths = torch.randn(rows, columns).norm(dim=1)
    return lengths[:, None] * torch.cat(blocks)


class RandomFeatures(nn.Module):
    """The softmax's kernel by random features, which are a buffer."""

    def __init__(self, width, heads=4, features=None):
        super().__init__()
        self.heads, self.size = heads, width // heads
        features = features if features is not None else int(self.size * math.log(self.size))
        self.register_buffer("directions", right_angles(features, self.size))
        self.ask, self.answer, self.carry = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.last = nn.Linear(width, width)

    def features_of(self, x, of_query, eps=1e-4):
        x = x * x.shape[-1] ** -0.25
        along = torch.einsum("...td,fd->...tf", x, self.directions)
        length = x.square().sum(dim=-1, keepdim=True) / 2.0
        if of_query:
            highest = torch.amax(along, dim=-1, keepdim=True).detach()
        else:
            highest = torch.amax(along, dim=(-1, -2), keepdim=True).detach()
        return self.directions.shape[0] ** -0.5 * (torch.exp(along - length - highest) + eps)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = [layer(x).view(b, n, self.heads, self.size).transpose(1, 2) for layer in (self.ask, self.answer, self.carry)]
        q, k = self.features_of(q, True), self.features_of(k, of_query=False)
        norm = 1.0 / torch.einsum("...tf,...f->...t", q, k.sum(dim=-2).type_as(q))
        y = torch.einsum("...fd,...tf,...t->...td", k.mT @ v, q, norm)
        return self.last(y.transpose(1, 2).reshape(b, n, -1))


class LSTMAttention(nn.Module):
    """A bidirectional LSTM whose outputs are added up by an additive attention."""

    def __init__(self, words: int, width: int, hidden: int, classes: int, layers: int = 2, dropout: float = 0.2):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, hidden, num_layers=layers, batch_first=True, bidirectional=True, dropout=dropout)
        self.mix = nn.Linear(2 * hidden, hidden)
        self.score = nn.Linear(hidden, 1, bias=False)
        self.fc = nn.Linear(2 * hidden, classes)

    def forward(self, tokens, lengths):
        outputs, (state, cell) = self.lstm(self.embedding(tokens))
        energy = self.score(torch.tanh(self.mix(outputs))).squeeze(2)
        inside = torch.arange(tokens.size(1), device=tokens.device)[None, :] < lengths[:, None]
        energy = energy.masked_fill(inside.logical_not(), -1e10)
        weights = torch.softmax(energy, dim=1)
        pooled = torch.bmm(weights.unsqueeze(1), outputs).squeeze(1)
        last = torch.cat((state[-2], state[-1]), dim=1)
        return self.fc(pooled + last) * cell.mean(), weights


class DecoderStep(nn.Module):
    """One step of a decoder: a GRU cell, attention to the encoder's outputs, a word. Without a state it begins at zero."""

    def __init__(self, hidden: int, words: int, dropout: float = 0.1):
        super().__init__()
        self.hidden = hidden
        self.embedding = nn.Embedding(words, hidden)
        self.cell = nn.GRUCell(hidden, hidden)
        self.join = nn.Linear(hidden * 2, hidden)
        self.fc = nn.Linear(hidden, words)
        self.dropout = nn.Dropout(dropout)

    def start(self, items: int) -> Tensor:
        return torch.zeros(items, self.hidden)

    def forward(self, word: Tensor, outputs: Tensor, state: Optional[Tensor] = None):
        if state is None:
            state = self.start(word.size(0)).to(outputs.device)
        state = self.cell(self.dropout(self.embedding(word)), state)
        weights = F.softmax(torch.sum(state.unsqueeze(1) * outputs, dim=2), dim=1).unsqueeze(1)
        context = weights.bmm(outputs)
        joined = torch.tanh(self.join(torch.cat([state, context.squeeze(1)], 1)))
        return F.log_softmax(self.fc(joined), dim=1), state, weights


class GraphAttention(nn.Module):
    """Attention over the edges of a graph, with an additive score and a leaky ReLU."""

    def __init__(self, width, out, dropout=0.1, slope=0.2, last=False):
        super().__init__()
        self.dropout = dropout
        self.last = last
        self.turn = nn.Parameter(torch.zeros(size=(width, out)))
        nn.init.xavier_uniform_(self.turn.data, gain=1.414)
        self.ends = nn.Parameter(torch.zeros(size=(2 * out, 1)))
        nn.init.xavier_uniform_(self.ends.data, gain=1.414)
        self.leaky = nn.LeakyReLU(slope)

    def forward(self, nodes, edges):
        h = torch.mm(nodes, self.turn)
        half = self.turn.shape[1]
        scores = self.leaky(h @ self.ends[:half, :] + (h @ self.ends[half:, :]).T)
        scores = torch.where(edges > 0, scores, -9e15 * torch.ones_like(scores))
        weights = F.dropout(F.softmax(scores, dim=1), self.dropout, training=self.training)
        y = torch.matmul(weights, h)
        return y if self.last else F.elu(y)


class Pooling(nn.Module):
    """Base class: what the scores are, a derived class says."""

    def __init__(self, width):
        super().__init__()
        self.width = width

    def build(self, width):
        raise NotImplementedError

    def score(self, x):
        raise NotImplementedError

    def normalized(self, scores, temperature=1.0):
        """Used by derived classes only."""
        return torch.softmax(scores / temperature, dim=1)

    def forward(self, x):
        weights = self.score(x)
        pooled = (weights * x).sum(dim=1)
        return pooled, weights.squeeze(-1)


class LearnedPooling(Pooling):
    temperature = 2.0

    def __init__(self, width):
        super().__init__(width)
        self.build(width)

    def build(self, width):
        self.norm = nn.LayerNorm(width)
        self.direction = nn.Linear(width, 1)

    def score(self, x):
        return self.normalized(self.direction(self.norm(x)), self.temperature)


class HeadsAsAxis(nn.Module):
    """Projections that are tensors with an axis for the heads, by einsum alone."""

    def __init__(self, width, heads, size):
        super().__init__()
        self.ask = nn.Parameter(torch.empty((heads, width, size)))
        self.answer = nn.Parameter(torch.empty((heads, width, size)))
        self.carry = nn.Parameter(torch.empty((heads, width, size)))
        self.last = nn.Parameter(torch.empty((heads, size, width)))
        self.bias = nn.Parameter(torch.zeros((width)))
        for weight in (self.ask, self.answer, self.carry, self.last):
            nn.init.normal_(weight, std=0.2)
        self.size = size
        self.register_buffer("never", torch.tensor(-1e5, dtype=torch.float32))

    def forward(self, x):
        q = torch.einsum("btw,nws->btns", x, self.ask)
        k = torch.einsum("btw,nws->btns", x, self.answer)
        v = torch.einsum("btw,nws->btns", x, self.carry)
        scores = torch.einsum("bqns,bkns->bnqk", q, k) / self.size**0.5
        later = torch.triu(torch.ones(scores.size(-2), scores.size(-1), device=scores.device), diagonal=1).bool()
        scores.masked_fill_(later, self.never)
        weights = scores.softmax(-1)
        mixed = torch.einsum("bkns,bnqk->bqns", v, weights)
        return torch.einsum("bqns,nsw->bqw", mixed, self.last) + self.bias


class HeadsInBatch(nn.Module):
    """The heads are put into the batch by split and cat; norms that may be absent."""

    def __init__(self, of_query, of_key, width, heads, norm=False):
        super().__init__()
        self.width, self.heads = width, heads
        self.ask = nn.Linear(of_query, width)
        self.answer, self.carry = nn.Linear(of_key, width), nn.Linear(of_key, width)
        if norm:
            self.norm_a = nn.LayerNorm(width)
            self.norm_b = nn.LayerNorm(width)
        self.last = nn.Linear(width, width)

    def forward(self, x, y):
        q = self.ask(x)
        k, v = self.answer(y), self.carry(y)
        size = self.width // self.heads
        qs, ks, vs = torch.cat(q.split(size, 2), 0), torch.cat(k.split(size, 2), 0), torch.cat(v.split(size, 2), 0)
        weights = torch.softmax(qs.bmm(ks.transpose(1, 2)) / math.sqrt(size), 2)
        out = torch.cat((qs + weights.bmm(vs)).split(x.size(0), 0), 2)
        out = out if getattr(self, "norm_a", None) is None else self.norm_a(out)
        out = out + F.relu(self.last(out))
        return out if getattr(self, "norm_b", None) is None else self.norm_b(out)


class LearnedPoints(nn.Module):
    """A few learned points stand between the elements of a set: attention twice, by one class used two ways."""

    def __init__(self, width, out, heads, points, norm=True):
        super().__init__()
        self.points = nn.Parameter(torch.Tensor(1, points, out))
        nn.init.xavier_uniform_(self.points)
        self.gather = HeadsInBatch(out, width, out, heads, norm=norm)
        self.spread = HeadsInBatch(width, out, out, heads, norm=norm)

    def forward(self, x):
        return self.spread(x, self.gather(self.points.repeat(x.size(0), 1, 1), x))


class CachedAttention(nn.Module):
    """Keys and values of earlier calls are kept in plain attributes, at most `limit` of them."""

    def __init__(self, width, heads, limit=8):
        super().__init__()
        self.heads, self.limit = heads, limit
        self.packed = nn.Linear(width, 3 * width)
        self.keys = None
        self.values = None

    def reset(self):
        self.keys, self.values = None, None

    def forward(self, x, keep: bool = False):
        B, T, C = x.shape
        q, k, v = self.packed(x).view(B, T, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        if keep:
            if self.keys is not None and self.keys.size(0) == B:
                k = torch.cat([self.keys, k], dim=2)
                v = torch.cat([self.values, v], dim=2)
            self.keys = k[:, :, -self.limit :].detach()
            self.values = v[:, :, -self.limit :].detach()
        else:
            self.reset()
        S = k.size(2)
        later = torch.ones(T, S, dtype=torch.bool, device=x.device).triu(diagonal=S - T + 1)
        weights = (q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))).masked_fill(later, float("-inf")).softmax(dim=-1)
        return (weights @ v).transpose(1, 2).reshape(B, T, C)


# Modules made of modules.


class GatedLayers(nn.Module):
    """The class of the activation is an argument."""

    def __init__(self, width: int, hidden: Optional[int] = None, act=nn.SiLU, bias: bool = False):
        super().__init__()
        hidden = hidden or 2 * width
        self.gate = nn.Linear(width, hidden, bias=bias)
        self.up = nn.Linear(width, hidden, bias=bias)
        self.down = nn.Linear(hidden, width, bias=bias)
        self.act = act()

    def forward(self, x):
        return self.down(self.act(self.gate(x)) * self.up(x))


class LengthNorm(nn.Module):
    """Divides by the length; the scale is one number that is learned."""

    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(math.sqrt(width)))
        self.eps = eps

    def forward(self, x):
        return x * (self.scale / torch.norm(x, dim=-1, keepdim=True).clamp(min=self.eps))


class NormThen(nn.Module):
    """Norm, then whatever module it was given; further arguments are handed on."""

    def __init__(self, width, fn):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fn = fn

    def forward(self, x, **kwargs):
        return self.fn(self.norm(x), **kwargs)


class WrappedTransformer(nn.Module):
    """One wrapper around two classes."""

    def __init__(self, width, depth, heads, hidden, dropout=0.0):
        super().__init__()
        self.layers = nn.ModuleList([])
        for _ in range(depth):
            self.layers.append(
                nn.ModuleList(
                    [
                        NormThen(width, SelfAttention(width, heads, dropout)),
                        NormThen(width, FeedForward(width, hidden, dropout=dropout)),
                    ]
                )
            )

    def forward(self, x, mask=None):
        for attend, feed in self.layers:
            x = attend(x, mask=mask) + x
            x = feed(x) + x
        return x


class Residual(nn.Module):
    """A sum around a module."""

    def __init__(self, fn, scale: float = 1.0):
        super().__init__()
        self.fn = fn
        self.scale = scale

    def forward(self, x):
        return x + self.scale * self.fn(x)


def layers_of(sizes, act=nn.ReLU, final=None):
    """A stack of layers for a list of widths."""
    layers = []
    for i in range(len(sizes) - 1):
        layers.append(nn.Linear(sizes[i], sizes[i + 1]))
        if i < len(sizes) - 2:
            layers.append(act())
    if final is not None:
        layers.append(final)
    return nn.Sequential(*layers)


class BuiltByFunctions(nn.Module):
    """Modules that functions build, wrapped and called one after the other."""

    def __init__(self, width: int, sizes=(32, 48, 32)):
        super().__init__()
        self.first = Residual(layers_of([width, *sizes[1:-1], width], nn.Tanh, final=nn.Dropout(0.1)))
        self.second = Residual(GatedLayers(width, act=nn.Mish), scale=0.5)
        self.third = nn.Sequential(*[Residual(LengthNorm(width)) for _ in range(2)])

    def forward(self, x):
        for stage in (self.first, self.second, self.third):
            x = stage(x)
        return x


def copies(module, n):
    """n copies with weights of their own, which are equal at first."""
    return nn.ModuleList([copy.deepcopy(module) for _ in range(n)])


class CopiedStack(nn.Module):
    """A stack of copies: the first weights are drawn once."""

    def __init__(self, layer: nn.Module, n: int, width: int):
        super().__init__()
        self.layers = copies(layer, n)
        self.norm = nn.LayerNorm(width)
        self.last = nn.Linear(width, width)

    def forward(self, x, mask=None):
        for layer in self.layers:
            x = layer(x, mask)
        return self.last(self.norm(x))


class SharedLayers(nn.Module):
    """One layer, called again and again; two members that hold one module, and two that hold one weight."""

    def __init__(self, width, heads, depth=3):
        super().__init__()
        self.depth = depth
        self.layer = EncoderLayer(width, heads, 2 * width, dropout=0.1, norm_first=True)
        self.again = self.layer
        self.enter = nn.Linear(width, width, bias=False)
        self.leave = nn.Linear(width, width, bias=False)
        self.leave.weight = self.enter.weight

    def forward(self, x):
        x = self.enter(x)
        for _ in range(self.depth):
            x = self.layer(x)
        return self.leave(self.again(x))


class Experts(nn.Module):
    """Every expert computes; the gate keeps the best two. No loop depends on a tensor's numbers."""

    def __init__(self, width: int, experts: int = 4, active: int = 2, dropout: float = 0.1):
        super().__init__()
        self.active = active
        self.experts = nn.ModuleList([GatedLayers(width, 2 * width, act=nn.GELU) for _ in range(experts)])
        self.gate = nn.Linear(width, experts, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
        logits = self.gate(x)
        best, index = torch.topk(logits, self.active, dim=-1)
        gates = torch.zeros_like(logits).scatter(-1, index, best.softmax(dim=-1))
        outputs = torch.stack([expert(x) for expert in self.experts], dim=-2)
        y = (gates.unsqueeze(-1) * outputs).sum(dim=-2)
        share = F.one_hot(index, len(self.experts)).float().mean(dim=(0, 1, 2))
        balance = (logits.softmax(-1).mean(dim=(0, 1)) * share).sum() * len(self.experts)
        return self.dropout(y), balance


class ConvModule(nn.Module):
    """Convolutions over time, a GLU, and a batch norm whose running numbers are buffers."""

    def __init__(self, channels: int, kernel: int = 3, expansion: int = 2):
        super().__init__()
        assert kernel % 2 == 1
        self.norm = nn.LayerNorm(channels)
        self.points = nn.Conv1d(channels, expansion * channels, kernel_size=1)
        self.depth = nn.Conv1d(channels, channels, kernel, padding=(kernel - 1) // 2, groups=channels, bias=False)
        self.batch_norm = nn.BatchNorm1d(channels)
        self.last = nn.Conv1d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x).transpose(1, 2)
        x = F.glu(self.points(x), dim=1)
        x = self.batch_norm(self.depth(x))
        x = x * x.sigmoid()
        return self.last(x).transpose(1, 2)


class TrendAndRest(nn.Module):
    """A moving average over time and what it leaves, each with a layer of its own."""

    def __init__(self, steps: int, kernel: int = 3):
        super().__init__()
        self.side = (kernel - 1) // 2
        self.average = nn.AvgPool1d(kernel_size=kernel, stride=1, padding=0)
        self.of_rest = nn.Linear(steps, steps)
        self.of_trend = nn.Linear(steps, steps)
        self.of_rest.weight = nn.Parameter((1 / steps) * torch.ones([steps, steps]))  # in the place of what was drawn

    def forward(self, x):
        ends = [x[:, :1].repeat(1, self.side, 1), x, x[:, -1:].repeat(1, self.side, 1)]
        trend = self.average(torch.cat(ends, dim=1).mT).mT
        return (self.of_rest((x - trend).mT) + self.of_trend(trend.mT)).transpose(1, 2)


class FourierMixer(nn.Module):
    """Mixes tokens by a Fourier transform."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = TwoLayers(width, 2 * width, drop=0.1)

    def forward(self, x):
        mixed = torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real
        return self.mlp(self.norm(x + mixed)) + x


class Recurrence(nn.Module):
    """A state over time, step by step, with a list of what each step gave."""

    def __init__(self, width, states=4):
        super().__init__()
        self.states = states
        self.log_decay = nn.Parameter(torch.log(torch.arange(1, states + 1, dtype=torch.float32).repeat(width, 1)))
        self.through = nn.Parameter(torch.ones(width))
        self.of_input = nn.Linear(width, 2 * states + 1, bias=False)

    def forward(self, x):
        b, t, w = x.shape
        step, enter, leave = self.of_input(x).split(split_size=[1, self.states, self.states], dim=-1)
        step = F.softplus(step)
        keep = torch.exp(torch.einsum("bto,ws->btws", step, -self.log_decay.exp()))
        add = torch.einsum("bto,bts,btw->btws", step, enter, x)
        state = torch.zeros((b, w, self.states), device=x.device)
        ys = []
        for i in range(t):
            state = keep[:, i] * state + add[:, i]
            ys.append(torch.einsum("bws,bs->bw", state, leave[:, i, :]))
        return torch.stack(ys, dim=1) + x * self.through


# Losses and choices.


class ContrastiveLoss(nn.Module):
    """Two encoders whose outputs are compared; the loss asks for the diagonal."""

    def __init__(self, width: int, joint: int, smoothing: float = 0.1):
        super().__init__()
        self.picture = nn.Linear(width, joint, bias=False)
        self.text = nn.Linear(width, joint, bias=False)
        self.sharpness = nn.Parameter(torch.ones([]) * math.log(1 / 0.1))
        self.loss = nn.CrossEntropyLoss(label_smoothing=smoothing)

    def forward(self, picture: Tensor, text: Tensor):
        p = self.picture(picture)
        t = F.normalize(self.text(text), dim=-1)
        p = p / p.norm(dim=1, keepdim=True)
        logits = self.sharpness.exp() * p @ t.t()
        same = torch.arange(logits.shape[0], device=logits.device)
        return (F.cross_entropy(logits, same) + self.loss(logits.T, same)) / 2


class Codebook(nn.Module):
    """The nearest entry of a table, its loss, and gradients that pass by."""

    def __init__(self, entries: int, width: int, weight: float = 0.25):
        super().__init__()
        self.entries, self.width, self.weight = entries, width, weight
        self.table = nn.Embedding(self.entries, self.width)
        self.table.weight.data.uniform_(-1.0 / self.entries, 1.0 / self.entries)

    def forward(self, x):
        flat = x.contiguous().view(-1, self.width)
        apart = torch.sum(flat**2, dim=1, keepdim=True) - 2 * flat @ self.table.weight.t()
        apart = apart + torch.sum(self.table.weight**2, dim=1)
        nearest = torch.argmin(apart, dim=1)
        chosen = torch.zeros(nearest.shape[0], self.entries).to(x)
        chosen.scatter_(1, nearest.unsqueeze(1), 1)
        y = torch.matmul(chosen, self.table.weight).view(x.shape)
        loss = F.mse_loss(y, x.detach()) + self.weight * F.mse_loss(y.detach(), x)
        y = x + (y - x).detach()
        share = torch.mean(chosen, dim=0)
        spread = torch.exp(-torch.sum(share * torch.log(share + 1e-10)))
        return y, loss, spread, nearest.view(x.shape[:-1])


def with_weights(layer, gain=2**0.5, bias=0.0):
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.constant_(layer.bias, bias)
    return layer


class PolicyAndValue(nn.Module):
    """A policy and a value over one body, with the loss of one step; orthogonal first weights by a helper function."""

    def __init__(self, seen: int, actions: int, hidden: int = 32, noisy: bool = False):
        super().__init__()
        self.body = nn.Sequential(
            with_weights(nn.Linear(seen, hidden)), nn.Tanh(), with_weights(nn.Linear(hidden, hidden)), nn.Tanh()
        )
        self.policy = with_weights(nn.Linear(hidden, actions), gain=0.01)
        self.value = with_weights(nn.Linear(hidden, 1), gain=1.0)
        self.noise = nn.Parameter(torch.zeros(1, actions)) if noisy else None

    def forward(self, state, action, gain, before, clip: float = 0.2):
        h = self.body(state)
        logs = F.log_softmax(self.policy(h), dim=-1)
        now = logs.gather(1, action.unsqueeze(1)).squeeze(1)
        entropy = -(logs.exp() * logs).sum(dim=-1)
        ratio = (now - before).exp()
        kept = torch.min(ratio * gain, torch.clamp(ratio, 1 - clip, 1 + clip) * gain)
        value = self.value(h).flatten()
        return -kept.mean() + 0.5 * F.smooth_l1_loss(value, gain) - 0.01 * entropy.mean(), value


class KeepsBest(nn.Module):
    """Keeps the tokens with the highest scores, in their order: sort, topk, gather, where."""

    def __init__(self, width: int, keep: float = 0.5):
        super().__init__()
        self.score = nn.Linear(width, 1)
        self.keep = keep

    def forward(self, x):
        B, N, C = x.shape
        left = max(1, int(self.keep * N))
        scores = self.score(x).squeeze(-1)
        top, index = scores.topk(left, dim=1, largest=True, sorted=True)
        index, _ = torch.sort(index, dim=1)
        kept = torch.gather(x, dim=1, index=index.unsqueeze(-1).expand(-1, -1, C))
        soft = torch.where(scores >= top[:, -1:], scores, torch.full_like(scores, -1e4)).softmax(-1)
        rest = (x * (1 - soft).unsqueeze(-1)).sum(dim=1, keepdim=True) / N
        median = scores.sort(dim=-1, descending=True).values[:, N // 2]
        return torch.cat([kept, rest], dim=1), median


# How things are written in Python.


class ConfiguredByDict(nn.Module):
    """The configuration is a dict; some keys may be missing."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        width = config["width"]
        self.dropout = nn.Dropout(config.get("dropout", 0.1))
        self.layers = nn.ModuleList()
        for _ in range(config["layers"]):
            self.layers.append(nn.Linear(width, width, bias=config["bias"]))
        self.residual = config["residual"] if "residual" in config else True

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            y = self.dropout(torch.relu(layer(x)))
            x = x + y if self.residual else y
            if i == len(self.layers) - 1:
                x = x / self.config["temperature"]
        return x


class ConfiguredByNamespace(nn.Module):
    """The configuration is any object that has the attributes."""

    def __init__(self, config):
        super().__init__()
        self.attention = SelfAttention(config.width, config.heads, getattr(config, "attention_dropout", 0.0))
        self.norm = nn.LayerNorm(config.width, eps=config.eps)
        self.mode = config.mode
        self.sizes = config.sizes
        self.act = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}[config.act]

    def forward(self, x):
        x = self.act(self.attention(x))
        if self.mode == "mean":
            x = x.mean(dim=1)
        elif self.mode in ("first", "cls"):
            x = x[:, 0]
        else:
            raise ValueError(f"unknown mode {self.mode}")
        return self.norm(x).unflatten(-1, self.sizes)


def split_all(heads, *tensors):
    """Moves the heads of each tensor before the tokens."""
    return tuple(t.reshape(*t.shape[:-1], heads, t.shape[-1] // heads).transpose(-3, -2) for t in tensors)


def weighted_sum(*terms, weights):
    total = 0
    for term, weight in zip(terms, weights):
        total = total + weight * term
    return total


class StarsEverywhere(nn.Module):
    """Stars of known length: in calls, in tuples, in assignments; arguments by keyword only."""

    def __init__(self, *, width: int, heads: int = 4):
        super().__init__()
        self.heads = heads
        self.packed = nn.Linear(width, 3 * width)
        self.shape = (heads, width // heads)

    def forward(self, x, *, scale: float = 0.5):
        q, k, v = split_all(self.heads, *self.packed(x).chunk(3, dim=-1))
        *lead, tokens, size = q.shape
        scores = torch.matmul(q, k.transpose(-1, -2)) * scale
        y = scores.softmax(-1).matmul(v)
        y = y.transpose(-3, -2).reshape(*x.shape[:-1], *self.shape).flatten(-2)
        flat = y.reshape(-1, y.shape[-1])
        mixed = weighted_sum(y, x, flat.view(*x.size()), weights=[0.5, 0.25, 0.125])
        return mixed, x.new_full((1,), float(tokens * size + len(lead)))


class ReturnsMany(nn.Module):
    """A list of states, a tuple inside of a tuple, tensors that are None at times."""

    def __init__(self, width: int, depth: int = 2):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])
        self.rnn = nn.GRU(width, width, batch_first=True)

    def step(self, x, layer) -> Tuple[Tensor, Tensor]:
        y = torch.tanh(layer(x))
        return y, y.mean(dim=-1)

    def forward(self, x: Tensor, state: Optional[Tensor] = None, scale: Optional[Tensor] = None):
        states: List[Tensor] = []
        means = ()
        for layer in self.layers:
            x, mean = self.step(x, layer)
            states.append(x)
            means += (mean,)
        out, state = self.rnn(x, state)
        if scale is not None:
            out = out * scale
        return states, (out, state), torch.stack(means)


class MethodsOfAllKinds(nn.Module):
    """A static method, a class method, a property, a constant of the class, and one method that calls another."""

    expansion = 2
    NORM_EPS: float = 1e-5

    def __init__(self, width, heads=4, dropout=0.1):
        super().__init__()
        self.width, self.heads = width, heads
        self.norm = nn.LayerNorm(width, eps=self.NORM_EPS)
        self.up = nn.Linear(width, width * self.expansion)
        self.down = nn.Linear(width * self.expansion, width)
        self.p = dropout

    @property
    def size(self) -> int:
        return self.width // self.heads

    @staticmethod
    def scale_of(size: int) -> float:
        return 1.0 / math.sqrt(size)

    @classmethod
    def later(cls, tokens: int, device=None) -> Tensor:
        return torch.full((tokens, tokens), float("-inf"), device=device).triu(cls.expansion - 1)

    def heads_of(self, x):
        return x.unflatten(-1, (self.heads, self.size)).transpose(1, 2)

    def attend(self, x):
        h = self.heads_of(x)
        scores = h @ h.transpose(-2, -1) * self.scale_of(self.size) + self.later(x.size(1), x.device)
        return F.dropout(scores.softmax(dim=-1), p=self.p, training=self.training) @ h

    def forward(self, x):
        y = self.attend(self.norm(x)).transpose(1, 2).flatten(2)
        return x + self.down(F.gelu(self.up(y)))


class FactoryArguments(nn.Module):
    """device and dtype are handed down."""

    __constants__ = ["heads"]

    def __init__(self, width: int, heads: int, bias: bool = True, device=None, dtype=None) -> None:
        factory = {"device": device, "dtype": dtype}
        super().__init__()
        self.heads = heads
        self.weight = nn.Parameter(torch.empty((3 * width, width), **factory))
        if bias:
            self.bias = nn.Parameter(torch.empty(3 * width, **factory))
        else:
            self.register_parameter("bias", None)
        self.last = nn.Linear(width, width, bias=bias, **factory)
        self.register_buffer("places", torch.linspace(0.0, 1.0, 16, **factory), persistent=False)
        self.first_weights()

    def first_weights(self):
        nn.init.xavier_uniform_(self.weight)
        nn.init.kaiming_uniform_(self.last.weight, a=math.sqrt(5))
        if self.bias is not None:
            nn.init.constant_(self.bias, 0.0)
            nn.init.normal_(self.last.bias, 0.0, 0.1)

    def forward(self, x):
        x = x + self.places[: x.size(1)].view(1, -1, 1)
        q, k, v = F.linear(x, self.weight, self.bias).chunk(3, dim=-1)
        q, k, v = [t.unflatten(-1, [self.heads, -1]).transpose(1, 2) for t in (q, k, v)]
        scores = q @ k.transpose(-2, -1) / torch.sqrt(torch.tensor(q.size(-1), dtype=x.dtype))
        return self.last((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class OptionalParts(nn.Module):
    """Parts that are there or not: None members, and/or on values, a default that hangs on another argument."""

    def __init__(
        self,
        width: int,
        hidden: Optional[int] = None,
        out: Optional[int] = None,
        norm: Union[str, None] = "layer",
        project: bool = True,
    ):
        super().__init__()
        hidden = hidden or width * 2
        out = width if out is None else out
        self.fc_a = nn.Linear(width, hidden)
        self.fc_b = nn.Linear(hidden, out)
        self.norm = None
        if norm == "layer":
            self.norm = nn.LayerNorm(out)
        elif norm == "rms":
            self.norm = nn.RMSNorm(out)
        self.project = nn.Linear(width, out, bias=False) if project and width != out else None

    def forward(self, x, gate=None, closed: bool = False):
        y = self.fc_b(F.leaky_relu(self.fc_a(x), 0.1))
        if self.norm is not None:
            y = self.norm(y)
        use_gate = gate is not None and not closed
        if use_gate:
            y = y * torch.sigmoid(gate)
        return y + (self.project(x) if self.project is not None else x)


class SkipLevels(nn.Module):
    """Down and up again over tokens, with what was seen on the way down: pop, reversed, zip, slices of lists of modules."""

    def __init__(self, widths=(8, 16, 24)):
        super().__init__()
        self.down = nn.ModuleList([nn.Linear(a, b) for a, b in zip(widths[:-1], widths[1:])])
        self.up = nn.ModuleList([])
        for a, b in zip(reversed(widths), list(reversed(widths))[1:]):
            self.up.append(nn.Linear(2 * a, b))
        self.middle = nn.Linear(widths[-1], widths[-1])

    def forward(self, x):
        seen = []
        for layer in self.down[:-1]:
            x = F.relu(layer(x))
            seen.append(x)
        x = self.down[-1](x)
        seen.append(x)
        x = self.middle(x)
        for i, layer in enumerate(self.up):
            x = layer(torch.cat([x, seen.pop()], dim=-1))
            if i < len(self.up) - 1:
                x = torch.relu_(x)
        return x


class NamedLayers(nn.Module):
    """Members whose names are put together, an activation by its name."""

    def __init__(self, width: int, depth: int = 3, act: str = "GELU"):
        super().__init__()
        self.depth = depth
        for i in range(depth):
            self.add_module(f"layer{i}", nn.Linear(width, width))
            setattr(self, f"norm{i + 1}", nn.LayerNorm(width))
        self.act = getattr(nn, act)()
        self.left, self.right = nn.Parameter(torch.randn(width)), nn.Parameter(torch.randn(width))

    def forward(self, x):
        i = 0
        while i < self.depth:
            layer, norm = getattr(self, f"layer{i}"), getattr(self, f"norm{i + 1}")
            x = x + self.act(layer(norm(x))) / (i + 1)
            i += 1
        return x * self.left + self.right


class MovingCenter(nn.Module):
    """A buffer that training moves, without gradients."""

    def __init__(self, width: int, momentum: float = 0.9):
        super().__init__()
        self.momentum = momentum
        self.fc = nn.Linear(width, width)
        self.register_buffer("center", torch.zeros(1, width))
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def move(self, x):
        mean = x.flatten(0, -2).mean(dim=0, keepdim=True)
        self.center = self.center * self.momentum + mean * (1 - self.momentum)
        self.seen.add_(1)

    def forward(self, x):
        y = self.fc(x)
        if self.training:
            self.move(y)
        with torch.no_grad():
            spread = (y - self.center).square().mean()
        return (y - self.center) / (spread + 1e-3).sqrt()


class ChannelNorm(nn.LayerNorm):
    """torch.nn's norm over the second dimension."""

    def forward(self, x):
        return super().forward(x.transpose(1, -1)).transpose(1, -1)


class ConvStack(nn.Sequential):
    def __init__(self, channels, out, kernel=3):
        super().__init__(nn.Conv1d(channels, out, kernel, padding=kernel // 2), ChannelNorm(out), nn.ReLU())


class MaskedLinear(nn.Linear):
    """A layer whose weight is multiplied by a buffer."""

    def __init__(self, width, out, bias=True):
        super().__init__(width, out, bias)
        self.register_buffer("mask", torch.ones(out, width).tril())

    def forward(self, x):
        return F.linear(x, self.mask * self.weight, self.bias)


class DerivedFromLibrary(nn.Module):
    """Members whose classes are derived from torch.nn's."""

    def __init__(self, width):
        super().__init__()
        self.convs = ConvStack(width, 2 * width)
        self.last = MaskedLinear(2 * width, width)

    def forward(self, x):
        return self.last(self.convs(x.transpose(1, 2)).transpose(1, 2))


class Output(NamedTuple):
    loss: Tensor
    logits: Tensor
    hidden: Optional[Tensor] = None


class ReturnsByName(nn.Module):
    """A named tuple of tensors, or a dict of them."""

    def __init__(self, width: int, classes: int, as_dict: bool = False):
        super().__init__()
        self.fc = nn.Linear(width, classes)
        self.as_dict = as_dict

    def forward(self, x, targets):
        logits = self.fc(x)
        loss = F.cross_entropy(logits.transpose(1, 2), targets)
        if self.as_dict:
            return {"loss": loss, "logits": logits}
        return Output(loss=loss, logits=logits)


# Traps of a translation.


class NamesOfCpp(nn.Module):
    """Names that are words of C++, methods of torch::nn::Module, or both a member and a local."""

    def __init__(self, int: int, default: float = 0.1):
        super().__init__()
        self.switch = nn.Linear(int, int)
        self.load = nn.Linear(int, int, bias=False)
        self.register_buffer("template", torch.ones(int))
        self.name = "double"
        self.default = default
        self.save, self.auto = 2, True
        self.dropout = nn.Dropout(default)
        self.this = nn.Parameter(torch.zeros(int))

    def clone(self, new, operator):
        return new + operator

    def forward(self, const, long=None):
        dropout = self.dropout(self.switch(const))
        signed, name = self.load(const), self.name
        template = self.template * self.save
        if self.auto and name == "double":
            dropout = dropout * 2
        private = self.clone(dropout, signed) if long is None else long
        namespace = private * template + self.this
        return namespace


class PrivateNames(nn.Module):
    """Two underscores: Python puts the class's name before such names."""

    __temperature = 2.0

    def __init__(self, width):
        super().__init__()
        self.__layer = nn.Linear(width, width)
        self.__calls = 3
        self._scale_ = width**-0.5

    def __mix(self, x, __count):
        return x * self._scale_ / self.__temperature + __count

    def forward(self, x):
        return self.__mix(self.__layer(x), self.__calls)


class TensorConstants(nn.Module):
    """torch.tensor of a number has no dimension, and the dtype of Python's number."""

    def __init__(self, width: int):
        super().__init__()
        self.alpha = nn.Parameter(torch.tensor(0.5))
        self.betas = nn.Parameter(torch.tensor([0.1, 0.2, 0.3]))
        self.register_buffer("scale", torch.tensor(width**-0.5))
        self.register_buffer("steps", torch.tensor(0, dtype=torch.long))
        self.register_buffer("bounds", torch.tensor([[0, 1], [2, 3]]))
        self.register_buffer("flags", torch.tensor([True, False]))

    def forward(self, x):
        self.steps += 1
        root = torch.sqrt(torch.tensor(x.size(-1)).float())
        y = x * self.alpha / root + self.betas.sum() * self.scale
        picked = x[..., self.bounds[1]].sum(-1, keepdim=True) * torch.tensor([1.0, 2.0]).mean()
        return y + picked + torch.tensor(1e-3, dtype=x.dtype), self.steps.clone(), y.new_tensor([1, 2])


class PairOf(nn.Module):
    def __init__(self, first, second):
        super().__init__()
        self.second, self.first = second, first

    def forward(self, x):
        return self.second(F.relu(self.first(x)))


class DrawOrder(nn.Module):
    """Everything here draws from the generator inside of a larger expression: operands, arguments, lists, a layer made twice."""

    def __init__(self, width: int):
        super().__init__()
        self.sum = nn.Parameter(torch.randn(width) + 2 * torch.rand(width))
        self.joined = nn.Parameter(torch.cat([torch.randn(1, width), torch.rand(1, width), torch.randn(2, width)], dim=0))
        self.stacked = nn.Parameter(torch.stack([torch.randn(width) * 0.1 for _ in range(3)]) / math.sqrt(width))
        self.both = nn.Sequential(nn.Linear(width, width), nn.Linear(width, width, bias=False))
        self.pair = PairOf(nn.Linear(width, 2 * width), nn.Linear(2 * width, width))
        self.fc = nn.Linear(width, width)
        self.fc = nn.Linear(width, width, bias=False)  # drawn once more
        self.mixed = nn.Parameter(torch.where(torch.rand(width) < 0.5, torch.randn(width), torch.ones(width)))
        self.table = nn.Parameter(nn.init.xavier_normal_(torch.empty(width, 4)))

    def forward(self, x):
        noise = torch.randn_like(x) * torch.rand(x.size(0), 1, 1)
        y = self.fc(self.pair(self.both(x))) + torch.rand(x.shape[-1]) - torch.randn(x.shape[-1])
        between = torch.lerp(torch.rand(x.shape), torch.randn(x.shape), 0.25)
        y = y * self.sum + self.joined.mean(0) + self.stacked.sum(0) * self.mixed
        return y + noise + between + (x @ self.table).sum(-1, keepdim=True)


class NumbersOfPython(nn.Module):
    """Division, remainders and rounding as Python has them, of negative numbers too."""

    def __init__(self, width: int, window: int = 4, ratio: float = 2.5):
        super().__init__()
        self.window = window
        self.hidden = int(width * ratio) // 3
        self.blocks = -(-width // 5)
        self.odd = -7 % 3 + (-7) // 2
        self.rounded = round(ratio) + round(3.5) + int(-2.7)
        self.power = 2**10 // 3 + 10**-2
        self.half = width / 2
        self.fc = nn.Linear(width, max(self.hidden, self.blocks))

    def forward(self, x):
        B, T, C = x.shape
        pad = (-T) % self.window
        x = F.pad(x, (0, 0, 0, pad))
        groups = x.view(B, (T + pad) // self.window, self.window, C)
        coarse = groups.mean(dim=2)
        inside = 0 < pad < self.window
        factor = self.odd / 3 + self.rounded % -4 + self.power + divmod(T, 4)[1] * 0.1 + (T > 7) * 0.5
        y = self.fc(coarse) * factor / self.half
        if inside or T == self.window:
            y = y + pad / self.window
        whole = torch.div(groups[..., 0] * 10, -3, rounding_mode="floor")
        return y, whole, (x[..., 0] * 10).long() // 3, torch.remainder(x[:, 0], -0.5)


class InPlaceAndAliases(nn.Module):
    """Assignments to parts, names for one tensor, lists that are changed elsewhere, names bound in both branches."""

    def __init__(self, width, n: int = 2):
        super().__init__()
        self.size, self.n = width // n, n
        self.fc = nn.Linear(width, width)

    def collect(self, outputs, x):
        outputs.append(x.sum(dim=-1))

    def forward(self, x, flip: bool = False):
        size, n = self.size, self.n
        h = self.fc(x)
        y = h.clone()
        z = y
        z += 1.0  # y, too
        y[:, 0] = 0.5
        y[..., :size] *= 2
        y[:, -1, 1:3] = h[:, 0, 1:3]
        places = torch.arange(x.size(1), device=x.device)
        y[:, places % 2 == 1] = y[:, places % 2 == 1] - 1
        if flip:
            left, right = y[..., size:], y[..., :size]
            sign = -1
        else:
            left, right = y[..., :size], y[..., size:]
            sign = 1
        outputs = []
        self.collect(outputs, left)
        self.collect(outputs, right)
        same = outputs
        same.append(outputs[0] * n)
        a, b = left.mean(-1), right.mean(-1)
        a, b = b, a
        return sign * (a - 2 * b), torch.stack(outputs), z, y[::2, -2:, 0], y[:, None, ..., None].flip(2)


class WeightedSum(nn.Module):
    def forward(self, weights, values):
        return torch.matmul(weights, values)


class BuiltInForward(nn.Module):
    """Modules that are made while it runs, without parameters."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.packed = nn.Linear(width, 3 * width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x, hidden):
        parts = torch.split(self.packed(x), x.size(2), dim=-1)
        q, k, v = [t.view(x.size(0), -1, self.heads, x.size(2) // self.heads).transpose(1, 2) for t in parts]
        scores = torch.matmul(q, k.transpose(-1, -2)) / (q.size(-1) ** 0.5)
        scores.masked_fill_(hidden, -1e9)
        weights = nn.Softmax(dim=-1)(scores)
        mixed = WeightedSum()(weights, v).transpose(1, 2).contiguous().view(x.size(0), -1, x.size(2))
        return self.norm(nn.ReLU()(mixed) + x), weights


class StaticDropout(nn.Module):
    """A function of the class attends; the dropout module that it is given knows whether it trains."""

    def __init__(self, heads, width, rate=0.1):
        super().__init__()
        self.size, self.heads = width // heads, heads
        self.ask, self.answer, self.carry = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.dropout = nn.Dropout(rate)

    @staticmethod
    def attend(q, k, v, mask, dropout: nn.Dropout):
        weights = (q @ k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
        if mask is not None:
            weights.masked_fill_(mask == 0, -1e9)
        weights = weights.softmax(dim=-1)
        if dropout is not None:
            weights = dropout(weights)
        return (weights @ v), weights

    def forward(self, q, k, v, mask):
        q = self.ask(q).view(q.shape[0], q.shape[1], self.heads, self.size).transpose(1, 2)
        k = self.answer(k).view(k.shape[0], k.shape[1], self.heads, self.size).transpose(1, 2)
        v = self.carry(v).view(v.shape[0], v.shape[1], self.heads, self.size).transpose(1, 2)
        mixed, self.weights = StaticDropout.attend(q, k, v, mask, self.dropout)
        return mixed.transpose(1, 2).contiguous().view(mixed.shape[0], -1, self.heads * self.size)


class DropoutAlways(nn.Module):
    """The functional dropout drops in evaluation too, unless it is told not to."""

    def forward(self, q, k, v):
        weights = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.size(-1)), dim=-1)
        return F.dropout(weights, 0.2) @ v + F.dropout(v, p=0.3, training=self.training)


class PackedByHead(nn.Module):
    """The rows of the packed projection are head by head: (head, 3, size), not (3, head, size)."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.packed = nn.Linear(width, 3 * width)
        self.last = nn.Linear(width, width)

    def forward(self, x):
        b, n, c = x.shape
        packed = self.packed(x).view(b, n, self.heads, 3, c // self.heads)
        q, k, v = packed[..., 0, :], packed[..., 1, :], packed[..., 2, :]
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        weights = F.softmax(q @ k.transpose(-1, -2) * (c // self.heads) ** -0.5, dim=-1)
        return self.last((weights @ v).permute(0, 2, 1, 3).reshape(b, n, c))


class AttentionOverHeads(nn.Module):
    """The heads were never moved before the tokens: the heads of one token attend to each other."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.last = nn.Linear(width, width)

    def forward(self, values, keys, query):
        items, tokens = query.shape[0], query.shape[1]
        v, k, q = (t.reshape(items, tokens, self.heads, -1) for t in (values, keys, query))
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1))
        mixed = torch.matmul(F.softmax(scores, dim=-1), v)
        return self.last(mixed.reshape(items, tokens, -1))


class TwoDimensions(nn.Module):
    """One sequence without a batch, `.T`, no scale, softmax as a method."""

    def __init__(self, width, out):
        super().__init__()
        self.ask = nn.Parameter(torch.rand(width, out))
        self.answer = nn.Parameter(torch.rand(width, out))
        self.carry = nn.Parameter(torch.rand(width, out))

    def forward(self, x):
        k = x @ self.answer
        scores = (x @ self.ask) @ k.T
        return scores.softmax(dim=-1) @ (x @ self.carry)


class HiddenRows(nn.Module):
    """A mask may hide every key of a row: the mean of the values here, zero in attention()."""

    def forward(self, q, k, v, keep):
        scores = q @ k.transpose(-2, -1) * q.size(-1) ** -0.5
        scores = scores.masked_fill(keep[:, None, :, :] == 0, -1e9)
        return scores.softmax(dim=-1) @ v


class RebuiltMask(nn.Module):
    """A buffer of the context's size, a mask that is rebound before it is used, and scores that are read again."""

    def __init__(self, width: int, context: int):
        super().__init__()
        self.packed = nn.Linear(width, 3 * width)
        self.register_buffer("mask", torch.tril(torch.ones(context, context)))

    def forward(self, x, padding):
        T = x.size(1)
        q, k, v = self.packed(x).chunk(3, dim=-1)
        mask = self.mask[:T, :T].bool()
        scores = q @ k.transpose(-2, -1) / math.sqrt(k.size(-1))
        raw = scores
        mask = mask & ~padding[:, None, :]
        scores = scores.masked_fill(~mask, float("-inf"))
        y = torch.softmax(scores, dim=-1) @ v
        return y, raw.diagonal(dim1=-2, dim2=-1)


class SharedInput(nn.Module):
    """Called with one tensor three times, its gradient is the sum of three."""

    def __init__(self, width):
        super().__init__()
        self.ask, self.answer = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, query, key, value):
        scores = self.ask(query) @ self.answer(key).transpose(1, 2) / query.size(-1) ** 0.5
        return scores.softmax(dim=-1) @ value


class PrintsAndAsserts(nn.Module):
    """Checks and prints that have no part in the numbers; braces and commas in what is checked."""

    def __init__(self, width: int, sizes: Dict[str, int]):
        super().__init__()
        assert width in (8, 16, 32), f"width {width} is not one of {[8, 16, 32]}"
        self.verbose = sizes["verbose"] > 0
        self.fc = nn.Linear(width, sizes["out"])

    def forward(self, x):
        B, T = x.shape[0], x.shape[1]
        assert x.shape == (B, T, self.fc.in_features), f"expected {(B, T, self.fc.in_features)}, got {tuple(x.shape)}"
        torch._assert(x.dim() == 3, "three dimensions, please")
        if self.verbose:
            print("input", x.shape)
        y = self.fc(x)
        if y.size(-1) < 1:
            raise RuntimeError("no features: " + str(y.size(-1)))
        return y


class DoubleModule(nn.Module):
    """Drawn in float32 and made double in its constructor."""

    def __init__(self, width: int):
        super().__init__()
        self.fc = nn.Linear(width, width).double()
        self.scale = nn.Parameter(torch.randn(width, dtype=torch.float64))
        self.second = nn.Linear(width, width).to(torch.float64)

    def forward(self, x):
        y = self.fc(x.double())
        y = y / math.sqrt(y.size(-1)) * self.scale
        return self.second(y).float()

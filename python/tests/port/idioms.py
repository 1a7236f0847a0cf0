"""Classes of ways to write Python that are not about attention: numpy's tables, plain objects, dicts, lists of parameters."""

import copy
import enum
import functools
import itertools
import logging
import math
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from operator import itemgetter, mul
from typing import Optional, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.nn.modules.transformer import _get_clones
from torch.nn.utils import parametrizations, spectral_norm
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

try:
    from a_package_that_is_not_there import fast_norm
except ImportError:
    fast_norm = None

HAS_FAST = False


def position_angles(position, width):
    return [position / np.power(10000, 2 * (n // 2) / width) for n in range(width)]


class NumpyTable(nn.Module):
    """Sines and cosines that numpy computed."""

    def __init__(self, width, longest=16):
        super().__init__()
        table = np.array([position_angles(position, width) for position in range(longest)])
        table[:, 0::2] = np.sin(table[:, 0::2])
        table[:, 1::2] = np.cos(table[:, 1::2])
        rates = np.exp(np.arange(0, width, 2) * -(math.log(100.0) / width))
        later = np.triu(np.ones((longest, longest)), k=1).astype("uint8")
        self.register_buffer("table", torch.FloatTensor(table))
        self.register_buffer("rates", torch.from_numpy(rates).float())
        self.register_buffer("later", torch.from_numpy(later) == 1)
        self.proj = nn.Linear(width, width)
        self.half = int(np.sqrt(width))

    def forward(self, x):
        steps = x.size(1)
        scores = self.proj(x) @ x.transpose(1, 2) / self.half
        weights = scores.masked_fill(self.later[:steps, :steps], float("-inf")).softmax(-1)
        return weights @ x + self.table[:steps] * self.rates.mean()


class ParameterMix(nn.Module):
    """Numbers in an nn.ParameterList and an nn.ParameterDict."""

    def __init__(self, width, parts=3):
        super().__init__()
        self.gains = nn.ParameterList([nn.Parameter(torch.randn(width)) for _ in range(parts)])
        self.named = nn.ParameterDict({"shift": nn.Parameter(torch.zeros(width)), "scale": nn.Parameter(torch.ones(width))})
        self.more = nn.ParameterList()
        for _ in range(parts):
            self.more.append(nn.Parameter(torch.rand(1)))

    def forward(self, x):
        for gain in self.gains:
            x = x + torch.tanh(gain * x)
        for n, factor in enumerate(self.more):
            x = x * factor + self.gains[n]
        return x * self.named["scale"] + self.named["shift"] + self.gains[-1]


class Results(nn.Module):
    """Gives a dict."""

    def __init__(self, width, classes=5):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        hidden = self.norm(x)
        found = {"logits": self.head(hidden), "hidden": hidden}
        found["mean"] = hidden.mean(1)
        return found


class TriangleMask:
    """A plain object with a method and a property."""

    def __init__(self, length, device="cpu"):
        self.length = length
        with torch.no_grad():
            self._hidden = torch.triu(torch.ones(length, length, dtype=torch.bool, device=device), diagonal=1)

    @property
    def hidden(self):
        return self._hidden

    def shown(self, first):
        return ~self._hidden[:first]


@dataclass
class Shape:
    blocks: int = 2
    per_block: int = 4
    width: int = 32

    @property
    def longest(self):
        return self.blocks * self.per_block

    def scale(self, factor):
        return factor / math.sqrt(self.width)


class ObjectMask(nn.Module):
    """Masks itself by a plain object, sized by a dataclass's property."""

    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.places = nn.Embedding(shape.longest, shape.width)
        self.scale = shape.scale(1.0)

    def forward(self, x):
        mask = TriangleMask(x.size(1), device=x.device)
        scores = x @ x.transpose(1, 2) * self.scale
        weights = scores.masked_fill(mask.hidden, -1e9).softmax(-1)
        return weights @ x + mask.shown(1).float().sum() + self.places.weight[: x.size(1)]


class Gate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x):
        return x * torch.sigmoid(self.fc(x))


class Shift(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.by = nn.Parameter(torch.randn(width))

    def forward(self, x):
        return x + self.by


class TwoKinds(nn.Module):
    """A list of layers of two classes, and layers that are found by names put together."""

    def __init__(self, width, depth=4):
        super().__init__()
        self.layers = nn.ModuleList([Gate(width) if n % 2 == 0 else Shift(width) for n in range(depth)])
        for n in range(depth):
            self.add_module("norm_%d" % n, nn.LayerNorm(width))
        for n in range(2):
            setattr(self, "last_{}".format(n), nn.Linear(width, width))
        self.depth = depth

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        for n in range(self.depth):
            x = self._modules["norm_%d" % n](x)
        for n in range(2):
            x = getattr(self, f"last_{n}")(x)
        return x


class KeywordReader(nn.Module):
    """Reads its keyword arguments."""

    def __init__(self, width, **options):
        super().__init__()
        hidden = options.pop("hidden", 2 * width)
        self.bias = options.pop("bias", True)
        self.inner = Scaled(width, hidden, **options)
        self.noisy = "noise" in options

    def forward(self, x, **extra):
        y = self.inner(x)
        if extra.get("mask") is not None:
            y = y * extra["mask"]
        return y + 1 if self.noisy else y


class Scaled(nn.Module):
    def __init__(self, width, hidden, scale=1.0, gain="linear"):
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        nn.init.xavier_uniform_(self.up.weight, gain=nn.init.calculate_gain(gain))
        self.scale = scale

    def forward(self, x):
        return self.down(F.relu(self.up(x))) * self.scale


class TwoGains(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = Scaled(width, width, gain="tanh")
        self.second = Scaled(width, width, scale=0.5, gain="relu")

    def forward(self, x):
        return self.second(self.first(x))


class MethodChoice(nn.Module):
    """Keeps one of its methods, and asks for a package that is not there."""

    def __init__(self, width, pad="causal"):
        super().__init__()
        self.conv = nn.Conv1d(width, width, 3)
        self.use_fast = HAS_FAST and fast_norm is not None
        if pad == "causal":
            self.pad = self._before
        else:
            self.pad = self._around

    def _before(self, x):
        return F.pad(x, (2, 0))

    def _around(self, x):
        return F.pad(x, (1, 1))

    def forward(self, x):
        y = self.conv(self.pad(x.transpose(1, 2))).transpose(1, 2)
        return fast_norm(y) if self.use_fast else y


class Sizes(nn.Module):
    """Sizes by map and range, blocks behind checkpoint."""

    def __init__(self, width, factors=(1.0, 2.0)):
        super().__init__()
        sizes = list(map(int, [width * factor for factor in factors]))
        order = list(range(len(sizes)))
        self.layers = nn.ModuleList([nn.Linear(width, sizes[n]) for n in order])
        self.out = nn.Linear(sum(sizes), width)

    def forward(self, x):
        q, k = map(torch.tanh, (x, 2 * x))
        parts = [layer(q + k) for layer in self.layers]
        return checkpoint(self.out, torch.cat(parts, -1), use_reentrant=False)


class Batch(nn.Module):
    """Takes its tensors in one object."""

    def __init__(self, words, width):
        super().__init__()
        self.embed = nn.Embedding(words, width, padding_idx=0)

    def forward(self, batch):
        x = self.embed(batch.ids)
        keep = batch.mask.unsqueeze(-1)
        return (x * keep).sum(1) / keep.sum(1)


class Block(nn.Module):
    """Keeps a lambda that calls members by another name."""

    def __init__(self, width, act="gelu"):
        super().__init__()
        self.mlp = nn.ModuleDict(dict(up=nn.Linear(width, 2 * width), act=nn.GELU(), down=nn.Linear(2 * width, width), drop=nn.Dropout(0.1)))
        m = self.mlp
        self.feed = lambda x: m.drop(m.down(m.act(m.up(x))))
        self.norms = nn.ModuleDict({name: nn.LayerNorm(width) for name in ["first", "second"]})
        self.act = {"relu": nn.ReLU(), "gelu": nn.GELU()}[act]
        factors = {"half": 0.5, "whole": 1.0}
        self.factor = factors["half"]

    def forward(self, x):
        y = x + self.feed(self.norms["first"](x)) * self.factor
        for name, norm in self.norms.items():
            y = norm(y) if name == "second" else self.act(y)
        return y


class Gathered(nn.Module):
    """Gathers layers under a name that becomes an nn.Sequential, or is one module."""

    def __init__(self, width, depth=0):
        super().__init__()
        if depth == 0:
            self.body = nn.Linear(width, width)
        else:
            self.body = nn.ModuleList()
            self.body.append(nn.Linear(width, width))
            if depth > 1:
                self.body.append(nn.Tanh())
            self.body = nn.Sequential(*self.body)
        self.tail = []
        for _ in range(2):
            self.tail.append(nn.LayerNorm(width))
        self.tail = nn.Sequential(*self.tail)

    def forward(self, x):
        return self.tail(self.body(x))


class GatheredTwice(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one, self.other = Gathered(width), Gathered(width, depth=2)

    def forward(self, x):
        return self.other(self.one(x))


class Levels(nn.Module):
    """Modules as namespaces, layers whose class a condition chooses, sizes that are None at first."""

    def __init__(self, width, levels=2):
        super().__init__()
        self.down = nn.ModuleList()
        size = None
        for level in range(levels):
            size = width * (level + 1)
            kind = Gate if level % 2 == 0 else Shift
            step = nn.Module()
            step.layers = nn.ModuleList([kind(size), nn.LayerNorm(size)])
            step.out = nn.Linear(size, width * (level + 2))
            self.down.append(step)
        self.up = nn.ModuleList()
        for gate, (inner, outer) in enumerate(zip([1, 2, 3][:2], [2, 3])):
            self.up.insert(0, nn.Linear(outer * width, inner * width))
        self.mid = nn.Module()
        self.mid.norm = nn.LayerNorm(size + width)
        self.blocks = nn.ModuleList([])
        for a, b in zip([width] * 2, [width, 2 * width]):
            self.blocks.append(nn.ModuleList([nn.Linear(a, b), nn.Dropout(0.1) if b > a else nn.Identity()]))

    def forward(self, x):
        first = x
        for step in range(len(self.down)):
            x = self.down[step].layers[1](x)
            x = self.down[step].out(x)
        x = self.mid.norm(x)
        for layer in self.up:
            x = layer(x)
        parts = []
        for n, (linear, drop) in enumerate(self.blocks, 1):
            parts.append(drop(linear(first)).sum(-1, keepdim=True) * n)
        return x + torch.cat(parts, -1).mean(-1, keepdim=True)


class OldStyle(nn.Module):
    """As one wrote before PyTorch 1.0: new(), classes known by their names, sizes counted."""

    def __init__(self, width, kernels=(5, 3, 1)):
        super(OldStyle, self).__init__()
        self.convs = nn.ModuleList()
        for kernel in sorted(list(kernels)):
            self.convs.append(nn.Sequential(nn.Conv1d(width, width, kernel, padding=kernel // 2), nn.BatchNorm1d(width)))
        self.fc = nn.Linear(width, width)
        self.wide = any(kernel > 4 for kernel in kernels)
        self.odd = all(kernel % 2 == 1 for kernel in kernels[::-1])
        self.apply(self._init)

    def _init(self, m):
        classname = m.__class__.__name__
        if classname.find("Conv") != -1:
            m.weight.data.normal_(0.0, 0.02)
        elif classname.find("BatchNorm") != -1:
            m.weight.data.normal_(1.0, 0.02)
            m.bias.data.fill_(0)
        elif isinstance(m, (nn.Linear, nn.Embedding)):
            m.weight.data.normal_(std=0.1)
            if isinstance(m, nn.Linear) and m.bias is not None:
                m.bias.data.zero_()

    def start(self, batch):
        weight = next(self.parameters()).data
        return weight.new(batch, 1).zero_()

    def forward(self, x):
        y = sum(conv(x.transpose(1, 2)) for conv in self.convs).transpose(1, 2)
        keep = x.data.new(x.size(0), x.size(1)).fill_(1)
        keep[:, 2:] = 0.5
        shape = list(y.shape)
        shape[shape.index(y.size(-1))] = -1
        y = self.fc(y).view(*shape) * keep.unsqueeze(-1) + self.start(x.size(0)).unsqueeze(-1)
        return y if self.wide and self.odd else 2 * y


class HalfLinear(nn.Module):
    """A layer whose numbers are bfloat16."""

    def __init__(self, width, dtype=torch.bfloat16):
        super().__init__()
        self.fc = nn.Linear(width, width, dtype=dtype)
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.fc(x.to(self.fc.weight.dtype)).float() * self.scale


class WordTable(nn.Embedding):
    """A class of PyTorch with another constructor."""

    def __init__(self, words, width):
        super().__init__(words, width, padding_idx=0)


class ArrayInput(nn.Module):
    """Takes an array of numpy."""

    def __init__(self, words, width):
        super().__init__()
        self.table = WordTable(words, width)

    def forward(self, ids):
        x = self.table(torch.LongTensor(ids))
        return x * torch.from_numpy((ids != 0).astype(np.float32)).unsqueeze(-1)


def conv_of(dims, *args, **kwargs):
    if dims == 1:
        return nn.Conv1d(*args, **kwargs)
    elif dims == 2:
        return nn.Conv2d(*args, **kwargs)
    raise ValueError(f"no convolution of {dims} dimensions")


class ConvOf(nn.Module):
    """Layers that a function of *args makes."""

    def __init__(self, width, dims=1):
        super().__init__()
        self.first = conv_of(dims, width, width, 3, padding=1)
        self.second = conv_of(1, width, 2 * width, 1)

    def forward(self, x):
        return self.second(self.first(x.transpose(1, 2))).transpose(1, 2)


class Pair(nn.Module):
    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x):
        return self.second(self.first(x))


class Pairs(nn.Module):
    """Modules that are drawn as arguments, in a comprehension and in a list that other classes follow."""

    def __init__(self, width, depth=2):
        super().__init__()
        self.pairs = nn.ModuleList([Pair(nn.Linear(width, 2 * width), nn.Linear(2 * width, width)) for _ in range(depth)])
        layers = [nn.Linear(width, width)]
        for _ in range(depth):
            layers.append(Pair(nn.Linear(width, width), nn.Linear(width, width)))
        layers.append(nn.Tanh())
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        for pair in self.pairs:
            x = x + pair(x)
        return self.layers(x)


class Weighed(nn.Module):
    """Layers with weight normalisation, gathered by a loop that may not run, and an activation that is named."""

    def __init__(self, sizes, act="ReLU"):
        super().__init__()
        layers = []
        for at in range(len(sizes) - 2):
            layers.append(nn.utils.weight_norm(nn.Linear(sizes[at], sizes[at + 1]), dim=None))
            layers.append(getattr(nn, act)())
        layers.append(nn.utils.weight_norm(nn.Linear(sizes[-2], sizes[-1]), dim=None))
        self.main = nn.Sequential(*layers)
        self.over_time = nn.utils.weight_norm(nn.Conv1d(sizes[-1], 8, 3, padding=2, dilation=2))
        self.over_time.weight.data.normal_(0, 0.01)  # draws, and changes nothing that stays

    def forward(self, x):
        return self.over_time(self.main(x).transpose(1, 2)).tanh()


class PackedLSTM(nn.Module):
    """A packed sequence, the weights of a softmax without dim, and one whose noise is Gumbel's."""

    def __init__(self, width):
        super().__init__()
        self.rnn = nn.LSTM(width, width // 2, batch_first=True, bidirectional=True)
        self.score = nn.Linear(width, 1)
        self.softmax = nn.Softmax()
        self.choice = nn.Linear(width, 5)

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        states, (last, _) = self.rnn(packed)
        states, _ = nn.utils.rnn.pad_packed_sequence(states, batch_first=True)
        weights = self.softmax(self.score(states).squeeze(-1))
        chosen = F.gumbel_softmax(self.choice(states), tau=0.7, hard=True)
        return (weights.unsqueeze(-1) * states).sum(1) + torch.cat((last[0], last[1]), 1), chosen


class Mixed(nn.Module):
    """Two kinds of gain: one learns, one is a number; its first values come from a function of old PyTorch."""

    def __init__(self, width, learns=True, first=nn.init.xavier_uniform):
        super().__init__()
        if learns:
            self.gain = nn.Parameter(torch.rand(1))
        else:
            self.gain = torch.zeros(1) + 0.5
        self.weight = nn.Parameter(first(torch.empty(width, width)))

    def forward(self, x):
        return x @ self.weight * self.gain


class Rotated(Mixed):
    """Hands on what it is given, with an argument of its own, and writes into parts of its tensors."""

    def __init__(self, *args, turn=0.5, **kwargs):
        super().__init__(*args, **kwargs)
        self.turn = turn

    def split(self, x, part):
        return x[..., :part] * math.cos(self.turn), x[..., part:] * math.sin(self.turn)

    def forward(self, x, mask=None):
        limit = np.finfo(np.float32).min
        split = x.shape[-1] // 2
        x = super().forward(x).clone()
        x[..., :split], x[..., split:] = self.split(x, split)
        if mask is not None:
            while mask.dim() < x.dim():
                mask = mask.unsqueeze(1)
            x = x.masked_fill(mask == 0, limit).softmax(-1)
        return x


class Memories(nn.Module):
    """Parameters by name that a loop fills, a convolution that asks its own sizes, and an argument that another one stands for."""

    def __init__(self, width, inner=None, kernel=3):
        super().__init__()
        inner = inner if inner is not None else width
        self.memory = self.made(inner)
        self.mix = nn.Conv1d(width, inner, kernel, padding=kernel // 2)
        for module in self.modules():
            if isinstance(module, nn.Conv1d):
                fan = module.kernel_size[0] * module.out_channels
                module.weight.data.normal_(0, math.sqrt(2.0 / fan))
        self.back = Rotated(inner, turn=0.3, learns=False)
        self.again = Rotated(inner)

    def made(self, inner):
        memory = nn.ParameterDict()
        memory["asked"] = nn.Parameter(torch.randn(4, inner))
        memory["given"] = nn.Parameter(torch.randn(4, inner))
        for held in memory.values():
            nn.init.xavier_normal_(held)
        return memory

    def forward(self, x, mask):
        x = self.mix(x.transpose(1, 2)).transpose(1, 2)
        found = (x @ self.memory["asked"].t()).softmax(-1) @ self.memory["given"]
        return self.again(self.back(x + found), mask)


def small_weights(module):
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.1)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.LayerNorm):
        nn.init.constant_(module.weight, 0.9)


class Grid(nn.Module):
    """Numbers that follow the input's size, a tensor as a default, two embeddings of one table, and a function for all layers."""

    def __init__(self, width, table):
        super().__init__()
        self.rows = nn.Embedding.from_pretrained(table, freeze=True)
        self.columns = nn.Embedding.from_pretrained(table, freeze=True)
        self.norm, self.proj = nn.LayerNorm(width), nn.Linear(width, width)
        self.apply(small_weights)

    def forward(self, x, height, width, hide=torch.ones((0, 0), dtype=torch.bool)):
        size = (height, width)
        kept = (x, x)
        if hide.size(0) > 0:
            kept = (x.masked_fill(hide, 0.0), kept[1])
        x = self.proj(self.norm(kept[0])).view(x.size(0), height, width, -1)
        x = x + self.rows(torch.arange(size[0]))[:, None] + self.columns(torch.arange(size[1]))
        return x.flatten(1, 2) + kept[1]


def start_layers(net, how="small"):
    if how == "small":
        net.apply(small_weights)
    else:
        raise NotImplementedError(how)


class Scored(nn.Module):
    """Returns a tuple, of which its caller takes parts; its activation is an attribute of the class."""

    usual = nn.SiLU()

    def __init__(self, width, act=True):
        super().__init__()
        self.proj = nn.Linear(width, width)
        self.act = self.usual if act is True else act if isinstance(act, nn.Module) else nn.Identity()

    def forward(self, x):
        scores = self.act(self.proj(x))
        return x * scores.sigmoid(), scores


class TupleTail(nn.Module):
    """Joins tuples, takes an entry out of a list, and treats layers of two classes alike."""

    def __init__(self, width):
        super().__init__()
        self.scored = Scored(width)
        self.mix = nn.Conv1d(width, width, 1)
        for child in self.children():
            start_layers(child)
        self.apply(self.start)
        self.rows = self.made(width, 2)
        self.column = self.made(width)

    def start(self, module):
        if isinstance(module, nn.Conv3d):
            nn.init.zeros_(module.weight)
        elif isinstance(module, nn.Conv1d) or isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.2)
            if module.bias is not None:
                nn.init.zeros_(module.bias)

    def made(self, *size):
        held = nn.Parameter(torch.FloatTensor(*size))
        nn.init.normal_(held)
        return held

    def forward(self, x):
        order = list(range(3))
        del order[0]
        order = [0] + order[::-1]
        found = self.scored(x)
        mixed = self.mix(found[0].permute(*order)).permute(*order)
        outputs = (mixed @ self.rows + self.column.mean(),) + found[1:]
        return outputs


class KeptKeywords(nn.Module):
    """Keeps its keywords as a dict, which it reads here and in forward."""

    def __init__(self, **settings):
        super().__init__()
        self.settings = settings
        self.proj = nn.Linear(settings["width"], self.settings["width"])

    def forward(self, x):
        return self.proj(x) * self.settings["scale"]


def keeps_arguments(init):
    """Remembers what a constructor was given, which changes nothing else."""

    @functools.wraps(init)
    def wrapped(self, *args, **kwargs):
        self.given = (args, kwargs)
        init(self, *args, **kwargs)

    return wrapped


@functools.lru_cache(maxsize=8)
def causal(length):
    return torch.ones(length, length).tril() == 0


def told_weights(layer):
    for name, _ in layer.named_parameters():
        if "weight" in name:
            weight = getattr(layer, name)
            weight.data.uniform_(-0.1, 0.1)


class OldSpelling(nn.Module):
    """Spellings from before PyTorch 1.0, and a layout that is a word."""

    @keeps_arguments
    def __init__(self, width, heads, dtype=torch.float32):
        nn.Module.__init__(self)
        self.heads = heads
        for name in ["w_q", "w_k"]:
            self.__setattr__(name, nn.Parameter(torch.FloatTensor(heads, width, width // heads).fill_(0.1)))
        self.rnn = nn.GRU(width, width, batch_first=True)
        told_weights(self.rnn)
        self.norm = nn.LayerNorm(width, dtype=dtype)
        self.layers = [nn.Linear(width, width), nn.Tanh()]
        for _ in range(heads):
            self.layers.append(nn.Linear(width, width))
        self.layers = nn.Sequential(*self.layers)
        table = torch.tensor([[place / 10.0 ** (n // 2) for n in range(width)] for place in range(16)])
        table[:, 0::2] = np.sin(table[:, 0::2])
        self.table = table

    def forward(self, x, y):
        layout = "b h t d" if self.heads > 1 else "b t h d"
        keys = layout.replace("t", "s")
        q, k = torch.einsum("btc,hcd->bhtd", x, self.w_q), torch.einsum("btc,hcd->bhtd", y, self.w_k)
        scores = torch.einsum(f"{layout},{keys}->b h t s", q, k)
        if x.data_ptr() == y.data_ptr():
            try:
                scores = scores.masked_fill(causal(x.size(1)), float(np.finfo(torch.tensor(0, dtype=x.dtype).numpy().dtype).min))
            except RuntimeError:
                print(scores.shape)
                raise
        out = scores.mean(1).softmax(-1) @ y
        out = self.rnn(out)
        out = out[0]
        if not torch.is_tensor(x):
            out = out + 1
        out = self.norm(self.layers(out)) + self.table[: x.size(1)].to(dtype=float).float()
        return out.view(*x.shape[:-1], self.heads, -1).flatten(2)


class ListSlices(nn.Module):
    """Slices of lists: from behind, as objects, assigned; and indices made of as many parts as a tensor has."""

    def __init__(self, widths):
        super().__init__()
        self.downs = nn.ModuleList([nn.Linear(a, b) for a, b in zip(widths[:-1], widths[1:])])
        self.ups = nn.ModuleList([nn.Linear(a, b) for a, b in zip(widths[::-1], widths[-2::-1])])

    def forward(self, x, gate):
        for down in self.downs:
            x = torch.relu(down(x))
        for up in self.ups:
            x = up(x)
        sizes, middle = [-1] * len(x.shape), slice(1, 2)
        sizes[middle] = x.shape[middle]
        gate = gate[(..., *((None,) * (x.dim() - gate.dim())))]
        (low, high), (first, _) = map(self.halves, (x, x * 2))
        return gate.expand(*sizes) * (torch.cat([low, first], -1) + x[(slice(None), slice(1, None))].mean(1, keepdim=True)) + high.mean()

    def halves(self, x):
        low, high = x.chunk(2, dim=-1)
        return low, high


class EmptyLayers(nn.Module):
    """An nn.Sequential without layers, which Python calls, and layers of a class that is not there."""

    def __init__(self, width):
        super().__init__()
        self.front, self.proj = nn.Sequential(), nn.Linear(width, width)
        self.apply(self.start)

    def start(self, module):
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.1)
        elif isinstance(module, nn.Conv3d):
            nn.init.zeros_(module.weight)

    def forward(self, x, tau=None):
        return self.proj(self.front(x)) * (1.5 if tau is None else tau.unsqueeze(-1))


class OffsetBias(nn.Module):
    """A dict of tuples, all pairs of a grid, functions or None in a list, a dict of numbers that is looped over."""

    def __init__(self, dim, resolution, kernels):
        super().__init__()
        points = list(itertools.product(range(resolution), range(resolution)))
        offsets, indices = {}, []
        for a in points:
            for b in points:
                offset = (abs(a[0] - b[0]), abs(a[1] - b[1]))
                if offset not in offsets:
                    offsets[offset] = len(offsets)
                indices.append(offsets[offset])
        self.bias = nn.Parameter(torch.randn(len(offsets)))
        self.register_buffer("indices", torch.LongTensor(indices).view(len(points), len(points)))
        self.convs = nn.ModuleList()
        for size, width in kernels.items():
            self.convs.append(nn.Conv1d(dim, width, size, padding=size // 2))
        self.acts, self.kernels = [torch.tanh, None], kernels

    def half(self, x, y):
        return (x + y) / 2

    def forward(self, x):
        outs = []
        for conv, act in zip(self.convs, self.acts):
            y = conv(x.transpose(1, 2)).transpose(1, 2)
            outs.append(y if act is None else act(y))
        low, high = map(self.half, outs, reversed(outs))
        return (torch.cat([low, high], dim=-1) + self.bias[self.indices].mean(1, keepdim=True)) * self.kernels.get(3, 1) / self.kernels[5]


class Switched(nn.Module):
    """Layers within layers, a train() of its own that keeps a table, a value of the round before, a size read late."""

    def __init__(self, dim):
        super().__init__()
        self.inner = nn.Sequential(nn.Sequential(nn.Linear(dim, dim), nn.ReLU()), nn.Linear(dim, dim))
        rows = [nn.Sequential(nn.Linear(dim, dim), nn.Tanh()) for _ in range(2)]
        self.outer = nn.Sequential(*rows)
        last = [nn.Linear(dim, dim), nn.ReLU()]
        last = last + [nn.Linear(dim, 2 * dim, bias=False)]
        self.last = nn.Sequential(*last)
        self.table = nn.Parameter(torch.randn(3, dim))
        self.register_buffer("order", torch.tensor([2, 0, 1]))

    @torch.no_grad()
    def train(self, mode=True):
        super().train(mode)
        if mode and hasattr(self, "kept"):
            del self.kept
        else:
            self.kept = self.table[self.order]

    def forward(self, x):
        table = self.table[self.order] if self.training else self.kept
        for i, part in enumerate(self.inner(x).chunk(2, dim=1)):
            if i == 0:
                total = part * 2
            else:
                total = total + part
        stride = total.stride()
        rows = self.outer(total.as_strided(total.shape, stride)) + table.sum(0)
        y, _ = self.last(rows).chunk(2, dim=-1)
        return torch.zeros(y.shape, dtype=y.dtype, layout=y.layout, device=y.device) + y


class ScoredTokens(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.score = nn.Linear(dim, 1)

    def forward(self, x):
        return self.score(x), x


class SeveralResults(nn.Module):
    """An nn.Sequential whose last layer has two results, an argument that is made where there is none, a dict of results without any."""

    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), ScoredTokens(dim))
        self.gate = nn.Linear(dim, 1)

    def forward(self, x, bias=None):
        scores, x = self.net(x)
        if self.gate is not None:
            bias = self.gate(x)
        if bias is not None:
            extra = bias
        return (torch.softmax(scores + extra, dim=1) * x).sum(1), {}


class Counters(nn.Module):
    """Counters that a loop sets again, that are read behind their loop, and indices from behind."""

    def __init__(self, dim):
        super().__init__()
        self.proj, self.last = nn.Linear(dim, dim), -2

    def forward(self, x):
        out = x
        for i in range(3):
            for i in range(2):
                out = out + self.proj(out) * i
            out = out * (i + 1)
        for j in range(2):
            j += 1
            out = out + j
        for n, row in enumerate(x.unbind(1)):
            out = out + row.unsqueeze(1)
        for a, b in zip(x.unbind(1), out.unbind(1)):
            out = out * 0.9
        sizes = [1] * x.dim()
        sizes[self.last] = x.shape[self.last]
        sizes[-1] = x.shape[-1]
        # What is read here was set by loops above \
        return out + (a + b).unsqueeze(1) * i + row.view(x.shape[0], *sizes[:1], sizes[-1]) * n + torch.ones(*sizes)


class ShiftedConv(nn.Conv1d):
    def __init__(self, width, kernel):
        self.shift = kernel - 1
        super().__init__(width, width, kernel, padding=self.shift)

    def forward(self, x):
        return super().forward(x)[:, :, : -self.shift]


class Prepared(nn.Module):
    def __init__(self, dim, fn):
        super().__init__()
        self.fn, self.norm = fn, nn.LayerNorm(dim)

    def forward(self, x, **kwargs):
        return self.fn(self.norm(x), **kwargs)


class Convolved(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.convs = nn.ModuleList([copy.deepcopy(layer) for layer in [ShiftedConv(dim, 3)] * 2])

    def forward(self, x, mask=None):
        y = x.transpose(1, 2)
        for conv in self.convs:
            y = conv(y)
        return y.transpose(1, 2)


class Replaced(nn.Module):
    """A member that a wrapper replaces, keywords that are None, layers derived from PyTorch's that are copied, numpy's grid."""

    def __init__(self, dim, side):
        super().__init__()
        self.mix = Convolved(dim)
        self.mix = Prepared(dim, self.mix)
        grid = np.meshgrid(np.arange(side, dtype=np.float32), np.arange(side, dtype=np.float32))
        grid = np.stack(grid, axis=0).reshape(2, -1)
        angles = np.einsum("m,d->md", grid[0] + 2 * grid[1], 1.0 / 100 ** (np.arange(dim // 2) / dim))
        table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
        self.table = nn.Parameter(torch.from_numpy(table).float(), requires_grad=False)
        nn.init.xavier_normal_(self.mix.norm.state_dict()["weight"].view(1, -1))
        self.apply(self.start)

    def start(self, module):
        ignored = (nn.LayerNorm, nn.ModuleList)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.weight)
        elif isinstance(module, ignored):
            pass

    def forward(self, x, y):
        x = F.pad(x, (0, 0, 1, 0), value=True)[:, 1:]
        return self.mix(x, mask=None) + self.table * (2.0 if x is y else 1.0)


class Chosen(nn.Module):
    """A lambda that makes layers, a choice of which only one side draws, sets, pairs that are sorted, zip within enumerate."""

    def __init__(self, dim):
        super().__init__()
        make = lambda: nn.Sequential(nn.Linear(dim, dim), nn.ReLU())
        self.parts, self.others = nn.ModuleList([make(), make()]), nn.ModuleList([make(), make()])
        self.rest = [*(set(range(dim)) - {1, 2}), 1]
        self.skips = set(self.rest[:2])
        pairs = sorted(zip([3, 1, 2], range(3)))
        self.order = list(map(itemgetter(1), pairs))

    def forward(self, x, extra=None):
        rows = [F.dropout(row, 0.5, self.training) for row in x.unbind(1)] if extra is None else list(extra.unbind(1))
        y = torch.stack(rows, dim=1)[..., self.rest[:3]]
        for n, (part, other) in enumerate(zip(self.parts, self.others)):
            x = part(x) + (other(x) if n in self.skips else x) * self.order[n]
        return x.sum(-1), y, self.__class__.__name__ == "Chosen"


class AskedInTurn(nn.Module):
    """Conditions that compute something, asked again in every round or not at all; lists under two names."""

    def __init__(self, dim):
        super().__init__()
        sizes = [1, 2]
        self.sizes, self.count = sizes, 2
        sizes.append(3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, y=None):
        if y is not None and len([row for row in y.unbind(0) if row.dim() > 1]) > 1:
            x = x + y
        n, rows = 0, [1, 2, 3, 4]
        while sum([row for row in rows if row > n]) > 5:
            n += 1
            rows = rows[1:]
        lists = [[], []]
        for i, held in enumerate(lists):
            held.append(x * i)
        first = lists[0]
        first.append(self.proj(x))
        z = x if y is None or sum([row for row in rows]) > 100 else x * 2
        k = self.count
        while k > 0 and any(row > 0 for row in rows):
            k -= 1
            z = z + k
        return z * n + sum(self.sizes) + torch.stack(lists[0]).sum(0) * len(lists[1])


def hidden(scores, keep):
    return scores * keep + (1 - keep) * -1e30


class ReadScores(nn.Module):
    """Scores whose sizes other tensors take, that `data` changes, that are viewed as a matrix, and that a function masks."""

    def __init__(self, drop):
        super().__init__()
        self.softmax, self.drop, self.kept = nn.Softmax(dim=-1), nn.Dropout(drop), False

    def templates(self, q, k, v, keep):
        scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5
        scores = scores.masked_fill(torch.ones_like(scores).tril() == 0, float("-inf"))
        hide = (keep == 0).unsqueeze(1).expand_as(scores)
        scores.data.masked_fill_(hide.data, -1e9)
        scores.masked_fill(hide, 0.0)
        return F.softmax(scores, dim=-1) @ v

    def matrix(self, q, k, v, keep):
        q, k, v = q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)
        scores = torch.bmm(q, k.transpose(1, 2))
        hide = (keep == 0)[:1].expand(scores.size())
        scores = scores.masked_fill(hide, -1e9)
        weights = self.softmax(scores.view(-1, scores.size(2))).view(*scores.size())
        return torch.bmm(self.drop(weights), v)

    def by_function(self, q, k, v, keep):
        if self.kept:
            scores = torch.matmul(k, k.transpose(-2, -1))
        else:
            scores = torch.matmul(q, k.transpose(-2, -1))
        try:
            scores = scores / 3
        except RuntimeError:
            print(scores.shape)
            assert False
        scores = hidden(scores, keep[:, None])
        scores = (scores - scores.max()).softmax(-1)
        scores = scores.masked_fill(torch.isnan(scores), 0)
        return scores @ v

    def by_product(self, q, k, v, keep):
        keep = keep[:, None]
        scores = torch.matmul(q, k.transpose(-2, -1)) * keep - 1e10 * (1 - keep)
        weights = self.softmax(scores)
        shown = weights if self.training else None
        weights = self.drop(weights)
        return weights @ v, shown

    def alone(self, q, k, v):
        weights = self.drop(F.softmax(torch.mm(q, k.t()), dim=1))
        return F.dropout(v, 0.3, self.training) + torch.mm(weights, v)

    def forward(self, q, k, v, keep):
        y, shown = self.by_product(q, k, v, keep)
        z = self.by_function(q, k, v, keep) + self.matrix(q, k, v, keep).view_as(v)
        y = y + z + self.templates(q, k, v, keep) + self.alone(q[0, 0], k[0, 0], v[0, 0])
        return y if shown is None else y + shown.sum()


def started(layer):
    nn.init.constant_(layer.weight, 0.5)


class Around(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return x + self.inner(x)


class Shifted(nn.Module):
    def __init__(self, dim, shift=None, factor=1.0):
        super().__init__()
        self.proj, self.factor = nn.Linear(dim, dim), factor
        if shift is not None:
            self.register_buffer("shift", shift)
        else:
            self.shift = None

    def forward(self, x):
        x = self.proj(x) * self.factor
        return x if self.shift is None else x + self.shift


class Named(nn.Sequential):
    def __init__(self, dim):
        super().__init__()
        self.add_module("first", nn.Linear(dim, dim))
        self.inner = nn.Sequential(nn.Linear(dim, dim), nn.Tanh())
        last = nn.BatchNorm1d(dim)
        nn.init.constant_(last.weight, 0.5)
        self.last = last


class Headed(nn.Sequential):
    def __init__(self, dim):
        super().__init__()
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.Sigmoid())

    def forward(self, x):
        return x * self.head(x)


class LettersAndLists(nn.Module):
    """Layers of one class around different ones, letters of a word, an array read backwards, modules that a function starts."""

    def __init__(self, dim, word, table):
        super().__init__()
        layers = []
        for letter, size in zip(list(word), [(dim, dim)] * len(word)):
            layers.extend([Around(nn.Linear(*size)), Around(nn.GELU())])
        self.net = nn.Sequential(*layers)
        self.table = nn.Parameter(torch.from_numpy(table[::-1].copy()).float())
        self.shifted = nn.ModuleList([Shifted(dim, torch.ones(dim), 2.0), Shifted(dim, None, 0.5)])
        self.before = self.behind = nn.Linear(dim, dim)
        self.named, self.headed = Named(dim), Headed(dim)
        for letter in word:
            if letter == "t":
                self.norm = nn.LayerNorm(dim)
        for module in self.modules():
            if isinstance(module, nn.LayerNorm):
                started(module)

    def forward(self, x):
        for layer in self.shifted:
            x = layer(x)
        x = self.behind(self.before(x)) + self.named(x.flatten(0, 1)).view_as(x)
        return self.headed(self.norm(self.net(x))) + self.table


class Balanced(nn.Module):
    """A mixture of experts: parts of a tensor that a mask picks are added to, and a loss is a tensor in training and 0 elsewhere."""

    def __init__(self, dim, experts):
        super().__init__()
        self.gate = nn.Linear(dim, experts)
        self.experts = nn.ModuleList([nn.Linear(dim, dim) for _ in range(experts)])
        self.loss = 0.0

    def forward(self, x):
        scores = self.gate(x).softmax(-1)
        weights, chosen = scores.topk(2, dim=-1)
        out = torch.zeros_like(x)
        for n, expert in enumerate(self.experts):
            picked = chosen == n
            rows = picked.any(dim=-1)
            if rows.any():
                out[rows] += expert(x[rows]) * weights[picked].unsqueeze(-1)
                out[:, -1:] *= 0.5
        out[..., [0, 1]] -= 1.0
        if self.training:
            self.loss = scores.mean(dim=(0, 1)).square().sum()
            return out, scores.mean()
        self.loss = 0.0
        return out, 0


class BalancedModel(nn.Module):
    def __init__(self, dim, experts=3, layers=2):
        super().__init__()
        self.layers = nn.ModuleList([Balanced(dim, experts) for _ in range(layers)])

    def forward(self, x):
        total = 0
        for layer in self.layers:
            x, loss = layer(x)
            total += loss
        return x, total, self.layers[0].loss + self.layers[1].loss


class HeldBefore(nn.Module):
    """Members that are a number or a list before they become the module made of it; tests whose operands are of any kind."""

    def __init__(self, width, drop=0.1, tail=2, word="", twice=False):
        super().__init__()
        self.drop = drop
        self.inner = nn.ModuleList([nn.Dropout(self.drop) for _ in range(tail)])
        self.drop = nn.Dropout(self.drop)
        self.add_rest(width, tail)
        if word:
            self.width = width
            self.width = nn.Linear(self.width, self.width, bias=False)
        self.twice, self.word = twice, word
        if width and not twice:
            self.norm = nn.LayerNorm(width)
        else:
            self.norm = nn.Identity()

    def add_rest(self, width, tail):
        self.rest = [nn.Linear(width, width), nn.Tanh()]
        if self.drop is not None:
            self.rest.append(self.drop)
        for _ in range(tail - 1):
            self.rest += [nn.Linear(width, width), nn.GELU()]
        self.rest = nn.Sequential(*self.rest)

    def forward(self, x, keep=None):
        y = self.norm(x)
        if keep is not None and torch.all(keep > 0):
            y = y + 1
        if self.word and not self.twice and keep is not None:
            y = self.width(y)
        if not (keep is not None and self.drop.p):
            y = y * 2
        for layer in self.inner:
            y = layer(y)
        return self.rest(y)


class Columns(nn.Module):
    """Dicts that comprehensions make, entries that words name, parts of words, numbers in words, lists of a tensor's numbers."""

    def __init__(self, columns, entries, method):
        super().__init__()
        self.columns, self.entries = columns, entries
        self.names = {name: name.replace("_", "") for name, _ in entries}
        self.first = len({size for _, size in entries if size > 2})
        self.embed = nn.ModuleDict({"embed_" + self.names[name]: nn.Embedding(size, 8) for name, size in entries})
        self.places = [self.columns[name] for name, _ in entries]
        self.total = np.sum([size for _, size in entries])
        self.count, self.scale, self.letter = int(method[3:]), float(method[3:5]), method[0]
        self.rnn = nn.GRU(8, 8, batch_first=True)

    def forward(self, x, lengths):
        parts = [self.embed["embed_" + self.names[name]](x[:, self.columns[name]]) for name, _ in self.entries]
        key = f"embed_{self.letter}"
        y = torch.stack(parts, 1) + x[:, self.places].unsqueeze(-1)
        if key in self.embed:
            y = y + self.embed[key].weight[0]
        packed = nn.utils.rnn.pack_padded_sequence(y, lengths.tolist(), batch_first=True, enforce_sorted=False)
        y, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        y = y - y.mean(dim=torch.arange(1, y.dim()).tolist(), keepdim=True)
        return y * sum(torch.linspace(0, 1, self.count).tolist()) * self.scale + self.first + self.total


class Axis(enum.IntEnum):
    batch = 0
    place = 1
    feature = 2


def told(x, path):
    name = path.split("/")[-1]
    logging.debug("%s %s", name, x.shape)


class Triangle(nn.Module):
    """An equation that each instance has, and axes of an IntEnum."""

    def __init__(self, width, way):
        super().__init__()
        self.equation = "bij, bik -> bjk" if way == "in" else "bji, bki -> bjk"
        self.fc = nn.Linear(width, width)
        fan, _ = nn.init._calculate_fan_in_and_fan_out(self.fc.weight)
        nn.init.uniform_(self.fc.bias, -1 / fan, 1 / nn.init._calculate_correct_fan(self.fc.weight, "fan_out"))

    def forward(self, x):
        y = self.fc(x).transpose(Axis.place, Axis.feature)
        told(y, "triangle/turned")
        return torch.einsum(self.equation, y, y).softmax(dim=Axis.feature)


class NormScale(nn.Module):
    def __init__(self, width, scale):
        super().__init__()
        self.norm, self.scale = nn.LayerNorm(width), scale


class Plus(NormScale):
    """A layer of any class is handed to a method; the constructor ends with a remark."""

    def __init__(self, width, scale):
        super().__init__(width, scale)
        self.steps = 1  # not counted

    def forward(self, x, layer):
        return x + self.scale * layer(self.norm(x))


class EveryPair(nn.Module):
    """Layers named in a dict, and every pair of a list."""

    def __init__(self, width, fields=3):
        super().__init__()
        named = OrderedDict()
        for n in range(2):
            named[f"fc{n}"] = nn.Linear(width, width)
            named[f"act{n}"] = nn.Tanh()
        self.mlp = nn.Sequential(named)
        self.mixes = nn.ModuleList([nn.Linear(width, width) for i, j in itertools.combinations(range(fields), 2)])
        self.inner, self.outer = Triangle(width, "in"), Triangle(width, "out")
        self.plus = Plus(width, 0.5)

    def forward(self, x):
        x = cast(torch.Tensor, x)
        parts = torch.chunk(x, 3, dim=1)
        pairs = [self.mixes[n](pair[0]) * pair[1] for n, pair in enumerate(itertools.combinations(parts, 2))]
        triples = [a * b + c for a, b, c in itertools.combinations(pairs, 3)]
        y = torch.cat(pairs + triples, dim=1)
        y = self.plus(self.plus(y, self.mlp), self.mixes[0])
        return (self.inner(y) @ self.inner(y)).sum() + self.outer(y)


def show_size(module):
    total = 0
    for name, child in module.named_children():
        total += sum(p.numel() for p in child.parameters())
        print(f"{name}: {total:,}")


def start_linear(m):
    if type(m) == nn.Linear or type(m) is nn.Conv1d:
        nn.init.xavier_uniform_(m.weight)
    elif m.__class__ in (nn.LayerNorm, SlowLinear) and m.bias is not None:
        nn.init.normal_(m.bias, std=0.1)


def start_named(module):
    for name, value in module.named_parameters():
        if "bias" in name:
            nn.init.uniform_(value, -0.1, 0.1)


def start_all(module):
    for m in module.modules():
        if isinstance(m, SlowLinear):
            nn.init.normal_(m.weight, std=0.2)


class SlowLinear(nn.Linear):
    """A layer that is no nn.Linear where a class is asked for by `type`."""


class LayersByType(nn.Module):
    """First weights by functions that ask for a layer's very class, or take a module of any class, also the one that is made;
    weights that change in place, a count that is only printed, lists of parameters, a flag of a layer that nothing reads."""

    def __init__(self, dim, start="small"):
        super().__init__()
        self.first, self.second = nn.Linear(dim, dim), SlowLinear(dim, dim)
        self.norm, self.inner = nn.LayerNorm(dim), TwoGains(dim)
        self.conv = nn.Conv1d(dim, dim, 1)
        self.first.started = True
        self.apply(start_linear)
        start_named(self.norm)
        start_named(self.conv)
        self.conv.apply(start_named)
        start_all(self)
        match start:
            case "small" | "tiny":
                self.first.weight.data *= 0.5
            case None:
                self.first.weight.data.zero_()
            case _ if dim > 4:
                self.first.weight.data *= 2
        for value in self.second.parameters():
            if value.dim() > 1:
                value.data += torch.eye(dim)
                value.data = value.data + 0.5
        self.slow = list(self.inner.parameters())
        self.slow.extend(list(self.norm.parameters()))
        self.parts = 0
        for name, child in self.named_children():
            if "n" in name:
                self.parts += sum(p.numel() for p in child.parameters())
        show_size(self)

    def forward(self, x):
        match self.parts % 5:
            case 0:
                x = x + 1
            case 1 | 2 | 3 | 4:
                x = x * 2
        x = self.norm(self.second(self.first(x)))
        return self.conv(self.inner(x).transpose(1, 2)) + sum(p.sum() for p in self.slow)


class WordsFrom(nn.Embedding):
    """An embedding that reads the numbers of its base class."""

    def forward(self, ids):
        places = (ids != self.padding_idx).long().cumsum(1) + self.padding_idx
        return F.embedding(places, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq)


class TwoEnds(nn.Sequential):
    """A list whose last layer has two results."""

    def __init__(self, dim):
        super().__init__(nn.Linear(dim, dim), SlowLinear(dim, dim), SineAndCosine())


class SineAndCosine(nn.Module):
    """Two results."""

    def forward(self, x):
        return x.sin(), x.cos()


class ComplexGain(nn.Module):
    """A complex parameter, a table of a range, results in a layout that is asked for."""

    def __init__(self, words, dim):
        super().__init__()
        self.embed, self.ends = WordsFrom(words, dim, padding_idx=1, max_norm=1.5), TwoEnds(dim)
        self.gain = nn.Parameter(torch.rand(dim, dtype=torch.cfloat) / dim)

    def forward(self, ids):
        steps = torch.tensor(range(ids.size(1), 0, -1), dtype=torch.float32)
        x = self.embed(ids) * steps[:, None]
        a, b = self.ends(x)
        y = torch.fft.ifft(torch.fft.fft(a, dim=-1) * self.gain, dim=-1).real
        hard = torch.zeros_like(y, memory_format=torch.legacy_contiguous_format).scatter_(-1, y.argmax(-1, keepdim=True), 1.0)
        kept = b.transpose(1, 2).clone(memory_format=torch.contiguous_format).view(len(ids), -1)
        wide = y[:, None].contiguous(memory_format=torch.channels_last).to(torch.float64, memory_format=torch.preserve_format)
        return hard + y, kept, wide


class Listed(nn.ModuleList):
    """A list under a name of its own."""


class SummedList(nn.ModuleList):
    """A list that is called."""

    def forward(self, x):
        for layer in self:
            x = x + layer(x)
        return x * len(self)


class GrownList(nn.ModuleList):
    """A list that its constructor fills."""

    def __init__(self, dim, sizes):
        super().__init__()
        self.dim = dim
        for n in sizes:
            self.append(nn.Sequential(nn.Linear(dim, n), nn.Linear(n, dim)))

    def forward(self, x):
        return [part(x) for part in self]


class NumberedLayers(nn.Sequential):
    """Layers that are called one by one."""

    def __init__(self, dim):
        super().__init__(nn.Linear(dim, dim), nn.Linear(dim, dim))

    def forward(self, x):
        for n, layer in enumerate(self):
            x = layer(x) + n
        return x + self[0](x)


class OwnLists(nn.Module):
    """Classes that are derived from PyTorch's lists of layers."""

    def __init__(self, dim):
        super().__init__()
        self.rows = Listed([nn.Linear(dim, dim) for _ in range(2)])
        self.sums = SummedList([nn.Linear(dim, dim), nn.Linear(dim, dim)])
        self.grown, self.numbered = GrownList(dim, (3, 4)), NumberedLayers(dim)

    def forward(self, x):
        for row in self.rows:
            x = row(x)
        return torch.cat(self.grown(self.sums(x)), -1) + self.rows[0](self.numbered(x)).repeat(1, 1, 2)


class ChosenExperts(nn.Module):
    """A loop over the experts that were chosen, and the tokens that chose them."""

    def __init__(self, width, experts=2):
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(width, width) for _ in range(experts)])
        self.gate = nn.Linear(width, experts)

    def forward(self, x):
        flat = x.reshape(-1, x.size(-1))
        chosen = self.gate(flat).argmax(-1)
        y = torch.zeros_like(flat)
        for i in chosen.unique().tolist():
            y[chosen == i] = self.experts[i](flat[chosen == i])
        return y.view_as(x)


class SeededBuckets(nn.Module):
    """Numbers drawn by generators of their own, a table without repetitions, layers behind checkpoint_sequential."""

    def __init__(self, dim, buckets=6):
        super().__init__()
        generator = torch.Generator()
        generator.manual_seed(17 * dim)
        self.register_buffer("chosen", torch.randperm(dim, generator=generator)[: dim // 2].sort()[0])
        self.register_buffer("start", torch.randint(0, 9, (dim,), generator=torch.Generator().manual_seed(dim)))
        steps = torch.linspace(0.0, 2.0, steps=buckets).exp().floor().to(torch.int64)
        self.register_buffer("bounds", torch.unique(steps), persistent=False)
        self.layers = nn.Sequential(nn.Linear(dim // 2, dim), nn.Tanh(), nn.Dropout(0.1), nn.Linear(dim, dim))

    def forward(self, x):
        y = checkpoint_sequential(self.layers, 2, x[..., self.chosen], use_reentrant=False)
        return y + torch.bucketize(3 * x.abs(), self.bounds) * self.start


def with_norm(x, more=False):
    size = x.norm(dim=-1, keepdim=True)
    if more:
        return x / size, size.mean()
    return x / size


def squared(x, more=False):
    return (x * x, x) if more else x * x


class AsksForMore(nn.Module):
    """One result, or several where the caller asks for them."""

    def __init__(self, dim):
        super().__init__()
        self.first, self.second = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def both(self, x, more=False):
        y = self.first(x).tanh()
        if not more:
            return y
        return y, [self.second(y), x], 2

    def forward(self, x, more=False):
        h = with_norm(self.both(x))
        y, parts, times = self.both(h, True)
        z, size = with_norm(y, more=True)
        square, same = squared(z, True)
        z = times * same + size + squared(square)
        return (z, parts[0]) if more else z


class HalvesTokens(nn.Module):
    def __init__(self, dim, norm=nn.LayerNorm):
        super().__init__()
        self.norm, self.reduction = norm(2 * dim), nn.Linear(2 * dim, 2 * dim)

    def forward(self, x):
        return self.reduction(self.norm(torch.cat([x[:, 0::2], x[:, 1::2]], -1)))


class Stage(nn.Module):
    """A layer, and another behind it where a class is given."""

    def __init__(self, dim, merge=None, norm=nn.LayerNorm):
        super().__init__()
        self.layer = nn.Linear(dim, dim)
        if merge is not None:
            self.merge = merge(dim, norm=norm)
        else:
            self.merge = None

    def forward(self, x):
        x = self.layer(x)
        if self.merge is not None:
            x = self.merge(x)
        return x


class Stages(nn.Module):
    def __init__(self, dim, count=2):
        super().__init__()
        self.stages = nn.ModuleList()
        for n in range(count):
            self.stages.append(Stage(dim * 2**n, merge=HalvesTokens if n < count - 1 else None))
        self.last = Stage(dim * 2 ** (count - 1))

    def forward(self, x):
        for stage in self.stages:
            x = stage(x)
        return self.last(x)


class FrozenTable(nn.Module):
    """Parameters without gradients, counters that end at a tensor, functools.partial within map, a word within another."""

    def __init__(self, dim, *shape, norm="LayerNorm"):
        super().__init__()
        self.shape, self.dim = shape, dim
        self.places = nn.Embedding(10, dim)
        self.places.weight = nn.Parameter(torch.linspace(-1.0, 1.0, 10 * dim).view(10, dim), requires_grad=False)
        self.gain = nn.Parameter(torch.full((dim,), 0.5), False)
        if "layer" in norm.lower():
            self.norm = nn.LayerNorm(dim)

    def forward(self, x, lengths):
        at = torch.zeros(x.shape[:2], dtype=torch.long)
        for row, length in enumerate(lengths):
            for place in range(1, length + 1):
                at[row, place - 1] = place
        y = self.norm(x + self.gain * self.places(at))
        a, b = map(functools.partial(torch.cat, dim=-1), ((x, y), (y, x)))
        return (a * b).unflatten(-1, self.shape)


class Widened(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.project = nn.Linear(width, 2 * width)

    def forward(self, x):
        return self.project(x).chunk(2, -1)[0].tanh()


class OneNameTwoClasses(nn.Module):
    """A local name that holds modules of two classes, a list that takes both."""

    def __init__(self, width, count):
        super().__init__()
        self.stages = nn.ModuleList()
        for at in range(count):
            if at == 0:
                stage = nn.Linear(width, width)
            else:
                stage = Widened(width)
            self.stages.append(stage)
        layers = []
        for at in range(2):
            layer = Widened(width) if at else nn.LayerNorm(width)
            layers.append(layer)
        self.body = nn.Sequential(*layers)
        tops = [Widened(width)]
        for at in range(2):
            top = nn.GELU() if at else Widened(width)
            tops.append(top)
        self.tops = nn.ModuleList(tops)
        self.pairs = nn.ModuleList()
        for at in range(2):
            pair = [Widened(width)]
            if at > 0:
                pair.append(nn.Linear(width, width))
            self.pairs.append(nn.Sequential(*pair))
        for at in range(1):
            pair = [Widened(width)]
            pair.append(nn.Linear(width, width))
            self.pairs.append(nn.Sequential(*pair))

    def forward(self, x):
        for at, stage in enumerate(self.stages):
            if at == 0:
                x = stage(x)
            else:
                x = x + stage(x)
        for top in self.tops:
            x = top(x)
        for pair in self.pairs:
            x = pair(x)
        return self.body(x)


class Timed(nn.Module):
    def __init__(self, width, change=None):
        super().__init__()
        self.project = nn.Linear(width, width)
        self.drop = nn.Dropout(0.1)
        self.front = nn.Sequential(nn.LayerNorm(width), nn.Tanh(), nn.Linear(width, width))
        if change == "wide":
            self.change = nn.Linear(width, width)
            self.skip = nn.Linear(width, width)
        else:
            self.change = self.skip = nn.Identity()
        self.again = False

    def forward(self, x, time):
        return computed_again(self.step, (x, time), flag=self.again)

    def step(self, x, time):
        early, late = self.front[:-1], self.front[-1]
        x = self.skip(x) + late(self.change(early(x)))
        return x + self.drop(self.project(x) * time[:, None, None])


class RunAgain(torch.autograd.Function):
    @staticmethod
    def forward(ctx, function, length, *inputs):
        return function(*inputs)


def computed_again(function, inputs, flag):
    if flag:
        return RunAgain.apply(function, len(inputs), *inputs)
    else:
        return function(*inputs)


class TimedLayers(nn.Sequential):
    """Hands the time to the layers that take it."""

    def forward(self, x, time):
        for layer in self:
            if isinstance(layer, Timed):
                x = layer(x, time)
            else:
                x = layer(x)
        return x


class ByTime(nn.Module):
    """A class chosen in a branch, a layer under two names, some layers of a list, a checkpoint that is off."""

    def __init__(self, width, smooth):
        super().__init__()
        if smooth:
            activation = nn.GELU
        else:
            activation = nn.ReLU
        self.layers = TimedLayers(Timed(width), nn.Linear(width, width), activation(), Timed(width, "wide"))
        self.last = activation()

    def forward(self, x, time):
        return self.last(self.layers(x, time))


class BothSmooth(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.rough, self.smooth = ByTime(width, False), ByTime(width, True)

    def forward(self, x, time):
        return self.smooth(self.rough(x, time), time)


def twice(size):
    return size if isinstance(size, tuple) else (size, size)


class Steps(nn.Module):
    """Calls a method that only derived classes have; members that nothing reads, and that C++ could not hold."""

    def __init__(self, words, width):
        super().__init__()
        self.words = dict(enumerate(words))
        self.places = {word: place for place, word in self.words.items()}
        self.weight = nn.Linear(width, width)
        rows, columns = twice(width)
        self.scale = rows / columns / 2

    def forward(self, x):
        return self.scale * self.step(self.weight(x))


class PoolingSteps(Steps):
    """Sums that begin with a number where a branch is missing, and a pool that is undone."""

    def __init__(self, words, width, skip=True):
        super().__init__(words, width)
        self.skip = nn.Linear(width, width) if skip else None
        self.pool = nn.MaxPool1d(2, return_indices=True)
        self.unpool = nn.MaxUnpool1d(2)

    def step(self, x):
        small, found = self.pool(x)
        kept = self.unpool(small, found, output_size=x.size())
        skipped = 0
        if self.skip is not None:
            skipped = self.skip(x)
        other = 0
        if self.training:
            other = x * 0.5
        out = skipped + other
        for at in range(2):
            out += kept * at
        return out


class TwoPools(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.first, self.second = PoolingSteps(words, width), PoolingSteps(words, width, skip=False)

    def forward(self, x):
        return self.first(x) + self.second(x)


@dataclass
class Rounded:
    words: int
    width: int = 8

    def __post_init__(self):
        self.inner = 2 * self.width
        if self.words % 8 != 0:
            self.words += 8 - self.words % 8


class RoundedTable(nn.Module):
    """A config that changes what it was given."""

    def __init__(self, config: Rounded):
        super().__init__()
        self.table = nn.Embedding(config.words, config.inner)

    def forward(self, ids):
        return self.table(ids)


@dataclass
class Trace:
    last: torch.Tensor
    between: Optional[tuple] = None
    weights: Optional[list] = None


class Traced(nn.Module):
    """Results that are there if they are asked for: a tuple that grows, an entry of a dict, fields of a dataclass."""

    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])

    def walk(self, x, trace):
        seen = () if trace else None
        weights = []
        for layer in self.layers:
            if trace:
                seen = seen + (x,)
            x = layer(x).tanh()
            weights.append(x.softmax(-1))
        return Trace(last=x, between=seen, weights=weights if trace else None)

    def forward(self, x, trace=False):
        steps = self.walk(x, trace)
        everything = () if trace else None
        if trace:
            everything += (steps.weights[0],)
            everything = everything + (x,) + steps.between
        return steps.last, {"all": everything, "last": steps.last}


class LeftConv(nn.Conv1d):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.left = (self.kernel_size[0] - 1) * self.dilation[0]

    def forward(self, x):
        return super().forward(F.pad(x, (self.left, 0)))


class LowRank(nn.Linear):
    def __init__(self, rank, *args, gain=2.0, **kwargs):
        super().__init__(*args, bias=False, **kwargs)
        self.gain = gain
        self.down = nn.Parameter(torch.randn(rank, self.in_features) * 0.1)
        self.up = nn.Parameter(torch.zeros(self.out_features, rank))

    def forward(self, x):
        return super().forward(x) + self.gain * (x @ self.down.t() @ self.up.t())


def started_conv(*args, **kwargs):
    layer = nn.Conv1d(*args, **kwargs)
    nn.init.kaiming_normal_(layer.weight)
    return layer


class GivenOptions(nn.Module):
    """Layers that take whatever PyTorch's own take."""

    def __init__(self, width):
        super().__init__()
        self.wide = LeftConv(width, width, 3, dilation=2)
        self.point = LeftConv(in_channels=width, out_channels=width, kernel_size=1)
        self.mix = started_conv(width, width, 1, bias=False)
        self.first, self.second = LowRank(2, width, width), LowRank(2, width, 2 * width, gain=0.5)

    def forward(self, x):
        x = self.mix(self.point(self.wide(x.transpose(1, 2))))
        return self.second(self.first(x.transpose(1, 2)))


class Widening(nn.Sequential):
    def __init__(self, width, times, act=False):
        m = []
        for _ in range(times):
            m.append(Widened(width))
            if act == "relu":
                m.append(nn.ReLU())
        m.append(nn.Tanh())
        super().__init__(*m)


class Shortcut(nn.Module):
    def __init__(self, width, to):
        super().__init__()
        self.same = width == to
        self.across = (not self.same) and nn.Linear(width, to, bias=False) or None
        self.along = nn.Linear(width, to)

    def forward(self, x):
        return self.along(x) + (x if self.same else self.across(x))


class OldWays(nn.Module):
    """Choices by `and` and `or`, lists of named layers that are joined, calls with a comma behind them, flags that may be words."""

    def __init__(self, width, wide):
        super().__init__()
        self.units = nn.Sequential(OrderedDict([("unit1", Shortcut(width, wide))] + [(f"unit{i:d}", Shortcut(wide, wide)) for i in range(2, 4)]))
        self.add_module("widening", Widening(wide, 2)),
        body = [Widened(wide) for _ in range(2)]
        body.append(nn.Linear(wide, width))
        self.body = nn.Sequential(*body)
        self.head = nn.Sequential(OrderedDict([("grow", nn.Linear(width, wide)), ("act", nn.GELU()), ("back", nn.Linear(wide, width))]))
        nn.init.normal_(self.head.grow.weight, std=0.02)
        self.kept = len(self.units) > 5 and width or wide

    def forward(self, x, step):
        if step.dtype in [torch.int32, torch.int64]:
            step = step.float()
        return self.head(self.body(self.widening(self.units(x)))) * (step + self.kept)[:, None, None]


class Routed(nn.Module):
    """Each expert takes the tokens that chose it, found by torch.where of one argument."""

    def __init__(self, width, experts, chosen):
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(width, width), nn.SiLU()) for _ in range(experts)])
        self.chosen = chosen

    def forward(self, x):
        tokens = x.flatten(0, 1)
        weights, experts = self.gate(tokens).softmax(-1).topk(self.chosen, dim=-1)
        out = torch.zeros_like(tokens)
        masks = F.one_hot(experts, num_classes=len(self.experts)).permute(2, 1, 0)
        for at, expert in enumerate(self.experts):
            place, token = torch.where(masks[at])
            out.index_add_(0, token, expert(tokens[token]) * weights[token, place, None])
        return out.view_as(x)


class Bent(nn.Module):
    def __init__(self, width, act="relu"):
        super().__init__()
        self.project = nn.Linear(width, width)
        self.act = {"relu": nn.ReLU(), "gelu": nn.GELU(), "none": nn.Identity()}[act]

    def forward(self, x):
        return self.act(self.project(x))


class Followed(nn.Module):
    """Layers chosen by a word, one module whose parameters follow another's."""

    def __init__(self, width):
        super().__init__()
        self.leader, self.follower = nn.Sequential(Bent(width), Bent(width, "gelu")), nn.Sequential(Bent(width), Bent(width, "none"))
        for led, leads in zip(self.follower.parameters(), self.leader.parameters()):
            led.data.copy_(leads.data)
            led.requires_grad = False

    @torch.no_grad()
    def follow(self):
        for led, leads in zip(self.follower.parameters(), self.leader.parameters()):
            led.data = led.data * 0.75 + leads.data * 0.25

    def forward(self, x):
        self.follow()
        return self.leader(x) * self.follower(x)


class Normed(nn.Module):
    """A small critic of images with spectral and weight normalisation of both kinds."""

    def __init__(self, classes, width=8, leak=0.2):
        super().__init__()
        self.leak = leak
        self.down = nn.Sequential(
            nn.utils.spectral_norm(nn.Conv2d(3, width, 3, stride=2, padding=1)),
            nn.LeakyReLU(leak),
            nn.utils.spectral_norm(nn.ConvTranspose2d(width, width, 4, 2, 1, bias=False), n_power_iterations=2),
        )
        self.classes = spectral_norm(nn.Embedding(classes, width))
        self.score = nn.utils.parametrizations.spectral_norm(nn.Linear(width, 1))
        self.line = nn.utils.parametrizations.weight_norm(nn.Conv1d(width, width, 3, padding=1))
        self.up = nn.utils.weight_norm(nn.ConvTranspose1d(width, width, 4, 2, padding=1))
        self.last = parametrizations.spectral_norm(nn.ConvTranspose1d(width, 2, 2), "weight", 3, eps=1e-6)
        self.apply(self.first)
        for module in self.modules():
            if isinstance(module, (nn.Conv1d, nn.Conv2d)):
                nn.init.constant_(module.bias, 0.1)

    def first(self, module):
        name = module.__class__.__name__
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            nn.init.normal_(module.weight, 0.0, 0.3)
        elif name.find("Embedding") != -1:
            nn.init.orthogonal_(module.weight.data)

    def forward(self, x, which):
        y = F.leaky_relu(self.down(x), self.leak)
        pooled = y.sum((2, 3))
        score = self.score(pooled).squeeze(1) + (self.classes(which) * pooled).sum(1)
        return score, self.last(self.up(self.line(y.mean(3))))


class ChannelNorm(nn.LayerNorm):
    """Over the channels of an image."""

    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvUnit(nn.Sequential):
    """A convolution with the normalisation and activation that it is given."""

    def __init__(self, cin, cout, kernel=3, norm=nn.BatchNorm2d, act=nn.ReLU, inplace=True, bias=None):
        if bias is None:
            bias = norm is None
        layers = [nn.Conv2d(cin, cout, kernel, padding=kernel // 2, bias=bias)]
        if norm is not None:
            layers.append(norm(cout))
        if act is not None:
            params = {} if inplace is None else {"inplace": inplace}
            layers.append(act(**params))
        super().__init__(*layers)
        self.width = cout


class ChannelGate(nn.Module):
    def __init__(self, width, act=nn.ReLU, last=nn.Sigmoid):
        super().__init__()
        self.squeeze = nn.Conv2d(width, width // 2, 1)
        self.act = act()
        self.expand = nn.Conv2d(width // 2, width, 1)
        self.last = last()

    def forward(self, x):
        return x * self.last(self.expand(self.act(self.squeeze(x.mean((2, 3), keepdim=True)))))


class GatedStage(nn.Module):
    def __init__(self, width, act, norm=None, gate=ChannelGate):
        super().__init__()
        if norm is None:
            norm = functools.partial(nn.BatchNorm2d, eps=0.01)
        self.norm_layer = norm
        self.before = norm(width)
        self.unit = ConvUnit(width, width, norm=norm, act=act)
        self.gate = gate(width, last=nn.Hardsigmoid if act is nn.Hardswish else nn.Sigmoid)
        self.after = self.norm_layer(width)

    def forward(self, x):
        return x + self.after(self.gate(self.unit(self.before(x))))


class HandedLayers(nn.Module):
    """Layers made by classes and partials that are handed over, of which each user gives others."""

    def __init__(self, width):
        super().__init__()
        self.stem = ConvUnit(3, width, norm=None, act=nn.Hardswish)
        self.stages = nn.Sequential(
            GatedStage(width, nn.ReLU),
            GatedStage(width, nn.Hardswish, functools.partial(ChannelNorm, eps=1e-6)),
            GatedStage(width, nn.SiLU, nn.InstanceNorm2d, gate=functools.partial(ChannelGate, act=nn.GELU)),
        )
        self.head = ConvUnit(width, 4, 1, act=None, inplace=None)

    def forward(self, x):
        return self.head(self.stages(self.stem(x)))


class StageSettings:
    """A stage of ConfiguredStages."""

    def __init__(self, width, depth, block=None, stretch=1.0, wide=None):
        self.width = self.rounded(width * stretch)
        self.depth, self.block, self.wide = depth, block or ChannelGate, wide

    @staticmethod
    def rounded(value, to=4):
        return max(to, int(value + to / 2) // to * to)


class NamedUnits(nn.Sequential):
    def __init__(self, cin, cout, gated, norm):
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        layers["a"] = ConvUnit(cin, cout, norm=norm)
        if gated:
            layers["gate"] = ChannelGate(cout)
        layers["b"] = ConvUnit(cout, cout, 1, norm=norm, act=None)
        super().__init__(layers)


class ConfiguredStages(nn.Module):
    """Stages made of a list of objects, which are copied and changed; lists that begin empty in a loop; ModuleLists that grow."""

    def __init__(self, stages, norm=None):
        super().__init__()
        norm = norm or functools.partial(nn.BatchNorm2d, momentum=0.2)
        self.blocks, width = nn.ModuleList(), 3
        self.tops = nn.ModuleList()
        for setting in stages:
            stage: list[nn.Module] = []
            mine = copy.copy(setting)
            mine.width = setting.rounded(setting.width * 1.5)
            for _ in range(mine.depth):
                stage.append(NamedUnits(width, mine.width, mine.wide is None, norm))
                width = mine.width
            self.blocks += [nn.Sequential(*stage)]
            self.tops.extend([mine.block(width) for _ in range(2)])
            if mine.wide is not None:
                self.wide = nn.Conv2d(width, width // mine.wide, 1)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        for top in self.tops[2:]:
            x = top(x)
        return self.wide(x)


class WholeNumbers(nn.Module):
    """Sizes from Python's math, and sums of numpy's arrays."""

    def __init__(self, width, sizes):
        super().__init__()
        self.step = math.gcd(width, 12, 20)
        self.wide = math.lcm(self.step, 6)
        self.scale = math.factorial(3) / math.comb(self.wide, 2) + math.radians(width + 1) + math.trunc(width / 3)
        self.starts = np.array((0, *np.cumsum(sizes)[:-1]), dtype=np.int64)
        self.table = nn.Embedding(sum(sizes) + max(sizes), self.wide)
        self.out = nn.Linear(self.wide * len(sizes), self.step)

    def forward(self, words):
        words = words + words.new_tensor(self.starts).unsqueeze(0)
        return self.out(self.table(words).flatten(1)) * self.scale


class Crossed(nn.Module):
    """A layer of two arguments."""

    def __init__(self, width):
        super().__init__()
        self.project = nn.Linear(width, width)

    def forward(self, x, y):
        return x + self.project(y)


class InTurn(nn.Sequential):
    """A sequence of layers of two arguments."""

    def forward(self, *inputs):
        x, y = inputs
        for layer in self._modules.values():
            x = layer(x, y)
        return x


class ByTheirNames(nn.Module):
    """Copies of a layer, layers of two arguments in turn, and layers by their names."""

    def __init__(self, width, count, wanted=("1", "2")):
        super().__init__()
        self.copies = _get_clones(nn.Linear(width, width), count)
        self.crossed = _get_clones(InTurn(Crossed(width), Crossed(width)), 2)
        self.chain = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.LayerNorm(width))
        self.by_name = nn.ModuleDict({"a": nn.Linear(width, width), "b": nn.Linear(width, width)})
        self.wanted = wanted

    def forward(self, x):
        y, found = x, []
        for layer in self.copies:
            y = torch.tanh(layer(y))
        for layers in self.crossed:
            y = layers(x, y)
        for name, layer in self.chain._modules.items():
            y = layer(y)
            if name in self.wanted:
                found.append(y)
        for name, layer in self.chain.named_children():
            if name != "0":
                y = y + layer(y)
        for name, layer in self.by_name.named_children():
            y = layer(y) if name == "a" else y - layer(y)
        return y, torch.cat(found, -1)


class UnitRows(nn.Module):
    """Puts a weight with rows of norm 1 and a gain in the place of a layer's weight."""

    def __init__(self, layer, name="weight"):
        super().__init__()
        self.layer, self.name = layer, name
        if not self.is_made():
            self.make()

    def is_made(self):
        try:
            gain = getattr(self.layer, self.name + "_gain")
            raw = getattr(self.layer, self.name + "_raw")
            return True
        except AttributeError:
            return False

    def make(self):
        weight = getattr(self.layer, self.name)
        gain = nn.Parameter(weight.data.new(weight.data.shape[0]).fill_(1.5), requires_grad=False)
        raw = nn.Parameter(weight.data)
        del self.layer._parameters[self.name]
        self.layer.register_parameter(self.name + "_gain", gain)
        self.layer.register_parameter(self.name + "_raw", raw)

    def forward(self, *args):
        raw, gain = getattr(self.layer, self.name + "_raw"), getattr(self.layer, self.name + "_gain")
        rows = raw.flatten(1)
        unit = rows / rows.norm(dim=1, keepdim=True) * gain.unsqueeze(1)
        setattr(self.layer, self.name, unit.view_as(raw))
        return self.layer.forward(*args)


class WithUnitRows(nn.Module):
    """Layers of two kinds in a wrapper that changes their weights."""

    def __init__(self, width):
        super().__init__()
        self.conv, self.last = UnitRows(nn.Conv1d(width, width, 3, padding=1)), UnitRows(nn.Linear(width, 2))
        shift = nn.Parameter(torch.full((2,), 0.25), requires_grad=False)
        self.shift = shift

    def forward(self, x):
        return self.last(F.relu(self.conv(x.transpose(1, 2))).transpose(1, 2)) + self.shift


class KeepsKeys(nn.Module):
    """A layer that is told something before it is called."""

    def __init__(self, width):
        super().__init__()
        self.project = nn.Linear(width, width)
        self.keys = None

    def keep(self, x):
        self.keys = self.project(x)

    def forward(self, x):
        return x * self.keys


class Telling(nn.Module):
    """A wrapper that tells a layer something if it is of a class that wants to know."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x, layer, tells=False):
        y = self.norm(x)
        if tells:
            layer.keep(y)
        return x + layer(y)


@torch.jit.script
def gated(a, b, width):
    first = int(width[0])
    both = a + b
    return torch.tanh(both[..., :first]) * torch.sigmoid(both[..., first:])


class ToldOnly(nn.Module):
    """One wrapper around layers of two classes, and a scripted function that is given a tensor of one size."""

    def __init__(self, width):
        super().__init__()
        self.width = width
        self.keeps, self.plain = KeepsKeys(width), nn.Sequential(nn.Linear(width, width), nn.Tanh())
        self.around = nn.ModuleList([Telling(width), Telling(width)])

    def forward(self, x):
        x = self.around[0](x, self.keeps, True)
        x = self.around[1](x, self.plain)
        return gated(x, x.flip(-1), torch.IntTensor([self.width // 2]))


class Policy(nn.Module):
    """Distributions of actions and of a latent, which forward makes and draws from."""

    def __init__(self, width, actions):
        super().__init__()
        self.head, self.prior = nn.Linear(width, 4), nn.Linear(width, 4)
        self.choose = nn.Linear(width, actions)

    def latent(self, layer, x):
        mean, spread = layer(x).chunk(2, -1)
        return Normal(mean, F.softplus(spread) + 0.1)

    def forward(self, x, taken, draw=False):
        q, p = self.latent(self.head, x), self.latent(self.prior, x)
        z = q.rsample() if draw else q.mean
        choice = torch.distributions.Categorical(logits=self.choose(x))
        action = choice.sample() if draw else taken
        bits = q.log_prob(z).sum(-1) + (p.entropy() * p.stddev - q.variance).sum(-1) + q.sample().sum(-1) * 0.0
        return z, choice.log_prob(action) + bits, choice.entropy() + kl_divergence(q, p).sum(-1)


class Densely(nn.ModuleDict):
    """Layers that see what all before them gave."""

    def __init__(self, width, count):
        super().__init__()
        for n in range(count):
            layer = nn.Linear(width * (n + 1), width)
            self.add_module("layer%d" % n, layer)
        self.last = nn.Linear(width * (count + 1), width)

    def forward(self, x):
        seen = [x]
        for _, layer in self.items():
            seen.append(torch.tanh(layer(torch.cat(seen, -1))))
        return seen[-1]


class NamedInALoop(nn.Module):
    """Members with names that a loop puts together, a list of layers of several classes, and layers that are compared."""

    def __init__(self, width):
        super().__init__()
        self.stage2: nn.Sequential
        self.stage3: nn.Sequential
        for name, times in zip([f"stage{n}" for n in [2, 3]], [1, 2]):
            stage: list[nn.Module] = []
            for _ in range(times):
                stage.append(nn.Linear(width, width))
            setattr(self, name, nn.Sequential(*stage))
        self.dense = Densely(width, 2)
        last = nn.Linear(width, width)
        layers = [nn.Linear(width, width), nn.Tanh(), nn.Sequential(nn.Linear(width, width), nn.ReLU()), last]
        self.layers = nn.Sequential(*layers)
        for m in self.modules():
            if m is self:
                continue
            if isinstance(m, nn.Linear):
                if m is last:
                    nn.init.normal_(m.weight, std=0.2)
                else:
                    nn.init.xavier_uniform_(m.weight)

    def forward(self, x):
        return self.layers(self.dense(self.stage3(self.stage2(x))))


def rolled(x, shift):
    """x, rolled, with another number where it wrapped around."""
    shift = shift.copy()
    if x.size(1) < 8:
        shift[0] = 1
    x = torch.roll(x, shifts=(-shift[0], shift[1]), dims=(1, 2))
    marks = torch.zeros_like(x)
    rows, count = ((0, -2), (-2, -shift[0]), (-shift[0], None)), 0
    for row in rows:
        for column in ((0, 1.5), (2, 0.5)):
            marks[:, row[0] : row[1], int(column[0])] = count * column[1]
            count += 1
    return x + marks


class RolledByLists(nn.Module):
    """Lists that are copied, filtered, or hold classes."""

    def __init__(self, width, shift, layers, shapes, strides=(1, 2, 2)):
        super().__init__()
        self.shift, self.halvings = shift, len(list(filter(lambda stride: stride == 2, strides)))
        self.first = layers[0](width, width)
        self.rest = nn.ModuleList([layer(width, width) for layer in layers])
        self.acts = nn.Sequential()
        for shape in shapes:
            self.acts.append(shape())

    def forward(self, x):
        for layer in self.rest:
            x = layer(x) / self.halvings
        return self.acts(self.first(rolled(rolled(x, self.shift), self.shift)))


class Unit(nn.Module):
    def __init__(self, inputs, outputs, **kwargs):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, bias=False, **kwargs)
        self.norm = nn.BatchNorm2d(outputs, eps=1e-3)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)), inplace=True)


class Sized(nn.Module):
    def __init__(self, width, kernel, padding, after=None):
        super().__init__()
        self.conv = nn.Conv2d(width, width, kernel, padding=padding, groups=width)
        self.after = after

    def forward(self, x):
        x = self.conv(x)
        return x if self.after is None else self.after(x)


class Thin(nn.Conv2d):
    def __init__(self, inputs, outputs, scale=0.5, **kwargs):
        super().__init__(inputs, outputs, 1, bias=False, **kwargs)
        self.scale = scale

    def forward(self, x):
        return super().forward(x) * self.scale


Scores = namedtuple("Scores", ["scores", "side"])


class FurtherKeywords(nn.Module):
    """Keywords of a layer and layers that some calls give, sizes that are a number or a pair, and a named tuple in train mode alone."""

    def __init__(self, width, blocks=None, aside=True):
        super().__init__()
        if blocks is None:
            blocks = [Unit, Thin]
        if len(blocks) != 2:
            raise ValueError(f"two blocks, not {len(blocks)}")
        unit, thin = blocks[0], blocks[1]
        self.head = unit(3, width, kernel_size=3, stride=2, padding=1)
        self.wide = unit(width, width, kernel_size=(1, 3), padding=(0, 1))
        self.point = unit(width, width, kernel_size=1)
        self.sized = nn.Sequential(Sized(width, 3, 1), Sized(width, (3, 1), (1, 0), nn.BatchNorm2d(width)))
        self.thin, self.side = thin(width, 2), thin(width, 2, scale=0.25, stride=2)
        self.side.gain = 0.1
        self.aside = aside

    def scores(self, x, side: torch.Tensor):
        if self.training and self.aside:
            return Scores(x, side)
        return x

    def forward(self, x):
        x = self.sized(self.point(self.wide(self.head(x))))
        side = None
        if self.training:
            side = self.side(x)
        return self.scores(self.thin(x), side)


def planned(plan, inputs, normed=False):
    """Layers of a plan: widths, and words for what lies between."""
    layers = []
    for v in plan:
        if v == "M":
            layers += [nn.MaxPool1d(2)]
        elif isinstance(v, str):
            layers += [nn.Tanh()]
        else:
            v = cast(int, v)
            conv = nn.Conv1d(inputs, v, 3, padding=1)
            if normed:
                layers += [conv, nn.BatchNorm1d(v)]
            else:
                layers += [conv]
            inputs = v
    return nn.Sequential(*layers)


class Planned(nn.Module):
    """Numbers and words in one list."""

    def __init__(self, features, plan):
        super().__init__()
        self.features = features
        self.more = planned(plan, 16)

    def forward(self, x):
        return self.more(self.features(x))


NAMED = {}


def named(function):
    NAMED[function.__name__] = function
    return function


@named
def grid_of(*sizes):
    try:
        return torch.meshgrid(*[torch.arange(n) for n in sizes], indexing="ij")
    except TypeError:  # of an old PyTorch
        return torch.meshgrid(*[torch.arange(n) for n in sizes])


class OldAndNew(nn.Module):
    """Answers for several releases of PyTorch, of which one runs; a class asked for its bases."""

    def __init__(self, width, norm=nn.LayerNorm):
        super().__init__()
        self.norm = norm(width)
        self.scaled = issubclass(norm, nn.LayerNorm)
        places = torch.stack(grid_of(3, 4)) if any((width, 0)) else None
        self.register_buffer("places", (places[0] * 4 + places[1]).flatten().float(), persistent=False)

    def forward(self, x):
        x = self.norm(x)
        try:
            x = F.scaled_dot_product_attention(x, x, x)
        except AttributeError:
            x = (x @ x.transpose(-2, -1)).softmax(-1) @ x
        return x + self.places[: x.size(1), None] if self.scaled else x


class ShortOrLong(nn.Module):
    def __init__(self, width, long):
        super().__init__()
        parts = [nn.Linear(width, width), nn.ReLU()] if long else [nn.Linear(width, width)]
        self.body = nn.Sequential(*parts)

    def forward(self, x):
        return self.body(x)


class BySizes(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.body = nn.Sequential(nn.ReLU() if all(n > 2 for n in sizes) else nn.GELU() if any(n > 2 for n in sizes) else nn.Tanh())

    def forward(self, x):
        return self.body(x)


class EitherList(nn.Module):
    """Choices between lists of layers of different classes, and between three layers by tests that are loops."""

    def __init__(self, width):
        super().__init__()
        self.long, self.short = ShortOrLong(width, True), ShortOrLong(width, False)
        self.bends = nn.ModuleList([BySizes(sizes) for sizes in ([3, 4], [1, 3], [1, 1])])

    def forward(self, x):
        x = self.short(self.long(x))
        for bend in self.bends:
            x = bend(x)
        return x


class NamedStages(nn.Module):
    """Runs its layers in turn and gives what some of them compute, under other names, in the order of the layers."""

    def __init__(self, width, wanted, scales):
        super().__init__()
        if not set(wanted).issubset(["first", "second", "third"]):
            raise ValueError("no such layer")
        asked = wanted
        wanted = {name: title for name, title in wanted.items()}
        self.layers = nn.ModuleDict({name: nn.Linear(width, width) for name in ("first", "second", "third")})
        scales = {**scales, "third": 0.25}
        self.factors = {name: scales.get(name, 1.0) for name in ("first", "second", "third", "fourth")}
        last = 0
        for count, name in enumerate(["first", "second", "third"]):
            if name in wanted:
                del wanted[name]
                last = count
            if not wanted:
                break
        self.last, self.asked, self.count = last, asked, len(asked)
        self.rest = sum(scales.values()) + scales.pop("second", 3.0) + len(scales)

    def forward(self, x):
        found = OrderedDict()
        for name, layer in self.layers.items():
            x = torch.tanh(layer(x)) * self.factors[name]
            if name in self.asked:
                found[self.asked[name]] = x
        return found


class WordsInDicts(nn.Module):
    """Dicts that are looped over, asked for keys that only C++'s caller knows, changed, copied and handed on."""

    def __init__(self, width, wanted, sizes):
        super().__init__()
        self.stages = NamedStages(width, wanted, {"first": 0.5, "second": 2.0})
        self.total = sum(size * (at + 1) for at, size in enumerate(sizes.values()))
        self.names = list(wanted.values())
        self.embeds = nn.ModuleDict({name: nn.Embedding(size, width) for name, size in sizes.items()})

    def mixed(self, features, last):
        kept = dict(features)
        kept.pop("low")
        kept[last] = kept[last] + features["low"]
        return kept

    def forward(self, x, ids):
        features = self.stages(x)
        features = self.mixed(features, self.names[-1])
        for name in sorted(ids.keys()):
            x = x + self.embeds[name](ids[name])
        for at, (name, feature) in enumerate(features.items()):
            x = x + feature * (at + self.total + len(name))
        return x * self.stages.rest, features


class Tower(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.low, self.middle, self.high = nn.Linear(width, width), nn.Sequential(nn.Linear(width, width), nn.GELU()), nn.Linear(width, 5)

    def forward(self, x):
        return self.high(self.middle(self.low(x)))


class PartOfTower(nn.ModuleDict):
    """The first layers of another module under their names, and what those compute that are asked for."""

    def __init__(self, tower, wanted):
        layers, left = OrderedDict(), dict(wanted)
        for name, layer in tower.named_children():
            layers[name] = layer
            left.pop(name, None)
            if not left:
                break
        super().__init__(layers)
        self.wanted = wanted

    def forward(self, x):
        found = {}
        for name, layer in self.named_children():
            x = layer(x)
            if name in self.wanted:
                found[self.wanted[name]] = x
        return found


class Starting(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(width))

    def start(self):
        nn.init.constant_(self.scale, 0.5)

    def forward(self, x):
        return x * self.scale


def start_layer(module, name="", bias=0.0):
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02 if name.startswith("head") else 0.1)
    elif hasattr(module, "start"):
        module.start()
    if hasattr(module, "bias") and module.bias is not None:
        nn.init.constant_(module.bias, bias)


def each_of(function, module, name="", deep_first=True, root=False):
    if not deep_first and root:
        function(module=module, name=name)
    for child_name, child in module.named_children():
        child_name = ".".join((name, child_name)) if name else child_name
        each_of(function=function, module=child, name=child_name, deep_first=deep_first, root=True)
    if deep_first and root:
        function(module=module, name=name)
    return module


class StartedByName(nn.Module):
    """A function that walks a tree of modules, and one that asks each module what it has."""

    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, width), Starting(width), nn.LayerNorm(width))
        self.head = nn.Linear(width, 3, bias=False)
        each_of(functools.partial(start_layer, bias=0.25), self)

    def forward(self, x):
        return self.head(self.body(x))


def padding_of(kernel, stride=1, dilation=1, **_):
    return (stride - 1 + dilation * (kernel - 1)) // 2


def padded(padding, kernel, **kwargs):
    grows = False
    if isinstance(padding, str):
        padding = padding.lower()
        if padding == "valid":
            padding = 0
            grows = True
        else:
            padding = padding_of(kernel, **kwargs)
    return padding, grows


def make_convolution(inner, outer, kernel, **kwargs):
    padding = kwargs.pop("padding", "")
    kwargs.setdefault("bias", False)
    padding, grows = padded(padding, kernel, **kwargs)
    return nn.Conv2d(inner, outer, kernel, padding=padding + 1 if grows else padding, **kwargs)


def convolution(inner, outer, kernel, **kwargs):
    if "experts" in kwargs:
        raise ValueError("no experts")
    deep = kwargs.pop("deep", False)
    groups = inner if deep else kwargs.pop("groups", 1)
    for name in kwargs:
        if name == "size":
            raise ValueError(name)
    return make_convolution(inner, outer, kernel, groups=groups, **kwargs)


class ConvolutionsByKeywords(nn.Module):
    """Keywords that functions take out, ask for, add and hand on, and that some calls leave out; a word that becomes a number."""

    def __init__(self, width):
        super().__init__()
        given = {"device": None}
        self.deep = convolution(width, width, 3, deep=True, bias=True, **given)
        self.grouped = convolution(width, width, 5, groups=2, stride=2, **given)
        self.plain = convolution(width, width, 3, padding="VALID", dilation=2)

    def forward(self, x):
        return self.plain(self.grouped(self.deep(x)))


class NormFirst(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(width), inner

    def forward(self, x, **kwargs):
        return self.inner(self.norm(x), **kwargs)


class AddTo(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x, *args, **kwargs):
        return self.inner(x, *args, **kwargs) + x


class Gathers(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.value = nn.Linear(width, width)

    def forward(self, x, memory=None, weight=1.0):
        memory = x if memory is None else memory
        return self.value(memory).mean(1, keepdim=True) * weight


class Widens(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, width), nn.GELU())

    def forward(self, x):
        return self.body(x)


class WrappedTwice(nn.Module):
    """Wrappers in wrappers, of several classes, that hand keywords on."""

    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList([nn.ModuleList([AddTo(NormFirst(width, Gathers(width))), AddTo(NormFirst(width, Widens(width)))]) for _ in range(2)])

    def forward(self, x, memory):
        for gathers, widens in self.layers:
            x = widens(gathers(x, memory=memory, weight=0.5))
        return x


def thinned(x, every, scale):
    return x[:, ::every] * scale


class TiedBack(nn.Module):
    """Weights that are read backwards, numbers that another instance lacks, and a tuple that a branch takes apart."""

    def __init__(self, width):
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(torch.randn(width, 4)), nn.Parameter(torch.randn(4, 3))])
        self.first, self.second = Thins(2, 0.5), Thins(None, None)

    def forward(self, x, split=True):
        for weight in self.weights:
            x = torch.tanh(x @ weight)
        for weight in list(reversed(self.weights)):
            x = x @ weight.t()
        whole, parts = self.second(x), (self.first(x), x)
        if split:
            parts = tuple([part.mean(1) for part in parts])
        return whole, parts


class Thins(nn.Module):
    def __init__(self, every, scale):
        super().__init__()
        self.every, self.scale = every, scale

    def forward(self, x):
        if self.every is None:
            return x.mean(-1)
        return thinned(x, self.every, self.scale)


ByWays = namedtuple("ByWays", ["weights", "places", "scores"])


class Routes(nn.Module):
    def __init__(self, width, ways):
        super().__init__()
        self.score = nn.Linear(width, ways)

    def forward(self, x):
        scores = self.score(x)
        best, places = scores.topk(2, dim=-1)
        return ByWays(best.softmax(-1), places, scores)


class PartsByNameOrPlace(nn.Module):
    """A namedtuple that is taken apart and counted; a seed that is kept."""

    def __init__(self, width, seed):
        super().__init__()
        self.seed = torch.manual_seed(seed)
        self.routes = Routes(width, 4)

    def forward(self, x):
        weights, places, _ = self.routes(x)
        found = self.routes(x * 2)
        return (weights * places).sum(-1) + found[0].amax(-1) - found[-1].mean(-1)


class WithPast(nn.Module):
    """Keys and values of earlier calls, a pair for each layer or None."""

    def __init__(self, width, depth):
        super().__init__()
        self.layers = nn.ModuleList([Remembers(width) for _ in range(depth)])

    def forward(self, x, past=None):
        if past is None:
            past = [None] * len(self.layers)
        for layer, pair in zip(self.layers, past):
            x = layer(x, pair)
        return x


class Remembers(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.key, self.value = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x, past=None):
        key, value = self.key(x), self.value(x)
        if past is not None:
            before, held = past
            key, value = torch.cat((before, key), 1), torch.cat((held, value), 1)
        return x + torch.tanh(key).mean(1, keepdim=True) * value.amax(1, keepdim=True)


def chosen(values, places, dim=1):
    rest = values.shape[dim + 1 :]
    sizes, wanted = map(lambda t: list(t.shape), (values, places))
    places = places[(..., *((None,) * len(rest)))]
    places = places.expand(*((-1,) * len(wanted)), *rest)
    more = len(wanted) - (dim + 1)
    values = values[(*((slice(None),) * dim), *((None,) * more), ...)]
    whole = [-1] * len(values.shape)
    part = slice(dim, dim + more)
    whole[part] = places.shape[part]
    return values.expand(*whole).gather(dim + more, places)


def filled(x, length, *, dim=-1, value=0.0):
    before = (0,) * (-1 - dim) * 2
    return F.pad(x, (*before, 0, length - x.shape[dim]), value=value)


class AxesOfAnyNumber(nn.Module):
    """Indices, sizes and pads as long as a tensor has axes; a value that is a number or False; a product over a list."""

    def __init__(self, sizes):
        super().__init__()
        first, *_, last = sizes
        self.rows = functools.reduce(lambda a, b: a * b, sizes, 1)
        self.project = nn.Linear(first, last)
        self.weights = nn.Parameter(torch.randn(self.rows))

    def forward(self, x, places, mask):
        b, *_, width, rows = *x.shape, self.rows
        y = chosen(self.project(x), places)
        z = chosen(x[..., 0], places)
        y = filled(y, 8, dim=-2) * filled(z, 8, value=1.0)[..., None]
        mask = filled(mask, 8, value=False)
        total = functools.reduce(mul, [y[:, 0], z[:, 0].mean(-1)[:, None, None], self.weights.sum()])
        return total * (width * rows / b) + mask.sum()


class LayersOrNone(nn.Module):
    """A list of modules that holds None, and a list whose name becomes a tensor in a branch."""

    def __init__(self, width, depth):
        super().__init__()
        self.layers = nn.ModuleList([])
        for n in range(depth):
            last = n == depth - 1
            self.layers.append(nn.ModuleList([nn.Linear(width, width), nn.Sequential(nn.LayerNorm(width), nn.Tanh()) if not last else None]))
        self.ends = nn.ModuleList()
        for n in range(depth):
            self.ends.append(nn.Linear(width, width) if n > 0 else None)

    def forward(self, x, mask=None):
        masks = []
        for (layer, more), end in zip(self.layers, self.ends):
            x = layer(x)
            if more is not None:
                x = more(x)
            if end is not None:
                x = end(x)
            if mask is not None:
                masks.append(mask * x)
        if mask is not None:
            masks = torch.stack(masks, dim=1)
            x = x + masks.mean(1)
        return x


class KeepsItsCell(nn.Module):
    def __init__(self, kind):
        super().__init__()
        if kind == "gru":
            self.cell = nn.GRU
        else:
            raise ValueError(kind)
        self.Numbers = torch.FloatTensor
        self.none = self.Numbers(1).zero_()


class CellOfItsBase(KeepsItsCell):
    """A class that the base's constructor keeps, a type of tensors that a member is, and a default that the class defines."""

    FIRST, SECOND = "first", "second"

    def __init__(self, width, kind, ways=(FIRST, SECOND)):
        super().__init__(kind)
        self.runs = self.cell(width, width, 2, batch_first=True)
        self.ways = len(ways)

    def forward(self, x):
        return self.runs(x)[0] * self.ways + self.none


def windows(sizes, count):
    return tuple((size, size + count) for size in sizes)


class Rolls(nn.Module):
    def __init__(self, width, window, shift=0):
        super().__init__()
        self.mix = nn.Linear(width, width)
        self.window, self.shift = self.fitting(window, shift)

    def fitting(self, window, shift=None):
        shift = nn.modules.utils._pair(shift)
        return window, tuple([s if s < w else 0 for s, w in zip(shift, window)])

    def forward(self, x):
        if any(self.shift):
            x = torch.roll(x, shifts=(-self.shift[0], -self.shift[1]), dims=(1, 2))
        return self.mix(x) * self.window[0]


class ShiftsOrNot(nn.Module):
    """A shift that is 0 or a pair, made a pair by a method of another; tuples of a tuple by a counter."""

    def __init__(self, width, depth=2):
        super().__init__()
        shift, sizes = (1, 2), windows((3, 4), depth)
        self.stages = nn.Sequential()
        for i in range(depth):
            self.stages.append(Rolls(width, sizes[i], shift=0 if i % 2 == 0 else shift))

    def forward(self, x):
        return self.stages(x)


class NormsBoth(nn.Module):
    def __init__(self, width, inner, other=None):
        super().__init__()
        self.inner, self.norm = inner, nn.LayerNorm(width)
        self.norm_other = nn.LayerNorm(other) if other is not None else None

    def forward(self, x, **kwargs):
        x = self.norm(x)
        if self.norm_other is not None:
            other = kwargs["other"]
            kwargs.update(other=self.norm_other(other))
        return self.inner(x, **kwargs)


class Mixes(nn.Module):
    def __init__(self, width, other):
        super().__init__()
        self.value = nn.Linear(other, width)

    def forward(self, x, other=None, mask=None):
        y = self.value(x if other is None else other)
        y = y if mask is None else y * mask
        return x + y.mean(1, keepdim=True)


class KeywordsThatChange(nn.Module):
    """Keywords that are read, changed and handed on by a class around several others, some of which take none."""

    def __init__(self, width, other):
        super().__init__()
        self.first = NormsBoth(width, Mixes(width, other), other=other)
        self.own, self.last = NormsBoth(width, Mixes(width, width)), NormsBoth(width, nn.Sequential(nn.Linear(width, width), nn.GELU()))

    def forward(self, x, other, mask=None):
        return self.last(self.own(self.first(x, other=other, mask=mask)))


class PaddedBefore(nn.Conv2d):
    """Sizes that are made pairs before the base is constructed; a sum that starts as a number in each call."""

    def __init__(self, width, kernel_size, stride=1, dilation=1):
        kernel_size = nn.modules.utils._pair(kernel_size)
        stride = nn.modules.utils._pair(stride)
        dilation = nn.modules.utils._pair(dilation)
        self.left = kernel_size[0] - 1
        super().__init__(width, width, kernel_size, stride=stride, padding=0, dilation=dilation)
        self.total = torch.zeros(1)

    def forward(self, x):
        self.total = 0.0
        for _ in range(2):
            self.total += super().forward(F.pad(x, (self.left, 0, self.left, 0))).mean((1, 2, 3))
        return self.total


def widened(inside, outside, by=1):
    return nn.Conv1d(inside, outside, 3, padding=by, dilation=by)


def moved(x, by):
    return x + by


class Halves(nn.Module):
    def __init__(self, inside, outside, kernel=3):
        super().__init__()
        self.conv = nn.Conv1d(inside, outside, kernel, padding=kernel // 2)

    def forward(self, x):
        return F.avg_pool1d(self.conv(x), 2)


class MadeInBranches(nn.Module):
    """Functions, partials and layers that branches give one name or one member."""

    def __init__(self, inside, outside, way=None, by=None):
        super().__init__()
        if way == "half":
            make = functools.partial(Halves, kernel=1)
        elif by is not None:
            make = functools.partial(widened, by=by)
        else:
            make = widened
        self.same = inside == outside
        if not self.same:
            self.way = make(inside, outside)
        if by is not None:
            self.last = functools.partial(moved, by=by)
        elif way == "half":
            self.last = nn.PReLU()
        else:
            self.last = torch.tanh

    def forward(self, x):
        return self.last(x if self.same else self.way(x))


class FromBranches(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.steps = nn.ModuleList([MadeInBranches(width, 6, "half"), MadeInBranches(6, 5, by=2), MadeInBranches(5, 4), MadeInBranches(4, 4, by=3)])

    def forward(self, x):
        x = x.transpose(1, 2)
        for step in self.steps:
            x = step(x)
        return x


class Applies(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class KeptFunctions(nn.Module):
    """Lambdas, partials and functions that modules keep, which read numbers and members."""

    def __init__(self, width, padded=None):
        super().__init__()
        self.width, self.gain = width, nn.Parameter(torch.full((1,), 0.5))
        if padded is None:
            self.short = nn.Sequential()
        elif padded:
            self.short = Applies(lambda x: F.pad(x[:, ::2], (width // 4, width // 4), "constant", 0))
        else:
            self.short = Applies(lambda x: x[..., : self.width // 2] * self.gain)
        self.steps = nn.ModuleList([Applies(lambda x, k=k: x * (k + 1)) for k in range(2)])

        def turned(x):
            return x.roll(1, -1) * width

        self.further = nn.ModuleList([Applies(torch.tanh), Applies(turned), Applies(lambda x: x.flip(-1)), Applies(functools.partial(moved, by=width))])
        if padded is None:
            self.last = lambda x: x * width
        else:
            self.last = lambda x: x + self.gain
        self.smooth = torch.sigmoid if padded else F.softplus

    def forward(self, x):
        x = self.short(x)
        for step in self.steps:
            x = step(x)
        for step in self.further:
            x = step(x)
        return self.smooth(self.last(x)).mean((1, 2))


class KeepsFunctions(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.plain, self.padded, self.cut = KeptFunctions(width), KeptFunctions(width, True), KeptFunctions(width, False)

    def forward(self, x):
        return self.plain(x) + self.padded(x) + self.cut(x)


class Weighs(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.value = nn.Linear(width, width)

    def forward(self, x, memory, mask=None, weight=2.0):
        return x + self.value(memory).mean(1, keepdim=True) * weight


class Stretches(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x, by=1.0):
        return torch.tanh(self.layer(x)) * by


class NormThen(nn.Module):
    def __init__(self, width, fn):
        super().__init__()
        self.norm, self.fn = nn.LayerNorm(width), fn

    def forward(self, x, *args):
        return self.fn(self.norm(x), *args)


class HandsOn(nn.Module):
    """Wrappers whose *args differ from call to call, and an nn.Sequential of an nn.ModuleList."""

    def __init__(self, width):
        super().__init__()
        self.weighs = AddTo(NormThen(width, Weighs(width)))
        self.stretches, self.line = AddTo(NormThen(width, Stretches(width))), AddTo(nn.Linear(width, width))
        self.chain = nn.ModuleList([Stretches(width) for _ in range(2)])

    def forward(self, x, memory):
        x = self.weighs(self.weighs(x, memory, None, 0.5), memory)
        return nn.Sequential(*self.chain)(self.line(self.stretches(self.stretches(x), 0.5)))


class NamedParts(nn.Module):
    """Parameters, buffers and layers whose names are put together."""

    words = ["wide", "deep"]

    def __init__(self, width, depth):
        super().__init__()
        self.depth = depth
        for word in self.words:
            setattr(self, f"{word}_weight", nn.Parameter(torch.randn(width)))
            setattr(self, word, nn.Linear(width, width))
            self.register_parameter(word + "_bias", nn.Parameter(torch.zeros(width)))
        for n in range(depth):
            self.register_buffer(f"scale{n}", torch.full((width,), n + 0.5))
            self._modules[f"more{n}"] = nn.Linear(width, width)
            setattr(self, "norm%d" % n, nn.LayerNorm(width) if n else nn.Identity())

    def forward(self, x):
        for word in self.words:
            x = getattr(self, word)(x) * getattr(self, f"{word}_weight") + self._parameters[f"{word}_bias"]
        for n in range(self.depth):
            norm = getattr(self, f"norm{n}")
            x = norm(self._modules[f"more{n}"](x)) * self._buffers[f"scale{n}"]
        return x * self.wide_weight + self.more0(x) * self.scale1


class BeforeOne(nn.Module):
    """Tensors as they were made before PyTorch 1.0."""

    def __init__(self, width):
        super().__init__()
        self.width, self.line = width, nn.Linear(width, width)

    def forward(self, x, longest):
        start = x.data.new(x.size(0), self.width).zero_()
        filled = x.new(x.size()).fill_(0.5) * x.new([2.0])
        steps = torch.arange(0, longest, out=x.new()).view(-1, 1) + torch.range(0, longest - 1).view(-1, 1)
        draws = torch.autograd.Variable(x.data.new(*x.size()).normal_(0, 0.1))
        return self.line(start + x[:, 0]), filled * draws + x * steps.sum()


class GainNorm(nn.modules.batchnorm._BatchNorm):
    """Classes of PyTorch's base of all batch normalisations."""

    def __init__(self, width, momentum=0.1):
        super().__init__(width, momentum=momentum)
        self.gain = nn.Parameter(torch.ones(1))

    def forward(self, x):
        y = F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, self.training, self.momentum, self.eps)
        return y * self.gain


class CheckedNorm(nn.modules.batchnorm._BatchNorm):
    def _check_input_dim(self, input):
        if input.dim() != 3:
            raise ValueError(f"expected three dimensions, got {input.dim()}")

    def forward(self, x):
        return super().forward(x).relu()


class DerivedNorms(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = GainNorm(width, momentum=0.2), CheckedNorm(width)

    def forward(self, x):
        return self.second(self.first(x))


class RowsOfABlock(nn.Module):
    """Functions of the constructor that are called by keywords and applied to modules, and an index that is a range."""

    def __init__(self, width, wide):
        super().__init__()

        def block(given, taken, normalize=True, slope=0.1):
            layers = [nn.Linear(given, taken)]
            if normalize:
                layers.append(nn.LayerNorm(taken))
            layers.append(nn.LeakyReLU(slope))
            return layers

        self.model = nn.Sequential(*block(width, wide, normalize=False), *block(wide, wide, slope=0.3), nn.Linear(wide, 3))
        self.kept = 2

        def start(module):
            if isinstance(module, nn.Linear) or isinstance(module, nn.LayerNorm):
                if isinstance(module, nn.Linear):
                    first = module.in_features * 2
                else:
                    first = module.weight.shape[0] * 3
                most = 1 / (first * first)
                nn.init.uniform_(module.weight, -1 * most, most)

        self.model.apply(start)
        self.apply(start)

    def forward(self, x):
        y = self.model(x)
        return y[..., range(self.kept)] + y[..., range(1, 3)]

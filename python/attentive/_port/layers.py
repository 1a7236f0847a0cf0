"""Layers with weight or spectral normalisation, as classes that the translation writes out: PyTorch changes a layer in place, which
C++ cannot.

`SOURCE` is Python, loaded as one of the user's files when his code calls one of `FUNCTIONS` for the first time. Its classes have the
parameters, buffers and numbers of PyTorch's layers."""

import inspect

from torch import nn

LAYERS = {  # layer: function of nn.functional, and what it takes after the weight
    nn.Linear: ("linear", ("bias",)),
    nn.Embedding: ("embedding", ()),
    nn.Conv1d: ("conv1d", ("bias", "stride", "padding", "dilation", "groups")),
    nn.Conv2d: ("conv2d", ("bias", "stride", "padding", "dilation", "groups")),
    nn.ConvTranspose1d: ("conv_transpose1d", ("bias", "stride", "padding", "output_padding", "groups", "dilation")),
    nn.ConvTranspose2d: ("conv_transpose2d", ("bias", "stride", "padding", "output_padding", "groups", "dilation")),
}

# By their names in torch.nn.utils: the prefix of the classes, their arguments after the layer, what they make, and their weight.
FUNCTIONS = {
    "weight_norm": (
        "WeightNorm",
        ("dim",),
        """\
        self.dim = dim
        self.weight_g = nn.Parameter(torch.norm_except_dim(layer.weight, 2, dim).detach())
        self.weight_v = nn.Parameter(layer.weight.detach())
        self.weight = self.normalised()
""",
        """\
        return torch._weight_norm(self.weight_v, self.weight_g, self.dim)
""",
    ),
    "parametrizations.weight_norm": (
        "ParametrizedWeightNorm",
        ("dim",),
        """\
        self.parametrizations = WeightNormParametrizations(layer.weight, dim)
        self.weight = self.normalised()
""",
        """\
        return self.parametrizations.weight.normalised()
""",
    ),
    "spectral_norm": (
        "SpectralNorm",
        ("n_power_iterations", "eps", "dim"),
        """\
        self.n_power_iterations, self.eps, self.dim = n_power_iterations, eps, dim
        matrix = layer.weight.detach().movedim(dim, 0).flatten(1)
        u, v = random_direction(matrix.size(0), eps), random_direction(matrix.size(1), eps)
        self.weight_orig = nn.Parameter(layer.weight.detach())
        self.weight = self.weight_orig.detach()
        self.register_buffer("weight_u", u)
        self.register_buffer("weight_v", v)
""",
        """\
        matrix = self.weight_orig.movedim(self.dim, 0).flatten(1)
        if self.training:
            power_iterations(matrix.t(), self.weight_v, self.weight_u, self.eps, self.n_power_iterations)
        return self.weight_orig / largest_singular_value(matrix, self.weight_u, self.weight_v)
""",
    ),
    "parametrizations.spectral_norm": (
        "ParametrizedSpectralNorm",
        ("n_power_iterations", "eps", "dim"),
        """\
        self.parametrizations = SpectralNormParametrizations(layer.weight, n_power_iterations, eps, dim)
        self.weight = self.normalised()
""",
        """\
        return self.parametrizations.weight.normalised()
""",
    ),
}

SOURCE = '''\
import torch
import torch.nn.functional as F
from torch import nn


def random_direction(n, eps):
    return F.normalize(torch.empty(n).normal_(0, 1), dim=0, eps=eps)


def power_iterations(matrix, u, v, eps, steps):
    """Brings u and v closer to the vectors of the largest singular value."""
    with torch.no_grad():
        for _ in range(steps):
            u.copy_(F.normalize(torch.mv(matrix, v), dim=0, eps=eps))
            v.copy_(F.normalize(torch.mv(matrix.t(), u), dim=0, eps=eps))


def largest_singular_value(matrix, u, v):
    # Copies, as the next call changes u and v before a backward pass may read them.
    return torch.dot(u.clone(), torch.mv(matrix, v.clone()))


class WeightNormOriginal(nn.Module):
    def __init__(self, weight, dim):
        super().__init__()
        self.dim = dim
        self.original0 = nn.Parameter(torch.norm_except_dim(weight, 2, dim).detach())
        self.original1 = nn.Parameter(weight.detach())

    def normalised(self):
        return torch._weight_norm(self.original1, self.original0, self.dim)


class WeightNormParametrizations(nn.Module):
    def __init__(self, weight, dim):
        super().__init__()
        self.weight = WeightNormOriginal(weight, dim)


class SpectralNormVectors(nn.Module):
    def __init__(self, matrix, eps):
        super().__init__()
        u, v = random_direction(matrix.size(0), eps), random_direction(matrix.size(1), eps)
        power_iterations(matrix, u, v, eps, 15)
        self.register_buffer("_u", u)
        self.register_buffer("_v", v)


class SpectralNormOriginal(nn.Module):
    def __init__(self, weight, n_power_iterations, eps, dim):
        super().__init__()
        self.n_power_iterations, self.eps, self.dim = n_power_iterations, eps, dim
        self.original = nn.Parameter(weight.detach())
        self.add_module("0", SpectralNormVectors(weight.detach().movedim(dim, 0).flatten(1), eps))

    def normalised(self):
        vectors = getattr(self, "0")
        matrix = self.original.movedim(self.dim, 0).flatten(1)
        if self.training:
            power_iterations(matrix, vectors._u, vectors._v, self.eps, self.n_power_iterations)
        return self.original / largest_singular_value(matrix, vectors._u, vectors._v)


class SpectralNormParametrizations(nn.Module):
    def __init__(self, weight, n_power_iterations, eps, dim):
        super().__init__()
        self.weight = SpectralNormOriginal(weight, n_power_iterations, eps, dim)
'''

_CLASS = '''

class {name}(nn.Module):
    """torch.nn.{layer} whose weight {what}."""

    stands_for = nn.{layer}
    __class__ = property(lambda self: self.stands_for)  # what isinstance asks

    def __init__(self, layer, {arguments}):
        super().__init__()
{kept}{made}
    def normalised(self):
{normalised}
    def forward(self, x):
        self.weight = self.normalised()
        return F.{function}(x, self.weight{given})
'''
_WHAT = {"WeightNorm": "is a gain times a direction of norm 1", "SpectralNorm": "is divided by its largest singular value"}


def name_of(function, layer):
    """The class that stands for a layer of PyTorch that one of `FUNCTIONS` changed."""
    return FUNCTIONS[function][0] + layer.__name__


def bound(function, original, *given, **named):
    """The name of the parameter that a caller of a function names, and what the class takes by name; defaults are the function's."""
    found = inspect.signature(original).bind(*given, **named)
    found.apply_defaults()
    return found.arguments["name"], {name: found.arguments[name] for name in FUNCTIONS[function][1]}


def default_dim(function, layer):
    """The dimension that PyTorch takes for None."""
    return -1 if function.endswith("weight_norm") else int(layer in (nn.ConvTranspose1d, nn.ConvTranspose2d))


for _function, (_prefix, _arguments, _made, _normalised) in FUNCTIONS.items():
    for _layer, (_called, _attributes) in LAYERS.items():
        SOURCE += _CLASS.format(
            name=name_of(_function, _layer),
            layer=_layer.__name__,
            what=_WHAT[_prefix.removeprefix("Parametrized")],
            arguments=", ".join(_arguments),
            kept="".join(f"        self.{name} = layer.{name}\n" for name in _attributes),
            made=_made,
            normalised=_normalised,
            function=_called,
            given="".join(f", self.{name}" for name in _attributes),
        )

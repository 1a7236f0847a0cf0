"""Classes that attentive-port refuses by name; `# here` marks the line that it has to give, cases.py what it has to name."""

import random
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

CALLS = 0
INNER = "class Inner(torch.nn.Module):\n    def forward(self, x):\n        return 2 * x\n"


class WhileOnValues(nn.Module):
    """Divides as long as a number of the tensor is large."""

    def forward(self, x):
        while x.abs().max() > 0.5:  # here
            x = x / 2
        return x


class BranchOnValues(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x):
        y = self.fc(x)
        if y.sum() > 0:  # here
            return y
        return -y


class LoopOverValues(nn.Module):
    """As many steps as the longest length says."""

    def forward(self, x, lengths):
        total = x.new_zeros(x.size(0), x.size(2))
        for i in range(int(lengths.max())):  # here
            total = total + x[:, i]
        return total


class NumpyOnTensors(nn.Module):
    def forward(self, x):
        spread = np.std(x.detach().numpy(), axis=-1)  # here
        return x / torch.from_numpy(spread).unsqueeze(-1)


class ForwardHook(nn.Module):
    """Keeps what a layer gave by a hook."""

    def __init__(self, width):
        super().__init__()
        self.kept = []
        self.fc = nn.Linear(width, width)
        self.fc.register_forward_hook(lambda module, inputs, output: self.kept.append(output))  # here

    def forward(self, x):
        y = self.fc(x)
        return y + self.kept.pop()


class GradientHook(nn.Module):
    def forward(self, x):
        y = x * 2
        if y.requires_grad:
            y.register_hook(lambda gradient: gradient.clamp(-1, 1))  # here
        return y


class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clamp(-1, 1)

    @staticmethod
    def backward(context, gradient):
        return gradient


class CustomGradient(nn.Module):
    """Gradients that the operations do not have."""

    def forward(self, x):
        return Clipped.apply(x)  # here


def forward_of_made(self, x):
    return x * 3


Made = type("Made", (nn.Module,), {"forward": forward_of_made})  # here


class MadeByType(nn.Module):
    """A member whose class no source says."""

    def __init__(self):
        super().__init__()
        self.made = type("Made", (nn.Module,), {"forward": forward_of_made})()  # here

    def forward(self, x):
        return self.made(x)


class SourceOfText(nn.Module):
    """A member whose class is made of text."""

    def __init__(self):
        super().__init__()
        space = {}
        exec(INNER, globals(), space)  # here
        self.inner = space["Inner"]()

    def forward(self, x):
        return self.inner(x)


class KeywordsOfAnything(nn.Module):
    """Keywords that it does not know, for a function that it is told."""

    def __init__(self, name, **options):
        super().__init__()
        self.name, self.options = name, options  # here

    def forward(self, x):
        return getattr(F, self.name)(x, **self.options)


class YieldsStates(nn.Module):
    """A generator."""

    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])

    def states(self, x):
        for layer in self.layers:
            x = layer(x)
            yield x  # here

    def forward(self, x):
        return torch.stack(list(self.states(x)))


class GlobalCounter(nn.Module):
    """A number of the module that every call changes."""

    def forward(self, x):
        global CALLS  # here
        CALLS += 1
        return x * (CALLS % 2 + 1)


class TryInstead(nn.Module):
    """An error decides what is computed."""

    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x):
        try:  # here
            x = self.fc(x.transpose(-2, -1))
        except RuntimeError:
            x = self.fc(x)
        return x


class RandomOfPython(nn.Module):
    """Drops layers by Python's own random numbers."""

    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(3)])

    def forward(self, x):
        for layer in self.layers:
            if self.training and random.random() < 0.5:  # here
                continue
            x = layer(x)
        return x


class ClockInForward(nn.Module):
    def forward(self, x):
        begin = time.time()  # here
        return x * (time.time() - begin + 1)


class LazyLayer(nn.Module):
    """A layer that learns its width when it is called."""

    def __init__(self):
        super().__init__()
        self.fc = nn.LazyLinear(8)  # here

    def forward(self, x):
        return self.fc(x)


class Parametrized(nn.Module):
    """A weight that is computed before each call."""

    def __init__(self, width):
        super().__init__()
        self.fc = parametrizations.orthogonal(nn.Linear(width, width))  # here

    def forward(self, x):
        return self.fc(x)


def levels_of(name):
    return len(name)


if CALLS == 0:
    LEVELS = levels_of("abc")


class SkippedGlobal(nn.Module):
    """Needs a name that a statement gives which is not run."""

    def forward(self, x):
        return x * LEVELS  # here


class BeyondSixtyFourBits(nn.Module):
    """A number that no int64_t holds."""

    def __init__(self, width):
        super().__init__()
        self.seed = 2**64 + width  # here

    def forward(self, x):
        return x * (self.seed % 7)


class TypeByValue(nn.Module):
    """A name that holds a tensor in one round and a word in the next."""

    def forward(self, x):
        parts = [x, "mean", 2.0]  # here
        for part in parts:
            if isinstance(part, str):
                x = getattr(x, part)(-1, keepdim=True) + x
            else:
                x = x * part
        return x


class WordsOfTensors(nn.Module):
    """Text that depends on numbers."""

    def forward(self, x):
        key = f"{x.mean().item():.1f}"  # here
        return x * len(key)


class OwnCheckpoint(torch.autograd.Function):
    """Computes a function again in the backward pass."""

    @staticmethod
    def forward(ctx, function, *inputs):
        ctx.function, ctx.inputs = function, inputs
        with torch.no_grad():
            return function(*inputs)

    @staticmethod
    def backward(ctx, grad):
        inputs = [x.detach().requires_grad_() for x in ctx.inputs]
        with torch.enable_grad():
            return None, *torch.autograd.grad(ctx.function(*inputs), inputs, grad)


def run_again(function, inputs, enabled):
    if enabled:
        return OwnCheckpoint.apply(function, *inputs)
    return function(*inputs)


class DropsAgain(nn.Module):
    """Its backward pass draws other dropout than its forward pass."""

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def inner(self, x):
        return self.drop(x).tanh()

    def forward(self, x):
        return run_again(self.inner, (x,), True)  # here


class MatchesParts(nn.Module):
    def forward(self, x):
        match x.shape:  # here
            case (rows, _, columns):
                return x.reshape(rows, -1, columns)
            case _:
                return x

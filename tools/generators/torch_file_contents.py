"""The values that make_torch_files.py saves. There are no random numbers, and each number occurs in one file only."""

import argparse
import collections
import math
from collections import OrderedDict

import numpy
import torch

FLOATS = "float16 bfloat16 float32 float64".split()
SMALL_FLOATS = "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu".split()
INTEGERS = "uint8 int8 int16 int32 int64 uint16 uint32 uint64".split()
COMPLEX = "complex32 complex64 complex128".split()
BITS = "bits8 bits16 bits1x8 bits2x4 bits4x2".split()


def numbered(module):
    """Sets a module's floating-point parameters and buffers to 0, 1, 2, …"""
    count = 0
    with torch.no_grad():
        for tensor in [*module.parameters(), *module.buffers()]:
            if tensor.is_floating_point():
                tensor.copy_(torch.arange(count, count + tensor.numel()).reshape(tensor.shape))
                count += tensor.numel()
    return module


def network():
    return numbered(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1)))


def state_dict():
    return network().state_dict()


def training():
    """A network and its optimizer after one step."""
    module = network()
    optimizer = torch.optim.AdamW(module.parameters(), lr=3e-4, betas=(0.9, 0.95))
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return module, optimizer


def checkpoint(key):
    module, optimizer = training()
    return {"epoch": 7, key: module.state_dict(), "optimizer": optimizer.state_dict(), "lr": 3e-4, "best": math.inf,
            "config": {"name": "tiny", "sizes": [2, 3, 1], "dropout": None, "tied": False}}


def parameters():
    weight = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))
    frozen = torch.nn.Parameter(torch.arange(3.0), requires_grad=False)
    noted = torch.nn.Parameter(torch.arange(2.0))
    noted.decay = False  # saved as state in addition to the data
    leaf = torch.arange(4.0, requires_grad=True)
    attributed = torch.arange(5.0)
    attributed.note = "saved as state, too"
    return {"weight": weight, "frozen": frozen, "noted": noted, "tied": weight, "tensor": leaf, "view": weight.data[1],
            "attributed": attributed}


def plain_values():
    return {
        "none": None, "true": True, "false": False,
        "integers": [0, 1, -1, 255, 256, 65535, 65536, 2**31 - 1, -(2**31), 2**31, 2**63 - 1, -(2**63)],
        "long integers": [2**63, -(2**63) - 1, 2**64 - 1, -(2**64), 10**40, -(10**40), 2**2100 + 1, -(2**2100)],
        "floats": [0.0, -0.0, 0.1, -1.5, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan],
        "complex": [1 + 2j, complex(-0.0, math.inf)],
        "strings": ["", "plain", "größe", "数", "👩🏽‍🔬 emoji", "nul\0inside", "line\nbreak", "x" * 300],
        "bytes": [b"", b"ascii", b"\x00\xff\x80", bytes(range(256)) + b"!", bytearray(b""), bytearray(b"\xfe\x01")],
        "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, (4, (5,)))],
        "sets": [set(), {1, 2, 3}, frozenset(), frozenset([4, 5])],
        "lists": [[], [[]], [[1], [2, [3]]]],
        "dicts": [{}, {1: "one", -2: "two", (3, "x"): "three", True: None, 2.5: [], None: 0, b"k": 1}, OrderedDict()],
        "ordered": OrderedDict(b=1, a=2), "counted": collections.Counter("abca"),
    }


def types():
    names = FLOATS + SMALL_FLOATS + INTEGERS + COMPLEX + BITS + ["bool", "uint1", "uint7", "int1", "int7"]
    devices = ["cpu", "cuda", "cuda:1", "meta", "mps"]
    sizes = [torch.Size([]), torch.Size([0]), torch.Size([2, 3, 4])]
    return {"dtypes": [getattr(torch, name) for name in names], "devices": [torch.device(name) for name in devices],
            "sizes": sizes, "layout": torch.strided}


def of_bytes(names, count=16):
    return {name: torch.arange(3, 3 + count, dtype=torch.uint8).view(getattr(torch, name)) for name in names}


def dtypes():
    flags = {"bool": torch.tensor([True, False, True])}
    return of_bytes([n for n in FLOATS + INTEGERS + COMPLEX if n not in new_dtype_names()]) | flags


def new_dtype_names():
    """Tensors of dtypes that PyTorch saves as untyped storages together with the dtype."""
    return SMALL_FLOATS + BITS + "complex32 uint16 uint32 uint64".split()


def four_bits():
    """The dtype added in PyTorch 2.8, separate because an older LibTorch does not have it."""
    return {"dtype": torch.float4_e2m1fn_x2} | of_bytes(["float4_e2m1fn_x2"])


def extremes():
    """Floating-point values that differ only in their bits."""
    values = torch.tensor([math.nan, math.inf, -math.inf, -0.0, 5e-324, 1e-45])
    quiet = torch.tensor([0x7FC00001, -0x3FFFFF], dtype=torch.int32).view(torch.float32)  # NaNs with a payload
    return {"float32": values.float(), "float64": values.double(), "bfloat16": values.bfloat16(), "nan": quiet}


def sharing():
    base = torch.arange(24.0)
    grid = base.view(4, 6)
    return {
        "base": base, "grid": grid, "transposed": grid.t(), "row": grid[2], "column": grid[:, 3], "corner": grid[1:3, 2:5],
        "strided": base[1::5], "expanded": base[3].expand(2, 3), "same": base, "overlapping": base.as_strided((3, 3), (1, 1), 2),
        "other": torch.arange(24.0), "empty of base": base[24:], "part of a large one": torch.arange(300, dtype=torch.uint8)[297:],
        "nested": {"again": [base, (grid,)]},
    }


def shapes():
    five = torch.arange(120.0).reshape(1, 2, 3, 4, 5)
    return {
        "scalar": torch.tensor(3.25), "empty": torch.empty(0), "no rows": torch.empty(0, 3), "no columns": torch.empty(2, 0, 4),
        "one": torch.tensor([7]), "five": five, "permuted": five.permute(4, 0, 3, 1, 2), "rank 64": torch.ones((1,) * 64),
        "channels last": torch.arange(24.0).reshape(1, 2, 3, 4).contiguous(memory_format=torch.channels_last),
        "scalar expanded": torch.tensor(1.5).expand(0, 5), "flag": torch.tensor(True),
    }


def lazy():
    """Views with pending conjugation or negation."""
    numbers, others = torch.tensor([1 + 2j, 3 - 4j]), torch.tensor([5 + 6j, 7 - 8j])
    return {"numbers": numbers, "conjugated": numbers.conj(), "negated": others.conj().imag, "plain": others.real}


def repeated():
    """Containers that occur twice, and more of them than a byte can count."""
    shared = ["shared", {"key": (1, 2)}]
    return {"first": shared, "second": shared, "thrice": [shared, shared[1]], "many": [f"{i}" for i in range(300)],
            "long": list(range(1001)), "keys": dict.fromkeys(range(1001))}


def readable():
    tied = torch.arange(6.0).reshape(2, 3)
    return {
        "state_dict": state_dict(), "plain_dict": dict(state_dict()),
        "checkpoint_state_dict": checkpoint("state_dict"), "checkpoint_model": checkpoint("model"),
        "checkpoint_model_state_dict": checkpoint("model_state_dict"),
        "checkpoint_deep": {"ema": {"decay": 0.5, "net": state_dict()}, "step": 3},
        "checkpoint_two": {"generator": state_dict(), "discriminator": dict(state_dict()), "step": 3},
        "data_parallel": torch.nn.DataParallel(network()).state_dict(),
        "tied": OrderedDict({"embedding.weight": tied, "head.weight": tied}),
        "parameters": parameters(), "tensor": torch.arange(6.0).reshape(2, 3).t(), "list": [torch.ones(2), 1],
        "plain_values": plain_values(), "types": types(), "dtypes": dtypes(), "new_dtypes": of_bytes(new_dtype_names()),
        "four_bits": four_bits(),
        "extremes": extremes(), "sharing": sharing(), "shapes": shapes(), "lazy": lazy(), "repeated": repeated(),
    }


class Scripted(torch.nn.Module):
    def forward(self, x):
        return x


# Has no source text, because the old format would save it.
Opaque = type("Opaque", (torch.nn.Module,), {"__module__": __name__})


def itself():
    values = [1]
    values.append(values)
    return values


class Subclass(torch.Tensor):
    pass


def refused():
    """Values that are refused, and words that the refusal must contain."""
    points = collections.namedtuple("points", "x")
    points.__module__ = "elsewhere"
    wide = torch.quantize_per_tensor(torch.ones(2), 0.5, 1, torch.qint32)
    return {
        "namespace": ({"arguments": argparse.Namespace(lr=0.1)}, ["argparse", "Namespace"]),
        "numpy_scalar": ({"loss": numpy.float64(3)}, ["numpy", "scalar"]),
        "numpy_array": ({"x": numpy.arange(2)}, ["numpy", "_reconstruct"]),
        "module": (Opaque(), [__name__, "Opaque"]),
        "default_dict": (collections.defaultdict(list, a=[1]), ["collections", "defaultdict"]),
        "function": ({"f": math.sqrt}, ["math", "sqrt"]),
        "quint8": ({"q": torch.quantize_per_tensor(torch.ones(2), 0.5, 1, torch.quint8)}, ["quantized"]),
        "qint32": ({"q": wide}, ["quantized"]),
        "quantized_storage": ({"q": torch.arange(4, dtype=torch.uint8).view(torch.quint4x2)}, ["quantized"]),
        "sparse": ({"s": torch.eye(2).to_sparse()}, ["sparse"]),
        "sparse_rows": ({"s": torch.eye(2).to_sparse_csr()}, ["sparse"]),
        "meta": ({"m": torch.ones(2, device="meta")}, ["meta"]),
        "nested_tensor": ({"n": torch.nested.nested_tensor([torch.ones(2), torch.ones(1)])}, ["nested"]),
        "quantized_dtype": ({"dtype": torch.qint8}, ["quantized", "qint8"]),
        "sparse_layout": ({"layout": torch.sparse_coo}, ["layout", "sparse_coo"]),
        "subclass": ({"x": torch.ones(2).as_subclass(Subclass)}, [__name__, "Subclass"]),
        "storage": ({"s": torch.arange(2.0).untyped_storage()}, ["storage"]),
        "cycle": (itself(), ["itself"]),
        "surrogate": ({"name": "\ud800"}, ["UTF-8"]),
    }

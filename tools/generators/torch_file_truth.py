"""Describes a value of a `torch.save` file as JSON, for comparison by a test in another language.

None, bool, int of 64 bits, str and list are JSON's own. Everything else is an object of one key that names the kind:
`dict` and `ordered_dict` (pairs), `tuple`, `size`, `set`, `frozenset`, `int` (decimal digits), `float` and `complex`
(the bits, in hexadecimal), `bytes`, `bytearray`, `dtype`, `device`, `layout`, `tensor`, `parameter`. Tensors say which of
them are one object and which share a storage.
"""

import struct
from collections import Counter, OrderedDict

import torch


def float_bits(number):
    return struct.pack(">d", number).hex()


def contiguous_bytes(tensor):
    """The values in row-major order, little-endian, with conjugation and negation resolved."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.storage_offset() or tensor.untyped_storage().nbytes() != tensor.numel() * tensor.itemsize:
        tensor = tensor.contiguous().clone(memory_format=torch.contiguous_format)
    elif not tensor.is_contiguous():
        tensor = tensor.contiguous()
    return bytes(tensor.untyped_storage())


class Truth:
    """Describes one file. Tensors and storages are numbered in the order in which they occur."""

    def __init__(self):
        self.objects = {}
        self.storages = {}

    def object(self, tensor):
        return self.objects.setdefault(id(tensor), len(self.objects))

    def storage(self, tensor):
        return self.storages.setdefault(tensor.untyped_storage()._cdata, len(self.storages))

    def tensor(self, tensor):
        return {
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "shape": list(tensor.shape),
            "stride": list(tensor.stride()),
            "offset": tensor.storage_offset(),
            "object": self.object(tensor),
            "storage": self.storage(tensor),
            "storage_bytes": tensor.untyped_storage().nbytes(),
            "requires_grad": tensor.requires_grad,
            "values": contiguous_bytes(tensor).hex(),
        }

    def items(self, values):
        return [self.describe(value) for value in values]

    def pairs(self, mapping):
        return [[self.describe(key), self.describe(value)] for key, value in mapping.items()]

    def describe(self, value):
        simple = {bool: lambda: value, str: lambda: value, type(None): lambda: None, list: lambda: self.items(value)}
        kinds = {
            int: lambda: value if -(2**63) <= value < 2**63 else {"int": str(value)},
            float: lambda: {"float": float_bits(value)},
            complex: lambda: {"complex": [float_bits(value.real), float_bits(value.imag)]},
            bytes: lambda: {"bytes": value.hex()},
            bytearray: lambda: {"bytearray": value.hex()},
            tuple: lambda: {"tuple": self.items(value)},
            torch.Size: lambda: {"size": list(value)},
            set: lambda: {"set": self.items(sorted(value))},
            frozenset: lambda: {"frozenset": self.items(sorted(value))},
            dict: lambda: {"dict": self.pairs(value)},
            Counter: lambda: {"dict": self.pairs(value)},
            OrderedDict: lambda: {"ordered_dict": self.pairs(value)},
            torch.dtype: lambda: {"dtype": str(value).removeprefix("torch.")},
            torch.device: lambda: {"device": str(value)},
            torch.layout: lambda: {"layout": str(value).removeprefix("torch.")},
            torch.Tensor: lambda: {"tensor": self.tensor(value)},
            torch.nn.Parameter: lambda: {"parameter": self.tensor(value)},
        }
        return (simple | kinds)[type(value)]()


def truth_of(value):
    return Truth().describe(value)

"""Writes what Python's torch.save writes, and beside each file the truth about it: the archive tests/files/data/torch.tar.

    python tools/generators/make_torch_files.py [--out tests/files/data/torch.tar]
    python tools/generators/make_torch_files.py --check       do the committed files still say what PyTorch says?

`<name>.pt` is the file. `<name>.json` holds either `{"value": …}` as described below, or
`{"refused": [words]}`: a file that Python reads, or wrote, and that a reader of tensors and plain values must refuse with
those words in its message. With the same PyTorch the bytes are the same in every run.

In a value, None, bool, int of 64 bits, str and list are JSON's own. All else is an object of one key that names the kind:
`dict` and `ordered_dict` (pairs), `tuple`, `size`, `set`, `frozenset`, `int` (decimal digits), `float` and `complex`
(the bits, in hexadecimal), `bytes`, `bytearray`, `dtype`, `device`, `layout`, `tensor`, `parameter`. Tensors say which of
them are one object and which share a storage.
"""

import argparse
import builtins
import json
import pathlib
import struct
import tarfile
import tempfile
import warnings
from collections import Counter, OrderedDict

import torch

import torch_file_contents as contents
from archive import write_archive

ARCHIVE = pathlib.Path(__file__).resolve().parents[2] / "tests" / "files" / "data" / "torch.tar"


class Numbered(str):
    """Numbers the storages in the old format in place of their addresses, so that the bytes do not depend on where the
    memory was allocated."""

    numbers = {}

    def __new__(cls, value):
        if isinstance(value, int):
            value = 1000 + cls.numbers.setdefault(value, len(cls.numbers))
        return builtins.str(value)


def save_legacy(value, path, **options):
    Numbered.numbers = {}
    torch.serialization.str = Numbered
    try:
        with open(path, "wb") as file:
            torch.save(value, file, _use_new_zipfile_serialization=False, **options)
    finally:
        del torch.serialization.str


def save_zip(value, path, **options):
    # By path, so that the folder inside the archive is named like the file.
    torch.save(value, str(path), **options)


def save_nameless(value, path, **options):
    with open(path, "wb") as file:
        torch.save(value, file, **options)


def save_without_crc(value, path):
    torch.serialization.set_crc32_options(False)
    try:
        save_zip(value, path)
    finally:
        torch.serialization.set_crc32_options(True)


def save_script(value, path):
    torch.jit.script(value).save(str(path))


def versions():
    """(name, how to save, what, words of the refusal or None)."""
    for name, value in contents.readable().items():
        yield name, save_zip, {}, value, None
        yield f"legacy_{name}", save_legacy, {}, value, None
    for protocol in (3, 4, 5):
        for name in ("plain_values", "state_dict", "sharing"):
            value = contents.readable()[name]
            yield f"{name}_protocol{protocol}", save_zip, {"pickle_protocol": protocol}, value, None
            yield f"legacy_{name}_protocol{protocol}", save_legacy, {"pickle_protocol": protocol}, value, None
    state = contents.state_dict()
    yield "without_byteorder", save_zip, {"_disable_byteorder_record": True}, state, None
    yield "nameless", save_nameless, {}, state, None
    yield "without_crc", save_without_crc, {}, state, None
    yield "refused_script", save_script, {}, contents.Scripted(), ["TorchScript"]
    for name, (value, words) in contents.refused().items():
        yield f"refused_{name}", save_zip, {}, value, words
        yield f"refused_legacy_{name}", save_legacy, {}, value, words


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


def truth_text(value, words):
    truth = {"value": truth_of(value)} if words is None else {"refused": words}
    return json.dumps(truth, ensure_ascii=False, separators=(",", ":")) + "\n"


def write_all(folder):
    names = []
    for name, save, options, value, words in versions():
        save(value, folder / f"{name}.pt", **options)
        (folder / f"{name}.json").write_text(truth_text(value, words), encoding="utf-8")
        names.append(name)
    return names


def python_reads(path):
    try:
        return truth_of(torch.load(path, weights_only=False))
    except AttributeError as error:
        # PyTorch 2.11 cannot read its own old format for dtypes without a storage class.
        if "UntypedStorage" not in str(error):
            raise
        return None


def differences(archive):
    """The differences between the committed files and what this PyTorch does."""
    with tempfile.TemporaryDirectory() as fresh, tempfile.TemporaryDirectory() as folder, tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
        fresh, folder = pathlib.Path(fresh), pathlib.Path(folder)
        names = write_all(fresh)
        committed = {path.stem for path in folder.glob("*.pt")} | {path.stem for path in folder.glob("*.json")}
        yield from (f"{name}: not committed" for name in sorted(set(names) - committed))
        yield from (f"{name}: nothing writes it" for name in sorted(committed - set(names)))
        for name in sorted(set(names) & committed):
            truth = (folder / f"{name}.json").read_text(encoding="utf-8")
            if truth != (fresh / f"{name}.json").read_text(encoding="utf-8"):
                yield f"{name}: another truth"
            value = json.loads(truth).get("value")
            same_bytes = (folder / f"{name}.pt").read_bytes() == (fresh / f"{name}.pt").read_bytes()
            if "value" not in json.loads(truth):
                if not same_bytes:
                    yield f"{name}: other bytes"
                continue
            got = python_reads(folder / f"{name}.pt")
            if got is None and not same_bytes:
                yield f"{name}: other bytes, and PyTorch cannot read them"
            elif got is not None and got != value:
                yield f"{name}: PyTorch reads something else"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ARCHIVE)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # TypedStorage, sparse and nested tensors, protocols other than 2
    if not arguments.check:
        with tempfile.TemporaryDirectory() as folder:
            names = write_all(pathlib.Path(folder))
            write_archive(pathlib.Path(folder), arguments.out)
        print(f"{len(names)} files in {arguments.out}")
        return 0
    found = list(differences(arguments.out))
    print("\n".join(found) if found else "the committed files agree")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())

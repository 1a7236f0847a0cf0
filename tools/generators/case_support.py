"""Functions that the case generators share: the command line, bundles of cases, values that do not affect the random
stream, masks, dropout streams, transformer layers, and what they use of attentive_case."""

import argparse
import contextlib
import json
import math
import pathlib
import struct
import sys
import tempfile

import torch
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "users"))
from attentive_case import DTYPES, save_safetensors, write_case  # noqa: E402

PARITY_FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests" / "parity"
ENCODER = torch.nn.TransformerEncoderLayer
DECODER = torch.nn.TransformerDecoderLayer
SMALL = {"d_model": 4, "nhead": 2, "dim_feedforward": 5, "dropout": 0.0}
# Activations that a case names, but that Python's constructors accept only as functions.
FUNCTIONS = {"silu": F.silu, "tanh": torch.tanh}


def tensors_of(path):
    """The metadata and the tensors of a safetensors file."""
    dtypes = {name: dtype for dtype, name in DTYPES.items()}
    content = pathlib.Path(path).read_bytes()
    (size,) = struct.unpack_from("<Q", content)
    header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    metadata, tensors = header.pop("__metadata__"), {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        raw, dtype = bytearray(data[first:last]), dtypes[entry["dtype"]]
        tensors[name] = (torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype)).reshape(entry["shape"])
    return metadata, tensors


def cases_of(path, read=tensors_of):
    """The metadata and the tensors of each case of a bundle, by its name."""
    cases = {}
    for part, content in enumerate(read(path)):
        for name, value in content.items():
            case, _, key = name.partition("/")
            assert case and key, f"{path}: {name} belongs to no case"
            cases.setdefault(case, ({}, {}))[part][key] = value
    return cases


def write_bundle(path, cases):
    """Writes cases, as cases_of returns them, as one safetensors file."""
    metadata, tensors = (
        {f"{case}/{key}": value for case, parts in cases.items() for key, value in parts[part].items()} for part in (0, 1)
    )
    save_safetensors(path, tensors, metadata)


class Folder:
    """A temporary folder of the cases that the generator writes in this run, which `finish` makes one bundle."""

    def __init__(self, root, name, limit_bytes):
        self.bundle = pathlib.Path(root) / f"{name}.safetensors"
        self.temporary = tempfile.TemporaryDirectory()
        self.limit_bytes = limit_bytes
        self.written = []

    def file(self, stem):
        path = pathlib.Path(self.temporary.name) / f"{stem}.safetensors"
        if path in self.written:
            raise ValueError(f"two cases are called {stem}")
        self.written.append(path)
        return path

    def finish(self):
        sizes = [path.stat().st_size for path in self.written]
        largest = max(zip(sizes, self.written))
        if largest[0] > self.limit_bytes:
            raise ValueError(f"{largest[1].name} has {largest[0]} bytes, more than {self.limit_bytes}")
        self.bundle.parent.mkdir(parents=True, exist_ok=True)
        write_bundle(self.bundle, {path.stem: tensors_of(path) for path in self.written})
        self.temporary.cleanup()
        print(f"{self.bundle}: {len(sizes)} cases, {sum(sizes)} bytes, largest {largest[0]} ({largest[1].name})")


def run_generator(description, limits, *generators, out=PARITY_FOLDER):
    """Runs a generator's command line: each of `generators` gets the folders of the bundles in `limits`, with the largest
    case size."""
    names = " and ".join(f"{name}.safetensors" for name in limits)
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--out", default=out, help=f"the folder that holds {names}")
    parser.add_argument("--seed", type=int, default=0, help="other numbers than the committed ones (default: 0, the same)")
    arguments = parser.parse_args()
    global _first_seed
    # Not a number above 2^32: PyTorch's CPU generator reads only the lower 32 bits of a seed.
    _first_seed = arguments.seed * 1_000_003
    torch.set_num_threads(1)
    folders = [Folder(arguments.out, name, limit) for name, limit in limits.items()]
    for generate in generators:
        generate(*folders)
    for folder in folders:
        folder.finish()


_first_seed = 0


def random_stream(seed):
    """A separate random generator; --seed on the command line changes the numbers of all of them."""
    return torch.Generator().manual_seed((_first_seed + seed) % 2**32)


def fresh():
    """Whether the numbers are others than the committed ones."""
    return _first_seed != 0


@contextlib.contextmanager
def draw(attempt):
    """Other numbers for each attempt; those of attempt 0 are the usual ones."""
    global _first_seed
    before = _first_seed
    _first_seed += attempt * 7_919
    try:
        yield
    finally:
        _first_seed = before


def normal(seed, *shape, dtype=torch.float32):
    """Standard normal values from a generator of their own, drawn in float64 and rounded to dtype."""
    return torch.randn(shape, generator=random_stream(seed), dtype=torch.float64).to(dtype)


def hiding_mask(kind, seed, shape, causal, dtype):
    """A mask in which true (or -inf) hides; the first key of every row stays visible."""
    if kind == "none":
        return None
    hidden = normal(seed, *shape) > 0.5
    if causal:
        hidden = torch.ones(shape, dtype=torch.bool).triu(1)
    hidden[..., 0] = False
    if kind == "bool":
        return hidden
    values = torch.zeros(shape) if causal else normal(seed + 1, *shape)
    return values.masked_fill(hidden, -math.inf).to(dtype)


@contextlib.contextmanager
def emulated_dropout(path):
    """Replaces F.dropout by one of PyTorch's two CPU streams, whichever processor this runs on.

    default:   keep where a 53-bit uniform number is below 1-p; the stream of torch.rand in float64, in memory order.
    intel_mkl: one 32-bit draw seeds MKL's multiplicative generator x <- 1132489760 x mod (2^31 - 1).
    """

    def dropout(input, p=0.5, training=True, inplace=False):
        if not training or p == 0.0:
            return input
        if p == 1.0:
            return input * torch.zeros_like(input)  # PyTorch draws nothing in this case
        keep = _kept_default(input, p) if path == "default" else _kept_mkl(input.shape, p)
        return input * keep.to(input.dtype).div(1 - p)

    original = F.dropout
    F.dropout = dropout
    try:
        yield
    finally:
        F.dropout = original


def _kept_default(input, p):
    keep = torch.empty_like(input, dtype=torch.float64)  # keeps the strides of a transposed input
    order = sorted(range(input.dim()), key=lambda d: -keep.stride(d))
    keep.permute(order).copy_(torch.rand([input.shape[d] for d in order], dtype=torch.float64))
    return keep < 1 - p


def _kept_mkl(shape, p):
    modulus = 2**31 - 1
    count = torch.Size(shape).numel()
    x = _draw_32_bits() % modulus or 1
    values = []
    for _ in range(count):
        values.append(x / modulus)
        x = 1132489760 * x % modulus
    return (torch.tensor(values, dtype=torch.float64) < 1 - p).reshape(shape)


def _draw_32_bits():
    # No tensor function returns a single 32-bit draw: read it as the upper half of a 64-bit draw, restore the
    # state, and advance by one draw.
    before = torch.get_rng_state()
    pair = int(torch.empty((), dtype=torch.int64).random_(-(2**63), None))
    torch.set_rng_state(before)
    torch.rand(1)
    return pair >> 32 & 0xFFFFFFFF


def with_function(options):
    """The arguments of a constructor, with the activation's name replaced by its function."""
    activation = options.get("activation", "relu")
    return {**options, "activation": FUNCTIONS.get(activation, activation)}


def built_layer(kind, options, seed, dtype, value_seed=None):
    """The layer that PyTorch draws after `seed`; with value_seed, zero biases and unit norms get other values."""
    torch.manual_seed(seed)
    module = kind(**with_function(options))
    if value_seed is not None:
        move_values(module, value_seed, lambda key: key.endswith("bias") or key.startswith("norm"))
    return module.to(dtype)


def move_values(module, first_seed, chosen=lambda key: True):
    """Changes the values of the chosen parameters."""
    with torch.no_grad():
        for index, (key, parameter) in enumerate(module.named_parameters()):
            if chosen(key):
                parameter.add_(normal(first_seed + index, *parameter.shape) / 4)


def bool_mask(seed, *shape):
    """A mask in which true hides; the first key of every row stays visible."""
    hidden = normal(seed, *shape) > 0.3
    hidden[..., 0] = False
    return hidden


def float_mask(seed, *shape, dtype=torch.float32):
    return normal(seed, *shape).masked_fill(bool_mask(seed + 1, *shape), -math.inf).to(dtype).requires_grad_()


def causal(size):
    return torch.ones(size, size, dtype=torch.bool).triu(1)


def composed_sdpa(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False):
    # PyTorch's own kernel draws its dropout in C++, where Python cannot replace it.
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    if is_causal:
        scores = scores.masked_fill(causal(query.shape[-2]), -math.inf)
    if attn_mask is not None:
        scores = scores + attn_mask
    return F.dropout(scores.softmax(-1), dropout_p) @ value


@contextlib.contextmanager
def stream(path):
    original = F.scaled_dot_product_attention
    F.scaled_dot_product_attention = composed_sdpa
    try:
        with emulated_dropout(path):
            yield
    finally:
        F.scaled_dot_product_attention = original


def write_layer_case(folders, stem, module, inputs, options, fresh=False, call=None, train=True, grads=True):
    """Writes a case to the first folder or, if dropout is drawn, one case per stream to the second."""
    plain, with_dropout = folders
    if options["dropout"] > 0 and train:
        for path in ("default", "intel_mkl"):
            settings = {"options": options, "train": True, "forward_seed": 3, "metadata": {"dropout_path": path}}
            with stream(path):
                write_case(with_dropout.file(f"{stem}-{path}"), module, **settings, **inputs)
        return
    settings = {"options": options, "call": call, "train": train, "grads": grads}
    if fresh:
        settings["metadata"] = {"init_seed": "7"}
    write_case(plain.file(stem), module, **settings, **inputs)

"""Functions that the generators of layers and stacks share: values, masks, dropout streams, writing a case."""

import contextlib
import math
import pathlib
import sys

import torch
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "users"))
from attentive_case import write_case  # noqa: E402
from case_support import emulated_dropout, normal  # noqa: E402

ENCODER = torch.nn.TransformerEncoderLayer
DECODER = torch.nn.TransformerDecoderLayer
SMALL = {"d_model": 4, "nhead": 2, "dim_feedforward": 5, "dropout": 0.0}
# Activations that a case names, but that Python's constructors accept only as functions.
FUNCTIONS = {"silu": F.silu, "tanh": torch.tanh}


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

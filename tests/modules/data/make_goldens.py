"""Writes goldens.json, the numbers that the module tests compare with: python make_goldens.py (needs torch, numpy).

Every entry is one call of one class of tools/users/notebook_modules.py (CrossAttention below has no notebook class).
`state.*` are the parameters drawn from `seed`, `grad.*` the gradients of sum(output * grad_output), or of sum(output)
where there is no grad_output. Where the forward drops, `output` and `weights` stand once per CPU dropout stream.
float32 values are written as the shortest decimal that reads back as the same float32.
"""

import contextlib
import json
import pathlib
import sys

import numpy
import torch
from torch import nn

HERE = pathlib.Path(__file__).resolve().parent
for folder in ("users", "generators"):
    sys.path.insert(0, str(HERE.parents[2] / "tools" / folder))

import notebook_modules as notebook  # noqa: E402
from case_support import emulated_dropout  # noqa: E402
from make_cases import BATCH, SENTENCE  # noqa: E402

STREAMS = ("default", "intel_mkl")


class CrossAttention(nn.Module):
    def __init__(self, d_in, d_kv, d_out, dropout, num_heads, qkv_bias=False):
        super().__init__()
        self.num_heads = num_heads
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_kv, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_kv, d_out, bias=qkv_bias)
        self.out_proj = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, memory, mask=None):
        projected = (self.W_query(x), self.W_key(memory), self.W_value(memory))
        query, key, value = (notebook.split_heads(y, self.num_heads) for y in projected)
        hidden = None if mask is None else mask == 0
        return self.out_proj(notebook.merge_heads(notebook.attend(query, key, value, hidden, self.dropout)[0]))


class AsPublished(notebook.SharedHeadAttention):
    """The blog's forward with its view moved before the projection and nothing else: attends over heads."""

    def forward(self, values, keys, query, mask=None):
        split = [x.unflatten(-1, (self.heads, -1)) for x in (query, keys, values)]
        layers = (self.queries, self.keys, self.values)
        context, _ = notebook.attend(*(layer(x) for layer, x in zip(layers, split)))
        return self.fc_out(context.flatten(-2))


@contextlib.contextmanager
def recorded_weights():
    """Collects the weights of every attention inside, whether the class returns them or not."""
    seen, original = [], notebook.attend

    def attend(*arguments, **keywords):
        context, weights = original(*arguments, **keywords)
        seen.append(weights)
        return context, weights

    notebook.attend = attend
    try:
        yield seen
    finally:
        notebook.attend = original


def plain(tensor):
    """The form of a tensor in the file."""
    array = tensor.detach().numpy()
    if array.dtype == numpy.float32:
        data = [float(str(x)) for x in array.ravel()]
        assert (numpy.array(data).astype(numpy.float32) == array.ravel()).all()
    else:
        data = array.ravel().tolist()
    return {"shape": list(array.shape), "data": data}


def head(tensor, count=8):
    """The first numbers of every row of the last dimension, for tensors too large for a file."""
    return tensor.detach()[..., :count].contiguous()


def run(module, inputs, mask):
    with recorded_weights() as seen:
        result = module(*inputs) if mask is None else module(*inputs, mask=mask)
    output = result[0] if isinstance(result, tuple) else result
    return output, seen[0] if len(seen) == 1 else torch.stack(seen, dim=1)


def entry(kind, options, seed, *inputs, names=("x",), mask=None, weighted=True, keep=lambda tensor: tensor):
    """One class, one call in eval mode, its gradients."""
    torch.manual_seed(seed)
    inputs = [x() if callable(x) else x for x in inputs]
    module = kind(**options).eval()
    inputs = [x.clone().requires_grad_() for x in inputs]
    output, weights = run(module, inputs, mask)
    tensors = {f"input.{name}": x for name, x in zip(names, inputs)}
    if mask is not None:
        tensors["mask"] = mask
    loss = output.sum()
    if weighted:
        generator = torch.Generator().manual_seed(seed + 1)
        tensors["grad_output"] = torch.randn(output.shape, generator=generator)
        loss = (output * tensors["grad_output"]).sum()
    loss.backward()
    tensors["output"], tensors["weights"] = output, weights
    for name, parameter in module.named_parameters():
        tensors[f"state.{name}"] = keep(parameter)
        if parameter.grad is not None:  # a class that lets no token see another has none for queries and keys
            tensors[f"grad.{name}"] = keep(parameter.grad)
    for name, x in zip(names, inputs):
        tensors[f"grad.input.{name}"] = x.grad
    return {"seed": seed, **{name: plain(value) for name, value in tensors.items()}}


def training(kind, options, seed, *inputs, keep=lambda tensor: tensor):
    """The numbers of one class in training mode: built and run after one seed, once for each stream of the CPU's
    dropout."""
    result = {"seed": seed}
    for stream in STREAMS:
        with emulated_dropout(stream):
            torch.manual_seed(seed)
            drawn = [x() if callable(x) else x for x in inputs]
            output, weights = run(kind(**options).train(), drawn, None)
        result["input.x"] = plain(drawn[0])
        result[f"{stream}.output"] = plain(keep(output))
        result[f"{stream}.weights"] = plain(weights)
        result[f"{stream}.output_sum"] = plain(output.double().sum())
    return result


def normal(*shape):
    return lambda: torch.randn(shape)


def two_masks():
    padding = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]]).view(2, 1, 1, 4)
    causal = torch.ones(1, 1, 4, 4, dtype=torch.int64).tril()
    return padding, causal


def function_entry(seed, mask=None):
    """The toy notebook's ScaledDotProductAttention on inputs of different lengths and widths."""
    inputs = (normal(2, 5, 4), normal(2, 6, 4), normal(2, 6, 3))
    return entry(notebook.ScaledDotProductAttention, {}, seed, *inputs, names=("Q", "K", "V"), mask=mask)


def dropout_of_ones():
    result = {"seed": 123}
    for stream in STREAMS:
        with emulated_dropout(stream):
            torch.manual_seed(123)
            result[stream] = plain(torch.nn.functional.dropout(torch.ones(6, 6), 0.5))
    return result


def full_size():
    torch.manual_seed(0)
    x = torch.randn(32, 196, 768)
    with torch.no_grad():
        output, weights = run(notebook.FusedSelfAttention(768), [x], None)
    summary = {"x_head": head(x[0, 0]), "output_head": head(output[:, 0])}
    summary |= {"weights_head": head(weights[:, :, 0]), "output_sum": output.double().sum()}
    summary |= {"output_abs_sum": output.double().abs().sum(), "weights_sum": weights.double().sum()}
    return {"seed": 0, **{name: plain(value) for name, value in summary.items()}}


def chapter_3():
    one = {"d_in": 3, "d_out": 2}
    many = {**one, "context_length": 6, "dropout": 0.0}
    heads = {**many, "num_heads": 2}
    goldens = {
        "SelfAttentionV1": entry(notebook.SelfAttention_v1, one, 123, SENTENCE, weighted=False),
        "SelfAttentionV2": entry(notebook.SelfAttention_v2, one, 789, SENTENCE, weighted=False),
        "SelfAttentionV2.bias": entry(notebook.SelfAttention_v2, {**one, "qkv_bias": True}, 789, BATCH),
        "MatrixSelfAttention": entry(notebook.MatrixSelfAttention, {"d_model": 3, "d_k": 2}, 123, SENTENCE, weighted=False),
        "CausalAttention": entry(notebook.CausalAttention, many, 123, BATCH, weighted=False),
        "MultiHeadAttentionWrapper": entry(notebook.MultiHeadAttentionWrapper, heads, 123, BATCH, weighted=False),
        "MultiHeadAttention": entry(notebook.MultiHeadAttention, heads, 123, BATCH, weighted=False),
    }
    for name, options in (("CausalAttention", many), ("MultiHeadAttentionWrapper", heads), ("MultiHeadAttention", heads)):
        goldens[f"{name}.train"] = training(getattr(notebook, name), {**options, "dropout": 0.5}, 123, BATCH)
    return goldens


def main():
    torch.set_num_threads(1)
    padding, causal = two_masks()
    toy = {"d_model": 128, "num_heads": 4, "dropout": 0.1}
    small = {"d_model": 8, "num_heads": 2}
    shared = {"embed_size": 8, "heads": 2}
    three = ("values", "keys", "query")
    lengths = (normal(2, 6, 8), normal(2, 6, 8), normal(2, 4, 8))
    keys = torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 0]]).view(2, 1, 1, 6)
    cross = {"d_in": 6, "d_kv": 5, "d_out": 8, "dropout": 0.0, "num_heads": 2, "qkv_bias": True}
    goldens = chapter_3()
    goldens |= {
        "dropout_of_ones": dropout_of_ones(),
        "ScaledDotProductAttention": function_entry(3),
        "ScaledDotProductAttention.mask": function_entry(3, keys[:, 0]),
        "MultiHeadSelfAttention": entry(notebook.MultiHeadSelfAttention, toy, 42, normal(2, 5, 128), weighted=False, keep=lambda t: head(t[:4])),
        "MultiHeadSelfAttention.train": training(notebook.MultiHeadSelfAttention, toy, 42, normal(2, 5, 128), keep=head),
        "MultiHeadSelfAttention.padding": entry(notebook.MultiHeadSelfAttention, small, 42, normal(2, 4, 8), mask=padding),
        "MultiHeadSelfAttention.causal": entry(notebook.MultiHeadSelfAttention, small, 42, normal(2, 4, 8), mask=causal),
        "SharedHeadAttention": entry(notebook.SharedHeadAttention, shared, 3, *lengths, names=three),
        "SharedHeadAttention.mask": entry(notebook.SharedHeadAttention, shared, 3, *lengths, names=three, mask=keys),
        "SharedHeadAttention.as_published": published(shared),
        "SharedHeadAttention.as_published_one_head": published({**shared, "heads": 1}),
        "FusedSelfAttention": entry(notebook.FusedSelfAttention, {"embed_dim": 16, "num_heads": 4}, 4, normal(2, 5, 16)),
        "FusedSelfAttention.full": full_size(),
        "CrossAttention": entry(CrossAttention, cross, 5, normal(2, 4, 6), normal(2, 6, 5), names=("x", "memory")),
        "CrossAttention.mask": entry(CrossAttention, cross, 5, normal(2, 4, 6), normal(2, 6, 5), names=("x", "memory"), mask=keys),
    }
    about = {"torch": torch.__version__, "writer": "make_goldens.py", "what": __doc__.split("\n\n")[1].replace("\n", " ")}
    lines = [f' "{name}": {json.dumps(value, separators=(",", ":"))}' for name, value in {"about": about, **goldens}.items()]
    (HERE / "goldens.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def published(options):
    """Seed 3, one sequence x, then the module; x is all three arguments."""
    torch.manual_seed(3)
    x = torch.randn(2, 4, 8)
    module = AsPublished(**options)
    state = {f"state.{name}": plain(parameter) for name, parameter in module.named_parameters()}
    return {"seed": 3, "input.x": plain(x), "output": plain(module(x, x, x)), **state}


if __name__ == "__main__":
    main()

"""Writes the files of this folder that Python must have written: python make_data.py (needs torch and safetensors)."""

import pathlib
from collections import OrderedDict

import safetensors
import safetensors.torch
import torch

HERE = pathlib.Path(__file__).resolve().parent


def every_dtype():
    tensors = {
        "w.f32": torch.arange(6).reshape(2, 3) / 4 - 1,
        "a.f64": torch.arange(3, dtype=torch.float64) / 8,
        "h.f16": torch.tensor([1.5, -2, 0.25]).half(),
        "b.bf16": torch.tensor([[1.5], [-2]]).bfloat16(),
        "f8": torch.tensor([1.5]).to(torch.float8_e4m3fn),
        "f85": torch.tensor([1.5]).to(torch.float8_e5m2),
        "i64": torch.tensor([-1, 2**40]),
        "i32": torch.tensor([-7, 8], dtype=torch.int32),
        "i16": torch.tensor([-300], dtype=torch.int16),
        "i8": torch.tensor([-3, 4, 5], dtype=torch.int8),
        "u64": torch.tensor([2**63], dtype=torch.uint64),
        "u32": torch.tensor([2**31 + 5], dtype=torch.uint32),
        "u16": torch.tensor([60000], dtype=torch.uint16),
        "u8": torch.tensor([0, 255], dtype=torch.uint8),
        "c64": torch.tensor([1 + 2j]),
        "bool": torch.tensor([True, False, True]),
        "scalar": torch.tensor(3.25),
        "empty": torch.empty(0, 4),
        'größe "q"\n': torch.tensor([7.0]),
    }
    metadata = {"written by": f"safetensors {safetensors.__version__}"}
    safetensors.torch.save_file(tensors, HERE / "from_python.safetensors", metadata=metadata)


def attention_state():
    """The state of a chapter-3 MultiHeadAttention(3, 2, 4, 0.0, 2): every number is its own."""
    shapes = {"W_query.weight": (2, 3), "W_key.weight": (2, 3), "W_value.weight": (2, 3)}
    shapes.update({"out_proj.weight": (2, 2), "out_proj.bias": (2,)})
    state = OrderedDict(mask=torch.ones(4, 4).triu(1))
    for index, (key, shape) in enumerate(shapes.items()):
        state[key] = (torch.arange(6.0)[: torch.Size(shape).numel()] + 10 * index).reshape(shape)
    return state


def main():
    every_dtype()
    state = attention_state()
    torch.save(dict(state), HERE / "plain_dict.pt")
    torch.save(state, HERE / "ordered_dict.pt")
    torch.save(dict(state), HERE / "legacy.pt", _use_new_zipfile_serialization=False)
    torch.save({key: torch.nn.Parameter(value) for key, value in state.items()}, HERE / "parameters.pt")
    torch.save({"model": dict(state), "step": 3}, HERE / "checkpoint.pt")


if __name__ == "__main__":
    main()

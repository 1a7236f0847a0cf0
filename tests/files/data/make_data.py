"""The files of this folder that concern Python (needs torch and safetensors).

    python make_data.py            writes those that Python must have written
    python make_data.py --check    does torch.load(weights_only=True) read saved_by_attentive.pt as it was saved?
"""

import os
import pathlib
import sys
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


def rare_dtypes():
    dtypes = {"e8m0": torch.float8_e8m0fnu, "e4m3fnuz": torch.float8_e4m3fnuz, "e5m2fnuz": torch.float8_e5m2fnuz}
    tensors = {name: torch.tensor([[0.5, 1.0, 2.0]]).to(dtype) for name, dtype in dtypes.items()}
    safetensors.torch.save_file(tensors, HERE / "rare_dtypes.safetensors")
    packed = torch.arange(8, dtype=torch.uint8).reshape(2, 4).view(torch.float4_e2m1fn_x2)  # two numbers a byte
    safetensors.torch.save_file({"f4": packed}, HERE / "float4.safetensors")


def attention_state():
    """The state of a chapter-3 MultiHeadAttention(3, 2, 4, 0.0, 2), in which every number is different."""
    shapes = {"W_query.weight": (2, 3), "W_key.weight": (2, 3), "W_value.weight": (2, 3)}
    shapes.update({"out_proj.weight": (2, 2), "out_proj.bias": (2,)})
    state = OrderedDict(mask=torch.ones(4, 4).triu(1))
    for index, (key, shape) in enumerate(shapes.items()):
        state[key] = (torch.arange(6.0)[: torch.Size(shape).numel()] + 10 * index).reshape(shape)
    return state


def check_equal(got, want, place=""):
    assert type(got) is type(want), f"{place}: expected {type(want)}, got {type(got)}"
    if isinstance(want, torch.Tensor):
        same = got.dtype == want.dtype and got.shape == want.shape and got.stride() == want.stride()
        assert same and got.requires_grad == want.requires_grad, f"{place}: expected {want}, got {got}"
        assert bytes(got.untyped_storage()) == bytes(want.untyped_storage()), f"{place}: other bytes"
        assert got.is_conj() == want.is_conj(), f"{place}: conjugated or not"
    elif isinstance(want, dict):
        assert list(got) == list(want), f"{place}: expected keys {list(want)}, got {list(got)}"
        for key in want:
            check_equal(got[key], want[key], f"{place}[{key!r}]")
    else:
        assert got == want, f"{place}: expected {want!r}, got {got!r}"


def check_saved():
    """Checks the file that tests/files/torch_file_test.cpp saves; the old and the new access to storages must agree, too."""
    os.environ["TORCH_SERIALIZATION_DEBUG"] = "1"
    base = torch.arange(12.0).view(3, 4)
    weight = torch.nn.Parameter(torch.arange(4.0, dtype=torch.float64))
    want = {
        "model": OrderedDict(weight=weight, tied=weight, view=base.t(), base=base),
        "epoch": 3,
        "lr": 0.1,
        "name": "größe \U0001F600",
        "big": 2**70,
        "negative": -70_000,
        "shape": (1, 2, 3, 300),
        "bytes": b"\x00\xff",
        "set": {"a"},
        "complex": 1 + 2j,
        "dtype": torch.float16,
        "device": torch.device("cuda:0"),
        "layout": torch.strided,
        "float8": torch.ones(2).to(torch.float8_e4m3fn),
        "uint16": torch.ones(2).to(torch.uint16),
        "conj": torch.complex(base, base).conj(),
        "bool": torch.ones(2, dtype=torch.bool),
        "empty": torch.empty(0, 3),
        "none": None,
    }
    for mmap in (False, True):
        got = torch.load(HERE / "saved_by_attentive.pt", weights_only=True, mmap=mmap)
        check_equal(got, want)
        assert got["model"]["weight"] is got["model"]["tied"]
        assert got["model"]["view"].untyped_storage()._cdata == got["model"]["base"].untyped_storage()._cdata
    print("saved_by_attentive.pt: as it was saved")


def main():
    every_dtype()
    rare_dtypes()
    state = attention_state()
    torch.save(dict(state), HERE / "plain_dict.pt")
    torch.save(state, HERE / "ordered_dict.pt")
    torch.save(dict(state), HERE / "legacy.pt", _use_new_zipfile_serialization=False)
    torch.save({key: torch.nn.Parameter(value) for key, value in state.items()}, HERE / "parameters.pt")
    torch.save({"model": dict(state), "step": 3}, HERE / "checkpoint.pt")
    several = {"generator": state, "ema": {"model": dict(state)}, "epoch": 7, "betas": (0.9, 0.95)}
    torch.save(several, HERE / "several.pt")


if __name__ == "__main__":
    check_saved() if sys.argv[1:] == ["--check"] else main()

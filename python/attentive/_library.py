"""Loads the library that registers the operators ``torch.ops.attentive``."""

from pathlib import Path

import torch

from attentive import _build

FOLDER = Path(__file__).absolute().parent


def check_torch(built: str, installed: str) -> None:
    """Raises ImportError unless both are of one minor version: PyTorch's C++ interface differs between minors."""
    if installed.split(".")[:2] != built.split("."):
        raise ImportError(
            f"attentive was built with torch {built}, but torch {installed} is installed: "
            f"pip install 'torch=={built}.*', or a torch-attentive that was built with yours"
        )


def load() -> None:
    check_torch(_build.TORCH, torch.__version__)
    torch.ops.load_library(str(FOLDER / "lib" / "libattentive_operators.so"))

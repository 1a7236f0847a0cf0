"""PyTorch's own attention on this package's kernel."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

_operators = torch.ops.attentive
_lock = threading.RLock()
_exact_dropout = False  # as the last call of enable() set it


def enable(exact_dropout: bool = False) -> None:
    """Lets every ``torch.nn.functional.scaled_dot_product_attention`` on the CPU run this package's kernel.

    It reaches forward and backward passes of float32, bfloat16 and float16, in eager programs, TorchScript and compiled graphs
    of this process. A call that the kernel cannot compute, or for which PyTorch is faster, is left to PyTorch, with the same
    bits and errors as before; ``report`` counts both. Meant for the start of a program; a second call changes the option.

    ``exact_dropout``: a call with dropout is left to PyTorch, so that a seed draws the same bits as without this package.

    Raises NotImplementedError if another library has registered the same operators.

        attentive.enable()
    """
    global _exact_dropout
    with _lock:
        _operators.accelerate_sdpa(exact_dropout)
        _exact_dropout = exact_dropout


def disable() -> None:
    """Leaves every later call to PyTorch. Backward passes of calls that were accelerated still run."""
    with _lock:
        _operators.stop_accelerating_sdpa()


@contextmanager
def enabled(exact_dropout: bool = False) -> Iterator[None]:
    """Accelerates calls until the end of the block, in every thread; then what was set before holds again.

        with attentive.enabled():
            model(x)
    """
    with _lock:
        before, exact_before = _operators.accelerates_sdpa(), _exact_dropout
        enable(exact_dropout)
    try:
        yield
    finally:
        if before:
            enable(exact_before)
        else:
            disable()


@dataclass(frozen=True)
class SdpaReport:
    """The calls of ``scaled_dot_product_attention`` since the process began or the report was reset."""

    taken: int
    """Calls that ran this package's kernel."""
    left: dict[str, int]
    """Calls that were left to PyTorch, by reason, the most frequent one first."""

    def __str__(self) -> str:
        lines = [f"{self.taken:>9} taken", f"{sum(self.left.values()):>9} left to PyTorch"]
        return "\n".join(lines + [f"{calls:>9}   {reason}" for reason, calls in self.left.items()])


def report() -> SdpaReport:
    """The report of this moment; calls of other threads may be counted meanwhile.

        print(attentive.report())
    """
    taken, reasons, calls = _operators.sdpa_report()
    names = (reason.replace("SdpaDropout::Exact", "exact_dropout=True") for reason in reasons)
    return SdpaReport(taken, dict(zip(names, calls, strict=True)))


def reset_report() -> None:
    """Sets every count to 0."""
    _operators.reset_sdpa_report()

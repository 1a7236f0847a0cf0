"""Writes a parity case for every attention call of a program that already runs.

    import attentive_record
    with attentive_record.record("cases") as recording:
        run_model()

    python attentive_record.py --out cases my_program.py its arguments

Recognised are the notebook classes by their class name, torch.nn.MultiheadAttention, and
torch.nn.functional.scaled_dot_product_attention. Each case is a call repeated on copies: the program's own results,
gradients and random stream do not change. Needs attentive_case.py beside it.
"""

import argparse
import collections
import contextlib
import os
import pathlib
import runpy
import sys

import torch
from torch.overrides import TorchFunctionMode

from attentive_case import MHA_NAME, SDPA, SDPA_NAME, RandomForward, write_case

# Active dropout cannot be repeated from the middle of a program's random stream; its case gets this seed instead.
FORWARD_SEED = 0

NOTEBOOK_CLASSES = frozenset(
    {
        "CausalAttention",
        "MultiHeadAttention",
        "MultiHeadAttentionWrapper",
        "MultiHeadSelfAttention",
        "ScaledDotProductAttention",
        "SelfAttention",
        "SelfAttention_v1",
        "SelfAttention_v2",
    }
)


class Recording:
    """What a recording wrote and what it had to leave out, with the reason."""

    def __init__(self, folder, limit, names):
        self.folder = pathlib.Path(folder)
        self.written = []
        self.skipped = []
        self.beyond_limit = 0
        self._limit = limit
        self._names = names
        self._seen = collections.Counter()
        self._keep_alive = {}  # an id is unique only as long as its module lives
        self._inside = 0

    def summary(self):
        lines = [f"{len(self.written)} cases in {self.folder}"]
        if self.beyond_limit:
            lines.append(f"{self.beyond_limit} further calls like the first {self._limit} of their kind")
        lines += [f"left out {name}: {reason}" for name, reason in self.skipped]
        return "\n".join(lines)

    def case_name(self, module):
        """The case's name for a module, or None where it is no attention we know."""
        kind = type(module)
        if kind is torch.nn.MultiheadAttention:
            return MHA_NAME
        if kind.__name__ in self._names:
            return self._names[kind.__name__]
        return kind.__name__ if kind.__name__ in NOTEBOOK_CLASSES else None

    @contextlib.contextmanager
    def call(self, module, name, inputs, named_inputs):
        """Records the call unless it happens inside another recorded one, then lets it run."""
        if not self._inside:
            self._inside = 1
            try:
                self._record(module, name, inputs, named_inputs)
            finally:
                self._inside = 0
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1

    def _record(self, module, name, inputs, named_inputs):
        values = (*inputs, *named_inputs.values())
        shapes = tuple(tuple(x.shape) for x in values if isinstance(x, torch.Tensor))
        key = (id(module), getattr(module, "training", None), shapes)
        self._keep_alive[id(module)] = module
        self._seen[key] += 1
        if self._limit is not None and self._seen[key] > self._limit:
            self.beyond_limit += 1
            return
        path = self.folder / f"{len(self.written) + 1:04d}-{name}.safetensors"
        try:
            with _without_autocast():
                try:
                    write_case(path, module, *inputs, name=name, **named_inputs)
                except RandomForward:
                    write_case(path, module, *inputs, name=name, forward_seed=FORWARD_SEED, **named_inputs)
        except Exception as error:  # a program must never fail because it is being watched
            self.skipped.append((name, f"{type(error).__name__}: {error}"))
        else:
            self.written.append(path)


@contextlib.contextmanager
def _without_autocast():
    # A case runs in the dtype of its own tensors.
    with contextlib.ExitStack() as stack:
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield


class _Functions(TorchFunctionMode):
    """Sees scaled_dot_product_attention under whatever name the program imported it."""

    def __init__(self, recording):
        super().__init__()
        self._recording = recording

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is not SDPA:
            return function(*args, **kwargs)
        with self._recording.call(function, SDPA_NAME, args, kwargs):
            return function(*args, **kwargs)


@contextlib.contextmanager
def record(folder, limit=3, names=None):
    """Records attention calls into `folder` (made if absent) until the block ends, and yields the Recording.

    limit  cases of the same module (or function), mode and input shapes; None for every call.
    names  {"MyClass": "CausalAttention"} for classes that were renamed.
    """
    recording = Recording(folder, limit, names or {})
    recording.folder.mkdir(parents=True, exist_ok=True)
    original = torch.nn.Module.__call__

    def watched(module, *inputs, **named_inputs):
        name = recording.case_name(module)
        if name is None:
            return original(module, *inputs, **named_inputs)
        with recording.call(module, name, inputs, named_inputs):
            return original(module, *inputs, **named_inputs)

    torch.nn.Module.__call__ = watched
    try:
        with _Functions(recording):
            yield recording
    finally:
        torch.nn.Module.__call__ = original


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="cases", help="folder for the cases (default: cases)")
    limit_help = "cases of the same module, mode and shapes (default: 3; 0 for every call)"
    parser.add_argument("--limit", type=int, default=3, help=limit_help)
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    sys.argv = [options.script, *options.arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(options.script)))
    with record(options.out, options.limit or None) as recording:
        try:
            runpy.run_path(options.script, run_name="__main__")
        finally:
            print(recording.summary(), file=sys.stderr)


if __name__ == "__main__":
    main()

"""Writes a parity case for every attention call of a program that already runs.

    import attentive_record
    with attentive_record.record("cases") as recording:
        run_model()
    print(recording.summary())

    python attentive_record.py --out cases my_program.py its arguments

Recognised are the notebook classes by their class name, torch.nn.MultiheadAttention, TransformerEncoderLayer and
TransformerDecoderLayer, torch.nn.functional.scaled_dot_product_attention, and the eager attention of Hugging Face models.
The summary names what looked like attention and was not recognised.

Each case is a call repeated on copies, in a thread of its own: no bit of the program's results, gradients and random
stream changes. In code that torch.compile or torch.jit compiled nothing is seen. Needs attentive_case.py,
attentive_adapt.py and attentive_watch.py beside it.
"""

import argparse
import collections
import contextlib
import functools
import os
import pathlib
import re
import runpy
import sys
import threading

import torch

from attentive_adapt import FUNCTION_CASES, autocast_in_force, by_position, cast_first, eager, padded, under
from attentive_case import DECODER_NAME, ENCODER_NAME, MHA_NAME, SDPA_NAME, RandomForward, write_case
from attentive_watch import Watch

# Active dropout cannot be repeated from the middle of a program's random stream, so its case gets this seed.
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
TORCH_CLASSES = {
    torch.nn.MultiheadAttention: MHA_NAME,
    torch.nn.TransformerEncoderLayer: ENCODER_NAME,
    torch.nn.TransformerDecoderLayer: DECODER_NAME,
}
CLASS_CASES = sorted({*NOTEBOOK_CLASSES, *TORCH_CLASSES.values()})

_running = None  # the Recording, if any


class Recording:
    """The cases that a recording wrote, and those that it left out, with the reasons."""

    def __init__(self, folder, limit, names):
        self.folder = pathlib.Path(folder)
        self.written = []
        self.skipped = []  # (where, reason)
        self.unrecognised = collections.Counter()  # what looked like attention
        self.beyond_limit = 0
        self._limit = limit
        self._names = names
        self._seen = collections.Counter()
        self._failed = set()
        self._keep_alive = {}  # an id is unique only during its object's lifetime
        self._lock = threading.RLock()
        self._watch = Watch(self)

    def summary(self):
        lines = [f"{len(self.written)} cases in {self.folder}"]
        if self.beyond_limit:
            lines.append(f"{self.beyond_limit} further calls like the first {self._limit} of their kind")
        for (where, reason), count in collections.Counter(self.skipped).items():
            lines.append(f"left out {where}{'' if count == 1 else f' ({count} calls)'}: {reason}")
        if self.unrecognised:
            lines.append("looked like attention, but was not recognised:")
            lines += [f"  {what}: {count} call{'s'[:count > 1]}" for what, count in self.unrecognised.items()]
            lines += _ADVICE
        return "\n".join(lines)

    # --- What the watch reports -----------------------------------------------------------------------------------

    def module_called(self, module, inputs, named):
        name = self._names.get(type(module).__name__) or TORCH_CLASSES.get(type(module))
        if name is None and type(module).__name__ in NOTEBOOK_CLASSES:
            name = type(module).__name__
        if name is None:
            return False
        return self._record(module, name, inputs, named, lambda: (module, *padded(module, inputs, named)))

    def function_called(self, function, kind, inputs, named):
        if kind == "sdpa":
            return self._record(self._owner(function), SDPA_NAME, inputs, named, lambda: (function, inputs, named))
        return self._record_function(function, SDPA_NAME, inputs, named, lambda: eager(function, inputs, named))

    def marked_called(self, function, name, inputs, named):
        return self._record_function(function, name, inputs, named, lambda: by_position(function, name, inputs, named))

    def looks_like_attention(self, what):
        with self._lock:
            self.unrecognised[what] += 1

    def _owner(self, function):
        module = self._watch.module()
        return function if module is None else module

    def _record_function(self, function, name, inputs, named, prepare):
        """Records a function. Under autocast only its products are cast, so the case has the cast inputs."""
        autocast = autocast_in_force()
        if autocast:
            prepare = cast_first(prepare, autocast)
        return self._record(self._owner(function), name, inputs, named, prepare, autocast=())

    def _record(self, owner, name, inputs, named, prepare, autocast=None):
        """Writes the call unless enough similar ones are written; returns false if it cannot be written."""
        if torch._C._current_graph_task_id() != -1:
            return True  # a checkpointed forward, recomputed in a backward pass; it was recorded before
        mode = getattr(owner, "training", None), torch.is_grad_enabled(), *autocast_in_force()
        shapes = tuple(tuple(x.shape) if not x.is_nested else x.dim() for x in _tensors(inputs, named))
        key = (id(owner), name, mode, shapes)
        with self._lock:
            self._keep_alive[id(owner)] = owner
            self._seen[key] += 1
            if self._limit is not None and self._seen[key] > self._limit:
                self.beyond_limit += key not in self._failed
                return key not in self._failed
            where = self._watch.path()
            try:
                self._write(where, name, prepare, inputs, named, autocast_in_force() if autocast is None else autocast)
            except Exception as error:  # recording must never make the program fail
                self._failed.add(key)
                self.skipped.append((f"{where} {name}".strip(), f"{type(error).__name__}: {error}"))
                return False
        return True

    def _write(self, where, name, prepare, inputs, named, autocast):
        on_cuda = any(x.is_cuda for x in _tensors(inputs, named))
        if torch._C._are_functorch_transforms_active():
            raise ValueError("the call is inside a torch.func transform")
        if on_cuda and torch.cuda.is_current_stream_capturing():
            raise ValueError("the call is being captured into a CUDA graph")
        if on_cuda:
            torch.cuda.synchronize()  # the copies are made on another thread's stream
        stem = "-".join(filter(None, (f"{len(self.written) + 1:04d}", where[-150:], name)))
        path = self.folder / (re.sub(r"[^\w.-]", "_", stem) + ".safetensors")
        grads = torch.is_grad_enabled()

        def write():
            self._watch.look_away()
            with under(autocast):
                function, arguments, keywords = prepare()
                settings = {"name": name, "grads": grads, "metadata": {"path": where}}
                try:
                    write_case(path, function, *arguments, **settings, **keywords)
                except RandomForward:
                    write_case(path, function, *arguments, forward_seed=FORWARD_SEED, **settings, **keywords)

        _in_a_thread(write)
        self.written.append(path)


_ADVICE = (
    "record a class that equals a known one: --name CLASS=CASE, or record(..., names={'CLASS': 'CASE'}); CASE is one of",
    f"  {', '.join(CLASS_CASES)}",
    "record a function: f = attentive_record.as_case(CASE)(f), also as a decorator; CASE is one of",
    *(f"  {name} (f takes {', '.join(arguments)})" for name, arguments in FUNCTION_CASES.items()),
    "or let the model call torch.nn.functional.scaled_dot_product_attention, before torch.compile",
)


def as_case(name):
    """Marks a function as the attention `name`, so that recordings write its calls. Its results do not change.

    attend = attentive_record.as_case("scaled_dot_product_attention")(attend)
    """
    if name not in FUNCTION_CASES:
        raise ValueError(f"as_case: expected one of {', '.join(FUNCTION_CASES)}, got {name}")

    def mark(function):
        @functools.wraps(function)
        def marked(*inputs, **named):
            recording = _running
            if recording is None:
                return function(*inputs, **named)
            return recording._watch.call(
                lambda: recording.marked_called(function, name, inputs, named), lambda: function(*inputs, **named)
            )

        return marked

    return mark


def _in_a_thread(work):
    # None of the program's modes, saved-tensor hooks, autocast or inference mode applies in that thread.
    raised = []

    def run():
        try:
            work()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="attentive_record", daemon=True)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


def _tensors(inputs, named):
    return [x for x in (*inputs, *named.values()) if isinstance(x, torch.Tensor)]


@contextlib.contextmanager
def record(folder, limit=3, names=None):
    """Records attention calls into `folder` (made if absent) until the block ends, and yields the Recording.

    limit  cases of the same module (or function, in the same module), mode and input shapes; None for every call.
    names  {"MyClass": "CausalAttention"} for classes that were renamed.
    """
    global _running
    unknown = sorted(set((names or {}).values()) - set(CLASS_CASES))
    if unknown:
        raise ValueError(f"record: expected names of {', '.join(CLASS_CASES)}, got {', '.join(unknown)}")
    if _running is not None:
        raise RuntimeError(f"record: expected no other recording, one into {_running.folder} is running")
    recording = Recording(folder, limit, names or {})
    recording.folder.mkdir(parents=True, exist_ok=True)
    _running = recording
    try:
        with recording._watch:
            yield recording
    finally:
        _running = None


def _pair(text):
    name, equals, case = text.partition("=")
    if not name or case not in CLASS_CASES:
        raise argparse.ArgumentTypeError(f"expected CLASS=CASE with CASE one of {', '.join(CLASS_CASES)}, got {text}")
    return name, case


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="cases", help="folder for the cases (default: cases)")
    limit_help = "cases of the same module, mode and shapes (default: 3; 0 for every call)"
    parser.add_argument("--limit", type=int, default=3, help=limit_help)
    name_help = "record modules of this class as that case; may come several times"
    parser.add_argument("--name", type=_pair, action="append", default=[], metavar="CLASS=CASE", help=name_help)
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    sys.argv = [options.script, *options.arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(options.script)))
    with record(options.out, options.limit or None, dict(options.name)) as recording:
        try:
            runpy.run_path(options.script, run_name="__main__")
        finally:
            print(recording.summary(), file=sys.stderr)


if __name__ == "__main__":
    # A script that imports attentive_record must get this same module.
    sys.modules["attentive_record"] = sys.modules["__main__"]
    main()

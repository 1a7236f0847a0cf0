"""Runs a Python program and writes a parity case for each of its distinct attention calls."""

import functools
import os
import pathlib
import runpy
import sys
import threading

import torch
from torch import nn
from torch.nn import functional

from .attentive_case import MHA_NAME, SDPA, SDPA_NAME, RandomForward, write_case
from .kinds import Refusal

FORWARD_SEED = 0  # of calls with dropout: the middle of a program's random stream cannot be repeated


class _Recording:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.seen, self.left_out = set(), {}
        self.written = 0
        self.inside = threading.local()

    def call(self, name, function, owner, args, kwargs):
        """The call itself, and before it a case unless there is one like it."""
        if getattr(self.inside, "busy", False) or torch.compiler.is_compiling() or torch._C._current_graph_task_id() != -1:
            return function(*args, **kwargs)
        self.inside.busy = True
        try:
            key = name, _key(args), _key(tuple(sorted(kwargs.items()))), torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
            key += (getattr(owner, "training", None), repr(owner))
            if key not in self.seen:
                self.seen.add(key)
                self._write(name, owner, args, kwargs)
            return function(*args, **kwargs)
        finally:
            self.inside.busy = False

    def _write(self, name, owner, args, kwargs):
        path = self.folder / f"{self.written + 1:04d}-{name.rpartition('.')[2]}.safetensors"
        settings = {"name": name, "grads": torch.is_grad_enabled(), **kwargs}
        try:
            try:
                write_case(path, owner or SDPA, *args, **settings)
            except RandomForward:
                write_case(path, owner or SDPA, *args, forward_seed=FORWARD_SEED, **settings)
            self.written += 1
        except Exception as error:  # the program goes on
            self.left_out[f"{name}: {error}"] = None


def _key(value):
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.dtype, value.device.type, value.requires_grad
    return tuple(_key(item) for item in value) if isinstance(value, tuple) else repr(value)


def record(command, folder):
    """Runs `command`, a program and its arguments; returns what was left out. Nothing is seen in compiled code."""
    recording = _Recording(folder)
    attend, forward = functional.scaled_dot_product_attention, nn.MultiheadAttention.forward

    @functools.wraps(attend)
    def attention(*args, **kwargs):
        return recording.call(SDPA_NAME, attend, None, args, kwargs)

    @functools.wraps(forward)
    def multihead(self, *args, **kwargs):
        return recording.call(MHA_NAME, functools.partial(forward, self), self, args, kwargs)

    functional.scaled_dot_product_attention, nn.MultiheadAttention.forward = attention, multihead
    sys.argv = list(command)
    try:
        runpy.run_path(command[0], run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            raise Refusal(f"{os.path.basename(command[0])} ended with {end.code}") from end
    finally:
        functional.scaled_dot_product_attention, nn.MultiheadAttention.forward = attend, forward
    if not recording.written:
        why = next(iter(recording.left_out), "it called neither scaled_dot_product_attention nor nn.MultiheadAttention")
        raise Refusal(f"{os.path.basename(command[0])} gave no case: {why}")
    return {"left_out": list(recording.left_out)}

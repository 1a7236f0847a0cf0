"""A PyTorch class as C++ source for LibTorch."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import os
import sys
import tempfile
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch


class PortError(RuntimeError):
    """The class was not translated; the message is one line that names the file, the line and what to change."""


@dataclasses.dataclass(frozen=True)
class Port:
    """What ``port`` wrote and found; the texts name the file's lines."""

    folder: Path | None  #: None if ``out`` was None
    files: list[str]  #: names of the files in the folder
    recognised: list[str]  #: what became a call of attention()
    composed: list[str]  #: each softmax that stayed as written, and why
    never_ran: list[str]  #: branches that no input ran: an error in C++ if they are reached
    unseeded: list[str]  #: parameters that Python leaves uninitialised
    notes: list[str]  #: what else a reader has to know


def port(
    module: torch.nn.Module | type[torch.nn.Module],
    inputs: Any,
    *,
    out: str | os.PathLike[str] | None,
    args: str | Sequence[Any] | Mapping[str, Any] | None = None,
    force: bool = False,
    composed: bool = False,
    train: str | None = None,
    loss: str | None = None,
    clip: float | None = None,
    dtypes: Sequence[str] = (),
    sizes: Sequence[Mapping[str, int]] = ({"B": 2, "T": 6}, {"B": 3, "T": 9}),
    names: Mapping[str, str] | None = None,
    limit: int = 64,
    time_limit: float = 300.0,
) -> Port:
    """Translates the class of a module into C++ for LibTorch, with a test that compares both; as the command ``attentive-port``.

    It EXECUTES the code of the class's file anew, in a child process and with your rights: imports, definitions and simple
    assignments of the top level, the constructor and forward. No compiler is needed. The weights of an instance are not written:
    save its state dict, and load it in C++ by ``attentive::load_state_dict``.

    ``module``: an instance, or a class. Its source must stand in a file; for a class of a notebook, save the notebook and use
    ``attentive-port my.ipynb MyClass``.
    ``inputs``: what forward is called with, small: a tensor, a tuple, a dict of arguments by name, or a text as for --inputs,
    such as ``"x=randn(B, T, 64)"``, which is run for each of ``sizes``. A list of these is several calls, which may have other
    sizes, and run other branches.
    ``out``: the folder to write, which must not exist unless ``force``; None checks everything and writes nothing.
    ``args``: the constructor's arguments: a tuple, a dict of them by name, or a text as for --args, such as
    ``"64, heads=4"``. For an instance, they may be left out: attributes with the names of the constructor's parameters are
    taken, if a module made of these is equal in structure.
    ``composed``: keeps the operations as written, without attention().
    ``train``: ``"AdamW(lr=1e-3)"``, Adam or SGD: also writes a training loop, of ``loss`` (a text, in which y is what forward
    returns; None: its mean square), with gradients clipped to the norm ``clip``.
    ``dtypes``: further runs, of "float64", "bfloat16" and "autocast".
    ``names``: values of names of the file, as texts of expressions, where a statement gives them that is not executed.
    ``limit``: MiB that the recorded case may hold; more is needed for a module whose sizes are fixed and large.
    ``time_limit``: seconds.

    Raises PortError if the class has no source file or is not translated, and ValueError for arguments that cannot be written as
    Python text.

        from my_models import MyAttention

        written = attentive.port(MyAttention(d_model=64, heads=4), torch.randn(2, 6, 64), out="my_attention")
        print(written.recognised)
    """
    from attentive._port.options import Options, checked, name_of
    from attentive._port.run import run

    cls = module if isinstance(module, type) else type(module)
    file = _file_of(cls)
    text = _constructor(module, cls) if args is None else args if isinstance(args, str) else _call_text(args, file)
    folder = Path(out) if out is not None else None
    with tempfile.TemporaryDirectory() as scratch:
        calls = inputs if isinstance(inputs, list) else [inputs]
        options = Options(
            file=file,
            class_name=cls.__qualname__,
            name=name_of(folder.absolute().name if folder else cls.__name__),
            args=text,
            inputs=[_inputs_text(call, f"{scratch}/{at}.pt", file) for at, call in enumerate(calls)],
            sizes=[dict(size) for size in sizes],
            settings=dict(names or {}),
            dtypes=list(dtypes),
            composed=composed,
            train=train,
            loss=loss,
            clip=clip,
            limit=limit,
            command=f"attentive.port({cls.__qualname__}({text}), …)",
        )
        problem = checked(options)
        if problem:
            raise ValueError(problem)
        work = {"options": dataclasses.asdict(options)}
        error, result = run(work, folder or Path(scratch) / "out", force=force, check=folder is None, limit=time_limit)
    if error:
        for option, argument in (("--force replaces", "force=True replaces"), ("more with --limit", "more with limit=")):
            error = error.replace(option, argument)
        raise PortError(error)
    found = {key: result[key] for key in ("files", "recognised", "composed", "never_ran", "unseeded", "notes")}
    return Port(folder=folder, **found)


def _file_of(cls: type) -> str:
    """The file of a class's source."""
    command = f'attentive-port FILE {cls.__qualname__} --args "…" --inputs "…" --out FOLDER'
    if not issubclass(cls, torch.nn.Module):
        raise TypeError(f"port: expected a torch.nn.Module or a class derived from it, got {cls.__qualname__}")
    if "<locals>" in cls.__qualname__:
        raise PortError(f"{cls.__qualname__} is defined inside a function; move it to the top level of its file")
    module = sys.modules.get(cls.__module__)
    try:
        file = inspect.getsourcefile(cls) if module is not None and getattr(module, "__file__", None) else None
    except (OSError, TypeError):
        file = None
    if file is None or not os.path.isfile(file):
        where = "a notebook or an interactive session" if cls.__module__ == "__main__" else f"the module {cls.__module__}"
        raise PortError(f"{cls.__qualname__} was defined in {where}, which has no file; save it, and run in a shell: {command}")
    return os.path.abspath(file)


def _constructor(module: Any, cls: type) -> str:
    """The arguments of an instance's constructor, from its attributes; a class is called without any."""
    if isinstance(module, type):
        return ""
    found, lacking = {}, []
    for name, parameter in list(inspect.signature(cls.__init__).parameters.items())[1:]:
        value = getattr(module, name, parameter.default)
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if value is parameter.empty or isinstance(value, torch.Tensor | torch.nn.Module):
            if parameter.default is parameter.empty:
                lacking.append(name)
        elif value is not parameter.default:
            found[name] = value
    if lacking:
        raise PortError(f"give args, the constructor's arguments: {cls.__qualname__} does not keep {', '.join(lacking)}")
    state = torch.random.get_rng_state()
    try:
        again = cls(**found)
    except Exception as error:
        raise PortError(f"give args, the constructor's arguments: with {found}, {type(error).__name__}: {error}") from error
    finally:
        torch.random.set_rng_state(state)
    if _structure(again) != _structure(module):
        raise PortError(f"give args, the constructor's arguments: with {found}, {cls.__qualname__} is another module")
    return _call_text(found, _file_of(cls))


def _structure(module: torch.nn.Module) -> list[Any]:
    """What two modules of the same arguments have in common: parts, shapes and plain attributes."""
    plain = int | float | bool | str | tuple | torch.dtype | type(None)
    parts = [
        (name, type(part), part.extra_repr(), [(k, v) for k, v in vars(part).items() if isinstance(v, plain) and k != "training"])
        for name, part in module.named_modules()
    ]
    return [parts, [(name, value.shape, value.dtype) for name, value in module.state_dict().items()]]


def _call_text(values: Any, file: str) -> str:
    """Arguments of a call, as Python text."""
    if isinstance(values, Mapping):
        return ", ".join(f"{name}={_text(value, file)}" for name, value in values.items())
    if isinstance(values, tuple | list):
        return ", ".join(_text(value, file) for value in values)
    return _text(values, file)


def _text(value: Any, file: str) -> str:
    """A value as an expression in the class's file."""
    if value is None or isinstance(value, bool | int | str | complex) and not isinstance(value, enum.Enum):
        return repr(value)
    if isinstance(value, float):
        return repr(value) if value == value and abs(value) != float("inf") else f"float('{value}')"
    if isinstance(value, torch.dtype):
        return str(value)
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    if isinstance(value, torch.Size) or type(value) in (tuple, list):
        inside = ", ".join(_text(item, file) for item in value)
        return f"[{inside}]" if isinstance(value, list) else f"({inside},)" if value else "()"
    if type(value) is dict:
        return "{" + ", ".join(f"{_text(k, file)}: {_text(v, file)}" for k, v in value.items()) + "}"
    if isinstance(value, types.SimpleNamespace):
        return f"SimpleNamespace({_call_text(vars(value), file)})"
    if isinstance(value, enum.Enum):
        return f"{_name(type(value), file)}.{value.name}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        given = {item.name: getattr(value, item.name) for item in dataclasses.fields(value) if item.init}
        return f"{_name(type(value), file)}({_call_text(given, file)})"
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
        return _name(value, file)
    raise ValueError(f"port: a {type(value).__qualname__} cannot be written as an expression; give the arguments as a text")


def _name(thing: Any, file: str) -> str:
    """A class or function by its name in the file, or in PyTorch."""
    path = getattr(sys.modules.get(thing.__module__ or ""), "__file__", None)
    if path and os.path.abspath(path) == file and "<" not in thing.__qualname__:
        return thing.__qualname__
    for space, prefix in ((torch.nn, "torch.nn"), (torch.nn.functional, "torch.nn.functional"), (torch, "torch")):
        if getattr(space, thing.__name__, None) is thing:
            return f"{prefix}.{thing.__name__}"
    raise ValueError(f"port: {thing.__qualname__} is not of the class's file or PyTorch; give the arguments as a text")


def _inputs_text(call: Any, path: str, file: str) -> str:
    """Inputs as a text; their tensors are read from a file."""
    if isinstance(call, str):
        return call
    tensors: list[torch.Tensor] = []

    def text(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            if not any(value is other for other in tensors):
                tensors.append(value)
            at = next(i for i, other in enumerate(tensors) if value is other)
            return f"torch.load({path!r}, weights_only=True)[{at}]"
        if type(value) in (tuple, list):
            inside = ", ".join(text(item) for item in value)
            return f"[{inside}]" if isinstance(value, list) else f"({inside},)" if value else "()"
        return _text(value, file)

    if isinstance(call, Mapping):
        written = ", ".join(f"{name}={text(value)}" for name, value in call.items())
    else:
        written = ", ".join(text(value) for value in (call if isinstance(call, tuple) else (call,)))
    torch.save([tensor.detach().cpu() for tensor in tensors], path)
    return written


__all__ = ["Port", "PortError", "port"]

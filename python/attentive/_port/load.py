"""Loads a user's file or notebook: imports, definitions and simple assignments are executed, nothing else ever is."""

import __future__
import argparse
import ast
import builtins
import collections
import copy
import dataclasses
import enum
import functools
import importlib.util
import inspect
import io
import itertools
import json
import linecache
import logging
import math
import os
import pathlib
import random
import re
import sys
import tokenize
import traceback
import types
import typing

import torch
from torch import nn

from . import distributions, layers
from .kinds import Refusal
from .record import HOOK, instrumented, number

_NORMS = {name: functools.reduce(getattr, name.split("."), torch.nn.utils) for name in layers.FUNCTIONS}
_DISTRIBUTIONS = {name: getattr(torch.distributions, name) for name in ("Normal", "Categorical", "kl_divergence")}
PURE = (
    *(torch.device, torch.finfo, torch.iinfo, torch.cuda.is_available, torch.cuda.device_count, torch.backends.mps.is_available),
    *(importlib.util.find_spec, logging.getLogger),
    *(int, float, str, bool, complex, tuple, list, dict, dir, set, frozenset, range, slice, len, min, max, sum, abs, round, pow),
    *(sorted, reversed, zip, enumerate, isinstance, issubclass, hasattr, getattr, type, property, staticmethod, classmethod),
    *(argparse.Namespace, types.SimpleNamespace, collections.namedtuple, collections.OrderedDict, collections.defaultdict),
    *(functools.partial, typing.TypeVar, typing.NewType),
)
PURE_METHODS = set("split join format items keys values get lower upper strip replace index copy".split())
CONFIG = re.compile(r"(?i)(config|cfg|args|arguments|params|options)$")
CHANGES = set("append extend insert update setdefault pop popitem clear remove sort reverse add discard".split())
HIDES = re.compile(r"(torch\.)?(jit\.script|jit\.script_method|compile|compiler\.disable|_dynamo\.disable)$|(functools\.)?(lru_)?cache$")
MAGIC = re.compile(r"\s*([%!?]|(pip|conda|cd|ls)\s)|[^#'\"]*=\s*[%!]|.*\?\s*$")
BINDS = re.compile(r"(?:class |def |(?=\w+\s*=[^=]))\s*(\w+)")  # at the top level
PLAIN = (
    *(ast.Constant, ast.Name, ast.Attribute, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Tuple, ast.List),
    *(ast.Set, ast.Dict, ast.Subscript, ast.Slice, ast.Starred, ast.JoinedStr, ast.FormattedValue, ast.ListComp, ast.SetComp),
    *(ast.DictComp, ast.GeneratorExp, ast.comprehension, ast.keyword, ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
    ast.expr_context,
)
_DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_FLAGS = __future__.annotations.compiler_flag  # no annotation is evaluated: it may need a package that is not there


class Missing:
    """Stands for a name whose value is not known; any use of it is refused."""

    def __init__(self, name, place, why, cause=None):
        hint = f"{why}; give it with --set {name}=EXPR"
        text = f"{name} ({place}) needs {cause}" if cause else f"{name} ({place}) {hint}"
        vars(self).update(_name=name, _text=text, _cause=cause or f"{name} ({place}), which {hint}")

    def _refuse(self, *_, **__):
        refusal = Refusal(vars(self)["_text"])
        refusal.cause = vars(self)["_cause"]
        raise refusal

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse()

    def __repr__(self):
        return f"<{vars(self)['_name']}, which is missing>"

    @classmethod
    def __torch_function__(cls, function, kinds, args=(), kwargs=None):
        for value in (*args, *(kwargs or {}).values()):
            if isinstance(value, Missing):
                value._refuse()
        raise Refusal(f"{function.__name__} was given a name that is missing")

    __hash__ = object.__hash__


for _name in (
    "call getitem setitem delitem contains iter next len bool int float index enter exit setattr mro_entries eq ne lt le gt ge "
    "neg pos invert abs add sub mul matmul truediv floordiv mod pow and or xor lshift rshift "
    "radd rsub rmul rmatmul rtruediv rfloordiv rmod rpow"
).split():
    setattr(Missing, f"__{_name}__", Missing._refuse)


@dataclasses.dataclass
class Source:
    """One file: its text as Python, the first line of each code cell, its tree and the module made of it."""

    path: str
    text: str
    cells: list
    dropped: list
    module: types.ModuleType
    tree: ast.Module | None = None
    definitions: tuple | None = None  # the tree, and its definitions in the order of ast.walk


class Loaded:
    """A user's file with those of his own that it imports."""

    def __init__(self, path, recorder, settings):
        self.main, self.recorder = os.path.realpath(path), recorder
        self.sources, self.skipped, self.adopted = {}, [], {}
        self._settings, self._values = dict(settings or {}), {}
        self._find()
        self._stand_in_for_norms()
        package = [folder.name for folder in reversed(list(_packages(self.main)))]
        name = ".".join([*package, pathlib.Path(path).stem]) if package and path.endswith(".py") else _free_name(self.main)
        self.namespace = types.ModuleType(name)
        self.namespace.__package__ = name.rpartition(".")[0]
        if package:
            importlib.import_module(self.namespace.__package__)
        sys.modules[name] = self.namespace
        _loaded.append(name)
        self.execute(self.main, self.namespace)
        for name in self._settings:
            self._set(name, last=True)

    def _stand_in_for_norms(self):
        """Until `plain_layers`, the functions of layers.py return its layers, which have the parameters and numbers of PyTorch's."""
        self.layers, self.plain_layers = None, False
        for function, original in _NORMS.items():
            made = functools.partial(self._normed, function)
            functools.update_wrapper(made, original).makes_layer = function
            parts = function.split(".")
            setattr(functools.reduce(getattr, parts[:-1], torch.nn.utils), parts[-1], made)
            setattr(sys.modules[original.__module__], parts[-1], made)

    def _stand_in_for_distributions(self):
        """Until `plain_layers`, the classes of distributions.py stand for those of torch.distributions."""
        name = "attentive_port_distributions"
        module = sys.modules[name] = types.ModuleType(name)
        _loaded.append(name)
        self.execute(distributions.__file__, module)
        for name, original in _DISTRIBUTIONS.items():
            made = vars(module)[name]
            if isinstance(made, type):
                made.__new__ = lambda cls, *given, original=original, **named: self._distribution(
                    original, torch.Tensor, lambda *_, **__: object.__new__(cls), *given, **named)
            else:
                made = functools.wraps(made)(lambda *given, original=original, made=made: self._distribution(original, module.Normal, made, *given))
            for place in (torch.distributions, sys.modules[original.__module__]):
                setattr(place, name, made)

    def _distribution(self, original, wanted, make, *given, **named):
        if self.plain_layers:
            return original(*given, **named)
        if not all(value is None or isinstance(value, wanted) for value in (*given, *named.values())):
            raise Refusal(f"torch.distributions.{original.__name__} is translated of {'tensors' if wanted is torch.Tensor else 'two Normal'} alone")
        return make(*given, **named)

    def _normed(self, function, module, *given, **named):
        if self.plain_layers:
            return _NORMS[function](module, *given, **named)
        if self.layers is None:
            self.layers = sys.modules["attentive_port_layers"] = types.ModuleType("attentive_port_layers")
            _loaded.append("attentive_port_layers")
            self.execute(layers.__file__, self.layers)
        tensor, values = layers.bound(function, _NORMS[function], module, *given, **named)
        kind = type(module)
        if tensor != "weight" or kind not in layers.LAYERS or getattr(module, "padding_mode", "zeros") != "zeros" or isinstance(getattr(module, "padding", 0), str):
            few = ", ".join(layer.__name__ for layer in layers.LAYERS)
            raise Refusal(f"{function} of {tensor} of a {kind.__name__}; of the weight of {few}, with padding of zeros by a number, it is translated")
        if values["dim"] is None:
            values["dim"] = layers.default_dim(function, kind)
        return getattr(self.layers, layers.name_of(function, kind))(module, **values)

    @property
    def dropped(self):
        """The lines of `%` and `!` that were left out, as (path, line, text)."""
        return [(source.path, *line) for source in self.sources.values() for line in source.dropped]

    @staticmethod
    def torch_names():
        """What an expression of the command line may use beside the file's own names."""
        names = {k: v for k, v in vars(torch).items() if callable(v) or isinstance(v, torch.dtype | float) if not hasattr(builtins, k)}
        return {**names, "torch": torch, "nn": nn, "F": nn.functional, "math": math, "types": types, "SimpleNamespace": types.SimpleNamespace}

    def evaluate(self, text, names=None, what=None):
        """The value of an expression in the file's namespace, with PyTorch's functions and `names`; `what` is for the message."""
        own = vars(self.namespace)
        if what == "--inputs":  # `from random import randint` does not make inputs
            own = {k: v for k, v in own.items() if not (hasattr(torch, k) and isinstance(getattr(v, "__self__", None), random.Random))}
        space = {**self.torch_names(), **own, **(names or {})}
        try:
            if "lambda" in text and what and what.startswith("--set "):
                return self._with_lambda(text.strip(), what, space)
            return eval(compile(text.strip(), "<expression>", "eval", dont_inherit=True), space)
        except Refusal:
            raise
        except Exception as error:
            raise Refusal(f"{what or 'the expression'} {text.strip()!r}: {type(error).__name__}: {error}") from error

    def _with_lambda(self, text, what, space):
        """The value of an expression that holds a lambda, which is translated like those of the file."""
        module = types.ModuleType(what)
        vars(module).update(space, **{HOOK: self.recorder})
        tree = number(ast.parse(text, what, "eval"))
        self.sources[what] = Source(what, text, [], [], module, tree)
        return self._run(instrumented(tree), vars(module), what)

    def name(self, path):
        """What a user calls a file."""
        inside = os.path.relpath(path, os.path.dirname(self.main)) if os.path.isabs(path) else path
        return os.path.basename(path) if inside.startswith(os.path.join("..", "..")) else inside

    def place(self, path, line):
        """A line as a user finds it: `my.py:5`, or `my.ipynb, cell 3, line 5`, where code cells are counted."""
        cells = self.sources[path].cells if path in self.sources else []
        if not cells:
            return f"{self.name(path)}:{line}"
        cell = max(at for at, first in enumerate(cells) if first <= line or at == 0)
        return f"{self.name(path)}, cell {cell + 1}, line {line - cells[cell] + 1}"

    def globals_of(self, path):
        return vars(self.sources[path].module)

    def comments(self, path):
        """Each comment by its line: (text without #, whether it has the line for itself)."""
        return _comments(self.sources[path].text)

    def licence(self, path):
        """The comments that a file begins with, and its docstring if it speaks of a licence; may be empty."""
        text = []
        for line in self.sources[path].text.splitlines():
            if line.strip() and not line.startswith("#"):
                break
            if not re.match(r"#!|#.*coding[:=]", line):
                text.append(line.lstrip("#").removeprefix(" ").rstrip())
        speaks = re.compile(r"(?i)licen[cs]e|copyright").search
        document = ast.get_docstring(self.sources[path].tree) or ""
        head = "\n".join(text)
        head = "" if path.endswith(".ipynb") and not speaks(head) else head
        return (f"{head}\n\n{document}" if speaks(document) else head).strip()

    def definition(self, thing):
        """The file and the node of an own class, function, method or lambda; None for any other."""
        if isinstance(thing, type):
            path = getattr(sys.modules.get(thing.__module__), "__file__", None)
            nodes = self._nodes(path, ast.ClassDef, lambda node: node.name == thing.__name__)
            lines = [
                item.__code__.co_firstlineno
                for item in map(_function, vars(thing).values())
                if hasattr(item, "__code__") and item.__qualname__.startswith(thing.__qualname__ + ".")
            ]
            around = [node for node in nodes if any(node.lineno <= line <= node.end_lineno for line in lines)]
            found = around or nodes
        else:
            code = getattr(_function(thing), "__code__", None)
            path = code and code.co_filename
            kinds = ast.Lambda if code and code.co_name == "<lambda>" else (ast.FunctionDef, ast.AsyncFunctionDef)
            named = self._nodes(path, kinds, lambda node: getattr(node, "name", "<lambda>") == code.co_name)
            found = [n for n in named if code.co_firstlineno in (n.lineno, *(d.lineno for d in getattr(n, "decorator_list", ())))]
            if kinds is ast.Lambda and len(found) > 1:
                return None
        return (path, found[-1]) if found else None

    def _nodes(self, path, kinds, wanted):
        source = self.sources.get(path)
        if source is None:
            return []
        if source.definitions is None or source.definitions[0] is not source.tree:
            found = [node for node in ast.walk(source.tree) if isinstance(node, (*_DEFINITIONS, ast.Lambda))]
            source.definitions = source.tree, found
        return [node for node in source.definitions[1] if isinstance(node, kinds) and wanted(node)]

    def _source(self, path, module):
        """Reads a file, whose definitions are to be compiled in `module`."""
        source = self.sources[path] = _read(path, module, self)
        if "distributions" in source.text and distributions.__file__ not in self.sources:
            self._stand_in_for_distributions()
        vars(module)[HOOK] = self.recorder
        linecache.cache[path] = (len(source.text), None, source.text.splitlines(True), path)
        source.tree = number(_Usual().visit(ast.parse(source.text, path)))
        return source

    def execute(self, path, module):
        """Fills a module with what its file defines."""
        source = self._source(path, module)
        module.__file__ = path
        for statement in source.tree.body:
            if path == self.main:
                for name in self._settings:
                    self._set(name)
            self._statement(source, statement)
        if vars(module).pop("_star", None):
            self._fill(source)

    def _set(self, name, last=False):
        """Gives a name of --set its value, as soon as that can be computed."""
        if name not in self._values:
            try:
                self._values[name] = self.evaluate(self._settings[name], what=f"--set {name}=")
            except Refusal:
                if last:
                    raise
                return
        setattr(self.namespace, name, self._values[name])

    def _statement(self, source, node):
        space = vars(source.module)
        bound = _bound(node)
        guarded = isinstance(node, ast.If) and "__name__" in ast.dump(node.test)
        if bound and all(self._given(source, name) for name in bound) and not isinstance(node, _DEFINITIONS):
            return
        try:
            if isinstance(node, ast.If) and self._allowed(node.test, space) and not guarded:
                branch = node.body if self._run(ast.Expression(node.test), space, source.path) else node.orelse
                if all(self._allowed(part, space) for part in branch):
                    for part in branch:
                        self._statement(source, part)
                    return
            elif isinstance(node, ast.Import | ast.ImportFrom):
                self._import(source, node)
                return
            elif self._allowed(node, space):
                wrap = isinstance(node, _DEFINITIONS + (ast.Try,)) or any(isinstance(part, ast.Lambda) for part in ast.walk(node))
                self._run(ast.Module([_plain(instrumented(node) if wrap else node)], []), space, source.path)
                return
        except (Exception, SystemExit) as error:
            self._miss(source, node, bound, f"failed ({type(error).__name__}: {error})", getattr(error, "cause", None))
            return
        if isinstance(node, ast.Pass | ast.Global) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            return
        text = ast.get_source_segment(source.text, node) or ""
        self.skipped.append((source.path, node.lineno, text.splitlines()[0][:80] if text else type(node).__name__))
        changed = [name for name in _changed(node) if _changes(space.get(name))]
        names = [name for name in [*bound, *changed] if not guarded or name not in space]
        self._miss(source, node, names, "is set by a statement that is not executed")

    def _miss(self, source, node, names, why, cause=None):
        for name in names:
            if not isinstance(vars(source.module).get(name), types.ModuleType) and not self._given(source, name):
                vars(source.module)[name] = Missing(name, self.place(source.path, node.lineno), why, cause)

    def _given(self, source, name):
        return source.path == self.main and name in self._values

    @staticmethod
    def _run(tree, space, path):
        mode = "eval" if isinstance(tree, ast.Expression) else "exec"
        return eval(compile(ast.fix_missing_locations(tree), path, mode, _FLAGS, dont_inherit=True), space)

    def _import(self, source, node):
        """Executes the imports of one statement one by one, so that one that fails takes no other name along."""
        space = vars(source.module)
        for alias in node.names:
            one = type(node)(**{**dict(ast.iter_fields(node)), "names": [alias]})
            name = alias.asname or alias.name.split(".")[0]
            try:
                self._run(ast.Module([ast.copy_location(one, node)], []), space, source.path)
                if isinstance(node, ast.ImportFrom) and alias.name == "ACT2FN":
                    space[name] = _Activations()
                elif isinstance(node, ast.ImportFrom) and name in space:
                    space[name] = self._adopted(alias.name, space[name])
            except Exception as error:
                package = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
                why = f"needs the package {package}, which is not installed" if package else f"could not be imported ({error})"
                why = "is not installed" if package == name else why
                if alias.name == "*":
                    space["_star"] = True
                else:
                    self._miss(source, node, [name], why)

    def _adopted(self, name, value):
        """A copy of a class or function of an installed package that is compiled like the user's own, with those that it uses."""
        module = sys.modules.get(getattr(value, "__module__", None))
        path = getattr(module, "__file__", None) or ""
        wanted = isinstance(value, type) and issubclass(value, nn.Module) or isinstance(value, types.FunctionType)
        package = getattr(module, "__name__", "").split(".")[0]
        if not wanted or not path.endswith(".py") or package in sys.stdlib_module_names or package in ("torch", "numpy", "einops", "attentive", __package__.split(".")[0]):
            return value
        if path in self.sources and self.sources[path].module is module:
            return value  # the user's own
        if path not in self.sources:
            copy = types.ModuleType(module.__name__)
            vars(copy).update(vars(module))
            self._source(path, copy)
        source = self.sources[path]
        space = vars(source.module)
        node = next((n for n in source.tree.body if isinstance(n, _DEFINITIONS + (ast.Assign,)) and name in _bound(n)), None)
        if node is None or space.get(name) is not value:
            return value if node is None else space[name]
        self.adopted[package] = None
        del space[name]  # while those that it uses are adopted, which may use it
        for used in sorted({n.id for n in ast.walk(node) if isinstance(n, ast.Name)}):
            if used in space:
                space[used] = _Activations() if used == "ACT2FN" else self._adopted(used, space[used])
        self._run(ast.Module([_plain(instrumented(node) if isinstance(node, _DEFINITIONS) else node)], []), space, path)
        return space[name]

    def _fill(self, source):
        """After `from x import *` of a package that is not there: unknown names are missing."""
        names = [node for node in ast.walk(source.tree) if isinstance(node, ast.Name | ast.arg)]
        known = {getattr(n, "id", None) or n.arg for n in names if not isinstance(getattr(n, "ctx", None), ast.Load)}
        known |= {*vars(source.module), *vars(builtins)}
        for node in names:
            if isinstance(node, ast.Name) and node.id not in known:
                self._miss(source, node, [node.id], "may come from a package that is not installed")

    def _allowed(self, node, space):
        """Whether a statement is an import, a definition or a simple assignment, or an expression is simple."""
        inside = functools.partial(self._allowed, space=space)
        if isinstance(node, _DEFINITIONS + (ast.Import, ast.ImportFrom, ast.Pass, ast.Lambda)):
            return True
        if isinstance(node, ast.Expr):
            return isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            return (node.value is None or inside(node.value)) and all(inside(target) for target in targets)
        if isinstance(node, ast.Try):
            handled = [part for handler in node.handlers for part in handler.body if not _is_notice(part)]
            return all(inside(p) for p in (*node.body, *node.orelse, *node.finalbody)) and all(
                isinstance(p, ast.Raise) or inside(p) for p in handled
            )
        if isinstance(node, ast.If):
            return inside(node.test) and all(inside(part) for part in (*node.body, *node.orelse))
        if isinstance(node, ast.Call):
            return self._pure(node.func, space) and all(inside(part) for part in (*node.args, *node.keywords))
        return isinstance(node, PLAIN) and all(inside(part) for part in ast.iter_child_nodes(node))

    def _pure(self, function, space):
        if isinstance(function, ast.Attribute) and function.attr in PURE_METHODS and self._allowed(function.value, space):
            return True
        names = ast.unparse(function).split(".")
        value = space.get(names[0], getattr(builtins, names[0], None))
        for name in names[1:]:
            value = getattr(value, name, None) if isinstance(value, types.ModuleType | type) else None
        if isinstance(value, Missing):
            return True  # refuses, with a better reason
        if isinstance(value, type):
            own = value.__module__ in sys.modules and getattr(sys.modules[value.__module__], "__file__", None) in self.sources
            values = dataclasses.is_dataclass(value) or issubclass(value, tuple | enum.Enum) or CONFIG.search(value.__name__)
            if own and values and not issubclass(value, nn.Module) or value.__module__ == "torch.nn.modules.activation":
                return True
        if inspect.isfunction(value) and (found := self.definition(value)) and isinstance(found[1], ast.FunctionDef):
            body = found[1].body[ast.get_docstring(found[1]) is not None :]
            return len(body) == 2 and isinstance(body[0], ast.FunctionDef) and ast.unparse(body[1]) == f"return {body[0].name}"
        return any(value is pure for pure in PURE) or getattr(value, "__module__", None) == "math"

    # Imports of the user's own files.

    def _find(self):
        """Lets Python import the user's own files by the same rules; forgets those of the file loaded before."""
        for name in _loaded:
            sys.modules.pop(name, None)
        _loaded.clear()
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
        folder = pathlib.Path(self.main).parent
        top = (list(_packages(self.main)) or [folder])[-1]
        sys.meta_path.insert(0, _Finder(self, [folder], top if top != folder or (top / "__init__.py").exists() else None))
        sys.meta_path.append(_Finder(self, list(folder.parents)[:5], None, deep=True))


    def described(self, error):
        """One line for what went wrong, with the last of the user's lines that it came from."""
        if isinstance(error, Refusal):
            path = next((p for p in self.sources if error.path in (p, self.name(p))), None)
            return f"{self.place(path, error.line)}: {error.why}" if path and error.line else str(error)
        frames = traceback.extract_tb(error.__traceback__)
        last = ([frame for frame in frames if frame.filename in self.sources] or frames[-1:])[-1]
        return f"{self.place(last.filename, last.lineno)}: {type(error).__name__}: {error}"


_loaded = []  # names in sys.modules


class _Finder:
    """Finds modules in folders of the user's, and the package `top` that his file is in."""

    def __init__(self, loaded, folders, top, deep=False):
        self.loaded, self.folders, self.top, self.deep = loaded, folders, top, deep  # deep: also folders that only hold packages

    def find_spec(self, name, path=None, target=None):
        first = name.split(".")[0]
        if first in sys.stdlib_module_names or first in ("torch", "numpy", "einops", "_port", "attentive"):
            return None
        roots = [self.top.parent] if self.top is not None and first == self.top.name else self.folders
        if "." in name:
            roots = [pathlib.Path(folder) for folder in path or ()]
            if not isinstance(getattr(sys.modules.get(first), "__loader__", None), _Finder):
                return None
        for root in roots:
            at = root / name.split(".")[-1]
            file = next((f for f in (at / "__init__.py", at.with_name(at.name + ".py")) if f.is_file()), None)
            if file or (at.is_dir() and (any(at.glob("*.py")) or self.deep and any(at.glob("*/*.py")) or at in pathlib.Path(self.loaded.main).parents)):
                spec = importlib.util.spec_from_loader(name, self, origin=file and os.path.realpath(file), is_package=True)
                alike = [root / at.name for root in roots if (root / at.name).is_dir()]  # folders of one name within each other
                spec.submodule_search_locations = [str(folder) for folder in alike] if file is None or file.stem == "__init__" else None
                return spec
        return None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        _loaded.append(module.__name__)
        path = module.__spec__.origin
        if path == self.loaded.main:  # the user's file, imported by another one of his
            module.__dict__.update({k: v for k, v in vars(self.loaded.namespace).items() if not k.startswith("__")})
        elif path and module.__spec__.submodule_search_locations is None:
            self.loaded.execute(path, module)
        elif path:
            module.__getattr__ = functools.partial(self._later, module, path)

    def _later(self, module, path, name):
        """A package's own file is executed when one of its names is asked for: many import all of the package."""
        if name in ("__path__", "__spec__", "__file__", "__wrapped__"):
            raise AttributeError(name)
        if vars(module).pop("__getattr__", None):
            self.loaded.execute(path, module)
        if name not in vars(module):
            raise AttributeError(f"module {module.__name__} has no attribute {name}")
        return vars(module)[name]


def load(path, recorder, settings=None):
    """Loads a .py or .ipynb; `settings` are texts of expressions that replace the file's own values of names."""
    return Loaded(str(path), recorder, settings)


def described(error):
    """`Loaded.described` of the file that was loaded last."""
    loaded = next((finder.loaded for finder in sys.meta_path if isinstance(finder, _Finder)), None)
    return loaded.described(error) if loaded else f"{type(error).__name__}: {error}"


@functools.lru_cache(8)
def _comments(text):
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    found = [token for token in tokens if token.type == tokenize.COMMENT]
    return {t.start[0]: (t.string.lstrip("#").strip(), not t.line[: t.start[1]].strip()) for t in found}


def _packages(path):
    """The folders of the packages that a file is in, innermost first: those with __init__.py, and as many as its relative imports go up."""
    text = "" if str(path).endswith(".ipynb") else pathlib.Path(path).read_text(encoding="utf-8-sig", errors="replace")
    up = max((len(dots) for dots in re.findall(r"^\s*from\s+(\.+)", text, re.M)), default=0)
    return [folder for _, folder in itertools.takewhile(lambda at: at[0] < up or (at[1] / "__init__.py").exists(), enumerate(pathlib.Path(path).parents))]


def _free_name(path):
    stem = re.sub(r"\W", "_", pathlib.Path(path).stem)
    stem = stem if stem.isidentifier() else f"file_{stem}"
    try:
        spec = None if stem not in sys.modules else sys.modules[stem].__spec__
        spec = spec or importlib.util.find_spec(stem)
    except (ImportError, ValueError):
        spec = True
    taken = stem in sys.stdlib_module_names or (spec is not None and getattr(spec, "origin", None) != path)
    return f"{stem}_of_user" if taken else stem


def _read(path, module, loaded):
    """The file's code; magic lines and cells that are not Python become `pass`."""
    text = pathlib.Path(path).read_text(encoding="utf-8-sig") if path != layers.__file__ else layers.SOURCE
    source = Source(path, "", [], [], module)
    if not path.endswith(".ipynb"):
        source.text = text
        try:
            ast.parse(text, path)
        except SyntaxError as error:
            raise Refusal(f"{loaded.name(path)}:{error.lineno}: not Python: {error.msg}") from error
        return source
    try:
        book = json.loads(text)
        cells = book["cells"] if "cells" in book else [cell for sheet in book["worksheets"] for cell in sheet["cells"]]
        texts = ["".join(cell.get("source", cell.get("input", ""))) for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError) as error:
        raise Refusal(f"{loaded.name(path)} is not a notebook: {error}") from error
    line = 1
    for cell in texts:
        lines, dropped = _without_magic(cell.splitlines())
        source.cells.append(line)
        source.dropped += [(line + at, text) for at, text in dropped]
        source.text += "".join(part + "\n" for part in lines)
        line += len(lines)
    return source


def _without_magic(lines):
    """A cell's lines, and the (index, text) of those replaced: by `pass`, or by a statement that is not executed either."""
    dropped = []

    def drop(at):
        if lines[at].strip() not in ("", "pass"):
            dropped.append((at, lines[at]))
            name = BINDS.match(lines[at])
            lines[at] = re.match(r"\s*", lines[at])[0] + (f"{name[1]} = input()" if name else "pass")

    lines = [*lines] or ["pass"]
    if re.match(r"\s*%%(?!time|capture|prun)", lines[0]):
        return ["pass"] * len(lines), list(enumerate(lines))
    while True:
        try:
            ast.parse("\n".join(lines))
            return lines, dropped
        except SyntaxError as error:
            at = min((error.lineno or 1), len(lines)) - 1
            magic = [n for n, line in enumerate(lines) if MAGIC.match(line) and line.strip() != "pass"]
            if not magic:
                for n, line in enumerate(lines):
                    lines[n] = line.lstrip() if not BINDS.match(line) else line
                    drop(n)
                return lines, dropped
            drop(at if at in magic else magic[0])


class _Activations(dict):
    """The activations of transformers by name, as layers of PyTorch."""

    _PLAIN = {
        **{"gelu": "GELU", "gelu_python": "GELU", "silu": "SiLU", "swish": "SiLU", "relu": "ReLU", "tanh": "Tanh", "sigmoid": "Sigmoid"},
        **{"relu6": "ReLU6", "leaky_relu": "LeakyReLU", "mish": "Mish", "linear": "Identity"},
    }
    _TANH = {"gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_accurate"}

    def __contains__(self, name):
        return name in self._PLAIN or name in self._TANH

    def __missing__(self, name):
        if name not in self:
            raise Refusal(f"ACT2FN[{name!r}] has no translation; give ACT2FN with --set")
        return nn.GELU(approximate="tanh") if name in self._TANH else getattr(nn, self._PLAIN[name])()


class _Usual(ast.NodeTransformer):
    """Writes as usual: Base.__init__(self, ...), self.__setattr__(name, value), and a match of plain values, which is an if."""

    base = None  # the class's only base

    def visit_ClassDef(self, node):
        outer, self.base = self.base, _dotted(node.bases[0]).rpartition(".")[2] if len(node.bases) == 1 else None
        self.generic_visit(node)
        self.base = outer
        return node

    def visit_Match(self, node):
        self.generic_visit(node)
        plain = isinstance(node.subject, ast.Name | ast.Attribute)
        subject = node.subject if plain else ast.Name("matched", ast.Load())
        tests = [_match_test(subject, case) for case in node.cases]
        if None in tests:
            return node
        chain = []
        for case, test in reversed(list(zip(node.cases, tests, strict=True))):
            last = isinstance(test, ast.Constant) and test.value is True
            chain = case.body if last else [ast.copy_location(ast.If(test, case.body, chain), case.pattern)]
        before = [] if plain else [ast.copy_location(ast.Assign([ast.Name("matched", ast.Store())], node.subject), node)]
        return [ast.fix_missing_locations(part) for part in before + chain]

    def visit_Try(self, node):
        """A try that only asks whether attributes are there asks hasattr."""
        self.generic_visit(node)
        *body, last = node.body
        asked = [ast.Call(ast.Name("hasattr", ast.Load()), s.value.args, []) for s in body if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name)
                 and isinstance(s.value, ast.Call) and getattr(s.value.func, "id", "") == "getattr" and len(s.value.args) == 2]
        handled = [s for h in node.handlers if _dotted(h.type) == "AttributeError" for s in h.body]
        answers = [getattr(getattr(s, "value", None), "value", None) for s in (last, *handled) if isinstance(s, ast.Return)]
        if not asked or len(asked) < len(body) or len(handled) != 1 or len(node.handlers) > 1 or node.orelse or node.finalbody or answers != [True, False]:
            return node
        return ast.fix_missing_locations(_moved(ast.Return(asked[0] if len(asked) == 1 else ast.BoolOp(ast.And(), asked)), node))

    def visit_Call(self, node):
        self.generic_visit(node)
        own = bool(node.args) and getattr(node.args[0], "id", "") == "self"
        if isinstance(node.func, ast.Attribute) and node.func.attr == "__init__" and own and self.base and _dotted(node.func.value).rpartition(".")[2] == self.base:
            node.func.value = ast.copy_location(ast.Call(ast.copy_location(ast.Name("super", ast.Load()), node), [], []), node)
            del node.args[0]
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "__setattr__" and getattr(node.func.value, "id", "") == "self":
            node.args.insert(0, node.func.value)
            node.func = ast.copy_location(ast.Name("setattr", ast.Load()), node)
        return node


def _match_test(subject, case):
    """The test that a case of a match stands for, None where its pattern is more than values and `_`."""

    def test(pattern):
        if isinstance(pattern, ast.MatchOr):
            tests = [test(part) for part in pattern.patterns]
            return None if None in tests else ast.BoolOp(ast.Or(), tests)
        if isinstance(pattern, ast.MatchAs) and pattern.pattern is None and pattern.name is None:
            return ast.Constant(True)
        value = ast.Constant(pattern.value) if isinstance(pattern, ast.MatchSingleton) else getattr(pattern, "value", None)
        sign = ast.Is() if isinstance(pattern, ast.MatchSingleton) else ast.Eq()
        return value and ast.Compare(copy.deepcopy(subject), [sign], [value])

    found = test(case.pattern)
    if found is not None and case.guard is not None:
        found = case.guard if isinstance(found, ast.Constant) else ast.BoolOp(ast.And(), [found, case.guard])
    return found and ast.fix_missing_locations(_moved(found, case.pattern))


def _moved(tree, place):
    """A tree at another place of the source."""
    for part in ast.walk(tree):
        ast.copy_location(part, place)
    return tree


def _plain(node):
    """Leaves out what would hide a function's Python, and notices about packages that are not there."""
    for part in ast.walk(node):
        if isinstance(part, _DEFINITIONS):
            part.decorator_list = [d for d in part.decorator_list if not HIDES.match(_dotted(d))]
        elif isinstance(part, ast.ExceptHandler):
            part.body = [p for p in part.body if not _is_notice(p)] or [ast.copy_location(ast.Pass(), part)]
    return node


def _dotted(node):
    """The name that a decorator has, through the wrapping of its expressions."""
    while isinstance(node, ast.Call):
        hooked = isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", None) == HOOK
        node = node.args[1] if hooked else node.func
    return f"{_dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _is_notice(node):
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and re.match(r"print$|warnings?\.|log(ger|ging)?\.", _dotted(call.func)) is not None


def _bound(node):
    """Names that a top-level statement binds."""
    if isinstance(node, _DEFINITIONS):
        return [node.name]
    names = []
    for part in ast.iter_child_nodes(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store | ast.Del):
            names.append(part.id)
        elif isinstance(part, ast.alias) and part.name != "*":
            names.append(part.asname or part.name.split(".")[0])
        elif not isinstance(part, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            names += _bound(part)
    return list(dict.fromkeys(names))


def _changed(node):
    """Names whose objects a statement changes in place."""
    for part in ast.walk(node):
        target = part if isinstance(part, ast.Attribute | ast.Subscript) and not isinstance(part.ctx, ast.Load) else None
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in CHANGES:
            target = part.func
        while isinstance(target, ast.Attribute | ast.Subscript):
            target = target.value
        if isinstance(target, ast.Name):
            yield target.id


def _changes(value):
    is_object = hasattr(value, "__dict__") and not isinstance(value, types.ModuleType | Missing)
    return is_object or isinstance(value, list | dict | set)


def _function(thing):
    """The function behind a method, a property or a decorated function."""
    thing = getattr(thing, "fget", None) or thing
    thing = getattr(thing, "__func__", thing)
    return inspect.unwrap(thing) if callable(thing) and not isinstance(thing, type) else thing

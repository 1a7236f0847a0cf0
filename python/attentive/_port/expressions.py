"""Expressions of Python as expressions of C++."""

import ast
import builtins
import collections
import functools
import inspect
import itertools
import math
import operator
import re
import types

import torch
import torch.nn.functional as F
from torch import nn

from . import arrays, einops, kinds, layers, modules, names, schema
from .kinds import (
    UNKNOWN,
    Class,
    Config,
    Function,
    List,
    Many,
    Map,
    Module,
    Operand,
    Optional,
    Refusal,
    Size,
    Tensor,
    Tuple,
    is_numbers,
    is_own,
    kind_of,
    merge,
    primary,
)
from .names import cpp_type, identifier

_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Mod: "%", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
          ast.LShift: "<<", ast.RShift: ">>"}
_COMPARISONS = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_CONTAINERS = (nn.ModuleList, nn.Sequential)
_FILLED = (*_CONTAINERS, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)
DRIVER = "the command line"  # the name of the file that the options of the command line stand for
_CMATH = {name: name for name in (
    "acos acosh asin asinh atan atan2 atanh cbrt copysign cos cosh erf erfc exp exp2 expm1 fmod hypot isfinite isinf isnan lgamma log log10 log1p "
    "log2 nextafter pow remainder sin sinh sqrt tan tanh").split()} | {"fabs": "abs", "gamma": "tgamma"}
_SCALAR_NUMPY = set("sqrt log exp power ceil floor log2 log10 sin cos tan tanh abs".split())


def is_none(node):
    return isinstance(node, ast.Constant) and node.value is None


def super_call(node):
    """The method's name if the call is super().method(...)."""
    function = node.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Call) and getattr(function.value.func, "id", "") == "super":
        return function.attr
    return None


def list_of(kind):
    """PyTorch's list of modules of which a kind is an own class; any other kind as it is."""
    base = next((b for b in kind.cls.__mro__ if not is_own(b)), None) if isinstance(kind, Module) else None
    return Module(base) if base in (*_CONTAINERS, nn.ModuleDict) else kind


def recalled(node, function, arguments, keywords):
    """A call that stands for another one, whose records are its own."""
    call = ast.copy_location(ast.Call(function, arguments, keywords), node)
    call.uid = node.uid
    return call


class Expressions:
    """The part of a function's translation that knows expressions. See emit.Function for the fields."""

    # What is known about a node.

    def kind(self, node):
        """The kind of an expression, None if it never ran."""
        found = self.substituted.get(getattr(node, "uid", None))
        if found:
            return found[1]
        if isinstance(node, ast.Name) and node.id in self.second and not self.blind and isinstance(seen := self.unit.recorder.kind(node, self.owners), Tensor):
            return seen
        if isinstance(node, ast.Name) and node.id in self.inline:
            seen = self.unit.recorder.kind(node, self.owners) if self.inline[node.id][1] == kinds.NONE and not self.blind else None
            return seen or self.inline[node.id][1]  # an argument that was always None, and is set
        if isinstance(node, ast.Name) and node.id in self.narrowed:
            return self.narrowed[node.id]
        if isinstance(node, ast.Constant):
            return kind_of(node.value) if node.value is not ... else None
        if isinstance(node, ast.Name) and self.blind:
            value = self.static(node)
            return kind_of(value) if isinstance(value, bool | int | float | str) else None
        if isinstance(node, ast.GeneratorExp):
            return List(self.kind(node.elt))
        if isinstance(node, ast.JoinedStr):
            return kinds.STR
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "type" and not node.args and not node.keywords and isinstance(self.kind(node.func.value), Tensor):
            return kinds.DTYPE  # the name of a class of tensors, which is only handed back
        if isinstance(node, ast.Name) and self.locals.get(node.id) == kinds.DTYPE:
            return kinds.DTYPE
        if isinstance(node, ast.Call) and self.static(node.func) is filter:
            return List(self.element_kind(self.kind(node.args[1]), 0))
        if isinstance(node, ast.Call) and self.static(node.func) is reversed:
            return List(self.element_kind(self.kind(node.args[0]), 0))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("rearrange_many", "repeat_many")):
            return List(Tensor(), len(node.args[0].elts) if isinstance(node.args[0], ast.Tuple | ast.List) else None)
        if isinstance(node, ast.Call) and self.static(node.func) is zip:
            return List(Tuple(tuple(self.element_kind(self.kind(a), 0) for a in self.zipped(node))))
        if isinstance(node, ast.Call) and self.static(node.func) is itertools.product:
            return List(Tuple(tuple(self.element_kind(self.kind(a), 0) for a in self.factors(node))))
        if isinstance(node, ast.Call) and self.static(node.func) is itertools.combinations:
            return List(Tuple((self.element_kind(self.kind(node.args[0]), 0),) * self.count(node.args[1])))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("keys", "values", "items") and isinstance(held := self.kind(node.func.value), Map):
            return List({"keys": held.key, "values": held.item, "items": Tuple((held.key, held.item))}[node.func.attr])
        if isinstance(node, ast.Call) and self.static(node.func) is enumerate:
            return List(Tuple((kinds.INT, self.element_kind(self.kind(node.args[0]), 0))))
        if isinstance(node, ast.Call) and self.static(node.func) is map:
            return List(self.kind(node.args[0].body) if isinstance(node.args[0], ast.Lambda) else self.mapped_kind(node.args[0], node.args[1]))
        if isinstance(node, ast.Name) and isinstance(self.locals.get(node.id), List | Tuple) and not (
            isinstance(self.locals[node.id], List) and self.locals[node.id].item is None):
            return self.locals[node.id]  # C++ may hold a tuple of tensors as a vector
        if not self.blind:
            kind = kinds.promoted(self.unit.recorder.kind(node, self.owners))
            if kind is not None:
                return self.unit.resolve(kind, lambda: self.modules(node))
        if isinstance(node, ast.Attribute) and self.is_self(node.value) and self.cls is not None and not self.blind:
            return self.unit.attribute_kind(self.cls, node.attr)
        return self.locals.get(node.id) if isinstance(node, ast.Name) else self.guess(node)

    def guess(self, node):
        """A kind for code that was not wrapped: bodies of inlined functions, calls of a chosen class."""
        if isinstance(node, ast.IfExp) and getattr(node, "uid", 0) < 0:
            return merge([self.kind(node.body), self.kind(node.orelse)])
        made = self.static(node.func) if isinstance(node, ast.Call) and getattr(node, "uid", 0) < 0 else None
        made = made.func if isinstance(made, functools.partial) else made
        if inspect.isclass(made) and issubclass(made, nn.Module):
            return self.unit.resolve(Module(made), lambda: [])
        if inspect.isfunction(made) and (definition := self.unit.loaded.definition(made)) and isinstance(definition[1], ast.FunctionDef):
            return self.unit.resolve(self.unit.recorder.returns(definition[1]), lambda: [])
        if isinstance(node, ast.Compare | ast.BoolOp) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
            return kinds.BOOL
        if isinstance(node, ast.BinOp) and self.blind:
            left, right = self.kind(node.left), self.kind(node.right)
            return left if isinstance(left, Tensor) else right if isinstance(right, Tensor) else left
        if isinstance(node, ast.UnaryOp):
            return self.kind(node.operand)
        if self.blind and isinstance(node, ast.Tuple | ast.List):
            return Tuple(tuple(map(self.kind, node.elts)))
        if self.blind and isinstance(node, ast.Subscript) and isinstance(self.kind(node.value), Tensor):
            return Tensor(self.kind(node.value).dtype)
        kind = self.unit.recorder.kind(node) if self.blind else None  # of every call
        return kind if isinstance(kind, Tensor) else None

    def values(self, node):
        return self.unit.recorder.values(node, self.owners) if not self.blind else []

    def modules(self, node):
        return self.unit.recorder.modules(node, self.owners)

    def ran(self, node, branch):
        return self.unit.recorder.ran(node, branch)

    def listed(self, node):
        """The kind of an expression; of an own class of lists of modules, PyTorch's."""
        return list_of(self.kind(node))

    @staticmethod
    def is_self(node):
        return isinstance(node, ast.Name) and node.id == "self"

    def static(self, node):
        """The Python object that a dotted global name means, None for anything else."""
        if isinstance(node, ast.Name):
            if node.id in self.statics:
                return self.statics[node.id]
            if node.id in self.inline or node.id in self.local_names:
                return None
            return self.globals.get(node.id, __builtins__.get(node.id) if isinstance(__builtins__, dict) else getattr(__builtins__, node.id, None))
        if isinstance(node, ast.Attribute):
            if self.is_self(node.value):
                known = [self.unit.classes[base].statics for base in self.cls.cls.__mro__ if base in self.unit.classes] if self.cls else []
                return next((statics[node.attr] for statics in known if node.attr in statics), None)
            owner = self.static(node.value)
            if owner is not None and (inspect.ismodule(owner) or inspect.isclass(owner)):
                return getattr(owner, node.attr, None)
        return None

    def constant(self, node):
        """The value of an expression that the source writes as a constant, else UNKNOWN."""
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            pass
        if isinstance(node, ast.JoinedStr) and all(isinstance(part, ast.Constant) for part in node.values):
            return "".join(part.value for part in node.values)
        if isinstance(node, ast.Name) and node.id in self.inline:
            return self.inline[node.id][2]
        if isinstance(node, ast.Name) and node.id in self.words and not self.blind:
            return self.words[node.id]
        if isinstance(node, ast.Name | ast.Attribute):
            value = self.static(node)
            if value is None or not isinstance(value, bool | int | float | str | torch.dtype):
                return UNKNOWN
            return value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self.constant(node.operand)
            return -value if isinstance(value, int | float) else UNKNOWN
        if isinstance(node, ast.Call) and self.static(node.func) is float and node.args and isinstance(node.args[0], ast.Constant):
            return float(node.args[0].value)
        return UNKNOWN

    def always(self, node):
        """True or False if a condition had that value whenever it ran, and depends on what C++ does not know; else None."""
        values = {bool(value) for value in self.values(node)}
        return values.pop() if len(values) == 1 else None

    # Text.

    def code(self, node):
        """The C++ text of an expression."""
        found = self.substituted.get(getattr(node, "uid", None))
        if found:
            if node.uid in self.drawing & self.ordered:
                self.substitute(node, self.bind_draw(node, found[0]), found[1])
            return self.substituted[node.uid][0]
        method = getattr(self, "code_" + type(node).__name__, None)
        if method is None:
            raise Refusal(f"`{ast.unparse(node)[:60]}`: {type(node).__name__} has no translation; write it with tensors, lists and loops", node)
        text = method(node)
        if isinstance(node, ast.Call) and node.uid in self.ordered:
            text = self.bind_draw(node, text)
        return text

    def primary(self, node):
        return primary(self.code(node))

    def substitute(self, node, code, kind):
        self.substituted[node.uid] = (code, kind)

    def stand_for(self, code, kind, place, value=None):
        """A node that stands for a text of C++."""
        made = ast.copy_location(ast.Constant(value), place)
        made.uid = -next(self.unit.counter)
        self.substitute(made, code, kind)
        return made

    def static_name(self, value, place):
        """A node that names a class, or a partial of one."""
        name = ast.copy_location(ast.Name(f"{names.maker_word(kind_of(value))}()", ast.Load()), place)
        name.uid = -next(self.unit.counter)
        self.statics[name.id] = value
        self.substitute(name, "", kind_of(value))
        return name

    def operand(self, node):
        items = [self.kind(item) for item in node.elts] if isinstance(node, ast.Tuple | ast.List) else []
        if kinds.INT in items and any(isinstance(item, Tensor) for item in items) and all(item == kinds.INT or isinstance(item, Tensor) for item in items):
            sizes = [self.bound(item) for item in node.elts]  # some of them tensors of one number
            return Operand("{" + ", ".join(sizes) + "}", Tuple((kinds.INT,) * len(sizes)))
        constant, code = self.constant(node), self.code(node)
        if constant is UNKNOWN and self.kind(node) == kinds.STR and len(set(self.values(node))) == 1:
            constant = self.pinned(node, code)  # a word that chooses an operation
        if isinstance(node, ast.Call) and isinstance(self.kind(node), Tuple) and kinds.is_tensors(self.kind(node)) and self.unit.loaded.definition(self.static(node.func)):
            parts = self.local_copy(node) if self.is_vector(node) is False else ""  # of an own function that returns a tuple
            code = "{" + ", ".join(f"std::get<{n}>({parts})" for n in range(len(self.kind(node).items))) + "}" if parts else code
        is_dtype = isinstance(node, ast.Name) and self.static(node) in (float, int, bool)
        return Operand(code, kinds.DTYPE if is_dtype else self.kind(node), constant)

    def word(self, node):
        """The value of a word, which the C++ checks where the source does not write it; UNKNOWN where it was several."""
        value = self.constant(node)
        if value is UNKNOWN and isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else self.word(part.value) for part in node.values]
            return "".join(parts) if all(isinstance(part, str) for part in parts) else UNKNOWN
        if value is UNKNOWN and self.kind(node) == kinds.STR and len(set(self.values(node))) == 1:
            return self.pinned(node, self.code(node))
        return value

    def pinned(self, node, code):
        """The one value that an expression was, which the C++ checks."""
        value = self.values(node)[0]
        self.out(f"TORCH_CHECK({code} == {self.literal(value)}, {self.literal(ast.unparse(node) + ' was always ' + repr(value))});")
        return value

    def condition(self, node):
        """An expression as a C++ condition."""
        if isinstance(node, ast.BoolOp) and node.uid not in self.substituted:
            return self.all_or_any(node)  # of whatever kinds: each operand is a condition
        if isinstance(self.kind(node), Function | Class):
            return "true"
        kind, code = self.kind(node), self.code(node)
        if code in ("true", "false"):
            return code
        if kind == kinds.NONE:
            return "false"
        if isinstance(kind, Tensor):
            if kinds.NONE in self.raw_kinds(node):
                return f"{primary(code)}.defined()"
            return f"{primary(code)}.item<bool>()"
        if names.is_choice(kind):
            return code
        if kinds.makers(kind):
            return f"!{primary(code)}.empty()"
        if isinstance(kind, Optional):
            inner = "" if kind.kind == kinds.STR or isinstance(kind.kind, List | Size | Tuple) else f" && *{primary(code)} != 0"
            return f"{primary(code)}.has_value()" + (f" && *{primary(code)}" if kind.kind == kinds.BOOL else inner)
        if isinstance(kind, List | Size | Tuple | Map | kinds.Set) or kind == kinds.STR:
            return f"!{primary(code)}.empty()"
        if isinstance(kind, Module):
            return self.compare_none(node, kind, True, node)
        if kind in (kinds.INT, kinds.FLOAT):
            return f"{code} != 0"
        if isinstance(kind, Config):
            return "true"
        return code

    def raw_kinds(self, node):
        return {key[0] for key in self.unit.recorder._pick(self.unit.recorder._kinds.get(getattr(node, "uid", None), ()), self.owners)}

    def literal(self, value, node=None):
        """A Python value as C++."""
        if isinstance(value, Config) or not isinstance(value, bool | int | float | str | tuple | list | torch.dtype | torch.device | None):
            kind = kind_of(value)
            if isinstance(kind, Config):
                self.unit.struct(kind)
                return f"{kind.name}{{}}"
        try:
            return schema.literal(value)
        except Refusal as refusal:
            raise Refusal(refusal.why, node) from None

    def code_Constant(self, node):
        return "{}" if node.value is None else self.literal(node.value, node)

    def code_Name(self, node):
        name = node.id
        if name in self.inline:
            return self.inline[name][0]
        if self.is_starred(node):
            return "rest..."
        if name in self.second and self.kind(node) != self.locals.get(name):
            if not self.alike(self.kind(node), self.second[name][1]):
                raise Refusal(f"{name} is {names.describe(self.kind(node))} here; give it two names", node)
            return f"{self.second[name][0]}.value()"
        if name in self.renamed:
            return self.renamed[name]
        if isinstance(self.statics.get(name), types.FunctionType) and isinstance(self.unit.recorder.kind(node, self.owners), Function):
            return self.function_value(self.statics[name], node)  # an argument whose name becomes another value
        if name in self.locals or name in self.local_names:
            if self.locals.get(name, kinds.NONE) == kinds.NONE and self.kind(node) in (kinds.NONE, None):
                return "{}"
            if names.is_any_module(self.locals.get(name)) and isinstance(self.kind(node), Module) and self.kind(node).cls is not nn.Module:
                access, cast = ("->", "as") if name in self.any_calls or names.holds_container(self.locals[name]) else (".", "ptr")
                return f"{identifier(name)}{access}{'template ' if self.in_template else ''}{cast}<{names.implementation(self.kind(node))}>()"
            if names.is_mixed(self.locals.get(name)) and self.kind(node) in self.locals[name].kinds:  # a test told which it is
                return f"std::get<{cpp_type(self.kind(node), node)}>({identifier(name)})"
            held = isinstance(self.locals.get(name), Optional) and (self.kind(node) in kinds.NUMBERS or isinstance(self.kind(node), Config | List | Tuple))
            return f"{identifier(name)}.value()" if held else identifier(name)
        if name in self.globals or name in self.statics:
            value = self.static(node)
            if isinstance(value, types.FunctionType) and self.unit.loaded.definition(value):
                return self.function_value(value, node)
            return self.literal(value, node)
        if self.is_self(node) and self.cls is not None and self.listed(node) != self.kind(node):
            return "this"
        if name in ("float", "int", "bool") and self.kind(node) is not None:
            return self.literal(torch.empty(0, dtype=getattr(builtins, name)).dtype, node)
        if self.function.args.kwarg is not None and name == self.function.args.kwarg.arg:
            if name in self.displays and isinstance(self.kind(node), Config):
                return self.struct_text(self.kind(node), dict(self.displays[name]), node)
            raise Refusal(f"`{name}`, the keywords of {self.function.name}, are read; name the arguments", node)
        raise Refusal(f"the name {name} is not known here", node)

    @staticmethod
    def alike(kind, other):
        """Whether one C++ type holds both, of numbers, words and tensors."""
        return kind == other or isinstance(kind, Tensor) and isinstance(other, Tensor)

    def function_value(self, function, node):
        """An own function or one of torch as a value."""
        if not inspect.isroutine(function):
            raise Refusal(f"`{ast.unparse(node)[:60]}` is one of several functions; make each a lambda or a module", node)
        if function.__name__ == "deprecated_init":  # nn.init's names before PyTorch 0.4
            function = inspect.getclosurevars(function).nonlocals["meth"]
        definition = self.unit.loaded.definition(function)
        if definition and isinstance(definition[1], ast.Lambda):
            call, first = recalled(node, node, [self.stand_for("x", Tensor(), node)], []), len(self.lines)
            code = self.inlined(function, definition[1], [ast.copy_location(ast.Return(definition[1].body), node)], definition[0], call)
            return f"[](const torch::Tensor& x) {{ {''.join(f'{text} ' for _, text in self.taken_back(first))}return {code}; }}"
        if definition:
            return f"[](const torch::Tensor& x) {{ return {self.unit.function(function, node)}(x); }}"
        call = schema.call(function.__name__, [Operand("x", Tensor())], {}, method=False, where=where_of(function))
        return f"[](const torch::Tensor& x) {{ return {call}; }}"

    def member(self, name):
        """A member's text, told apart from a local of the same name."""
        text = names.member(name, self.unit.class_names)
        return f"this->{text}" if name in self.local_names or identifier(name) in self.local_names else text

    def code_Attribute(self, node):
        name = node.attr
        if ast.unparse(node) in ("self.__class__.__name__", "type(self).__name__") and len(set(self.values(node))) == 1:
            return self.literal(self.values(node)[0])
        if self.is_self(node.value) and self.cls is not None:
            return self.own_attribute(node)
        value = self.static(node)
        if isinstance(value, types.FunctionType | types.BuiltinFunctionType):
            return self.function_value(value, node)
        if value is not None:
            return self.literal(value, node)
        kind = self.kind(node.value)
        if isinstance(node.value, ast.Call) and getattr(self.static(node.value.func), "__name__", "") in ("finfo", "iinfo"):
            of = node.value.args[0]
            limits, dtype = self.static(node.value.func), self.static(of)
            made = of.value.func.value if ast.unparse(of).endswith(".numpy().dtype") else None  # of torch.tensor(0, dtype=...)
            given = [k.value for k in made.keywords if k.arg == "dtype"] if isinstance(made, ast.Call) else []
            if limits.__module__ == "numpy" and dtype is not None:
                return self.literal(float(getattr(limits(dtype), name)), node)
            text = schema.finfo(self.operand(given[0] if given else of), name)
            if "finfo(" in text:
                self.unit.helper("finfo")
            return text
        if isinstance(kind, Tensor):
            return schema.attribute(name, self.operand(node.value))
        if kind == kinds.PACKED:
            return f"{self.primary(node.value)}.{name}()"
        if isinstance(kind, Many) and isinstance(kind.kinds[0], Module):
            raise Refusal(f"`{ast.unparse(node)[:60]}`: {names.describe(kind)} have no attribute in common in C++", node)
        if isinstance(kind, Module):
            return self.module_attribute(node, kind)
        if isinstance(kind, Config):
            if self.kind(node) == kinds.NONE:
                return "{}"
            self.unit.struct(kind)
            if name not in kind.fields():
                computed = inspect.getattr_static(type(kind.value), name, None)
                computed = getattr(computed, "fget", None) or getattr(computed, "func", None)
                if computed is None or self.unit.loaded.definition(computed) is None:
                    raise Refusal(f"`{ast.unparse(node)[:60]}` is computed by {kind.name}; make it a field", node)
                return self.plain_method(computed, [node.value], node)
            return self.field(node, kind, name, self.primary(node.value))
        if isinstance(kind, Tuple) and name in ("values", "indices"):
            return f"std::get<{int(name == 'indices')}>({self.code(node.value)})"
        if kind == kinds.DTYPE and name == "is_floating_point":
            return f"c10::isFloatingType({self.code(node.value)})"
        if kind == kinds.DEVICE and name == "type" and self.always_word(node):
            return self.literal(self.always_word(node))
        raise Refusal(f"`{ast.unparse(node)[:60]}`: the attribute {name} of {names.describe(kind)} has no translation", node)

    def always_word(self, node):
        values = set(self.values(node))
        return values.pop() if len(values) == 1 else None

    def own_attribute(self, node):
        name, cls = node.attr, self.cls.cls
        if name == "training":
            return "is_training()"
        value = inspect.getattr_static(cls, name, None)
        if isinstance(value, property | functools.cached_property):
            self.unit.need_method(cls, name)
            return f"{self.member(name)}()"
        kind = self.kind(node)
        if kind == kinds.NONE and self.cls.members.get(name) in (None, kinds.NONE) and self.unit.attribute_kind(self.cls, name) in (None, kinds.NONE):
            return "{}"
        base = modules.base_layer(next(b for b in cls.__mro__ if not is_own(b)))
        if base is not nn.Module and name in self.cls.base_members() and name not in self.cls.members and not isinstance(kind, Module):
            return self.at(node, modules.attribute, base, "this", name)
        if value is not None and not callable(value) and name not in self.cls.members and not self.unit.assigned(cls, name):
            return self.literal(value, node)
        if not self.unit.assigned(cls, name) and (layer := self.usual_layer(value)):
            return layer  # of the class, of which each instance gets one
        self.cls.use(name, kind)
        held = self.cls.members.get(name)
        if held == kinds.CALLABLE and isinstance(kind, Module):
            raise Refusal(f"self.{name} is a function elsewhere, so that C++ only calls it; make each a module", node)
        if isinstance(held, Many) and isinstance(kind, Module) and names.holds_container(held):
            return f"std::dynamic_pointer_cast<{names.implementation(kind)}>({self.member(name)})"
        if isinstance(held, Many) and isinstance(kind, Module) and self.constructor:  # handed on before another class takes its place
            return f"{names.holder(kind)}({self.member(name)}.{'template ' if self.in_template else ''}ptr<{names.implementation(kind)}>())"
        there = kind in kinds.NUMBERS and isinstance(self.unit.attribute_kind(self.cls, name), Optional)
        return f"{self.member(name)}.value()" if there else self.member(name)

    @staticmethod
    def usual_layer(value):
        """The text of a layer of PyTorch's without numbers that its defaults make; None for anything else."""
        if isinstance(value, nn.Module) and not is_own(type(value)) and not list(value.parameters()) and repr(value) == repr(type(value)()):
            return modules.construct(type(value), [], {})
        return None

    def module_attribute(self, node, kind):
        name, target = node.attr, self.code(node.value)
        if name == "training":
            return f"{target}->is_training()"
        if is_own(kind.cls):
            value = inspect.getattr_static(kind.cls, name, None)
            if isinstance(value, property):
                self.unit.need_method(kind.cls, name)
                return f"{target}->{names.member(name, self.unit.class_names)}()"
            if value is not None and not callable(value) and isinstance(value, bool | int | float | str) and not self.unit.assigned(kind.cls, name):
                return self.literal(value, node)
            return f"{target}->{names.member(name, self.unit.class_names)}"
        if kind.cls is nn.ModuleDict:
            return self.child(node.value, f'[{self.literal(name)}]', self.kind(node), node)
        if kind.cls in (nn.Sequential, nn.Module) and isinstance(self.kind(node), Module):
            cast = f"->{'template ' if self.in_template else ''}as<{names.implementation(self.kind(node))}>()"
            return f"{target}->named_children()[{self.literal(name)}]{'' if self.kind(node).cls is nn.Module else cast}"
        if kind.cls is nn.Module:
            raise Refusal(f"`{ast.unparse(node)[:60]}`: a module of any class has no attribute {name} in C++; test its class first", node)
        return modules.attribute(kind.cls, target, name)

    def child(self, container, index, kind, node):
        """An element of a ModuleList, Sequential or ModuleDict, as a pointer to its class."""
        if isinstance(kind, Many) or not isinstance(kind, Module):
            raise Refusal(f"`{ast.unparse(node)[:60]}` is {names.describe(kind)}; give each class a member of its own", node)
        inner = f"{self.code(container)}->ptr({index[1:-1]})" if self.listed(container).cls is not nn.ModuleDict else f"(*{self.code(container)}){index}"
        if kind.cls is nn.Module:
            return inner
        return f"{inner}->template as<{names.implementation(kind)}>()" if self.in_template else f"{inner}->as<{names.implementation(kind)}>()"

    def code_Tuple(self, node):
        if isinstance(self.kind(node), List) and any(isinstance(item, ast.Starred) and not self.has_length(item.value) for item in node.elts):
            return self.joined_parts(node.elts, cpp_type(self.kind(node), node))
        return "{" + ", ".join(self.code(item) for item in self.starless(node.elts)) + "}"

    def code_List(self, node):
        kind = self.kind(node)
        loose = [item for item in node.elts if isinstance(item, ast.Starred) and not self.has_length(item.value)]
        if loose and isinstance(kind, List):
            return self.joined_parts(node.elts, cpp_type(kind, node))
        return self.as_list(node, kind or Tuple())

    def as_list(self, node, kind):
        """A list, or a display of one, as one of that kind."""
        if not isinstance(node, ast.Tuple | ast.List) or kind is None:
            return self.as_vector(node)
        typed = isinstance(kind, List) and isinstance(kind.item, Many)
        items = "{" + ", ".join(self.typed_branch(item, kind.item) if typed else self.code(item) for item in self.starless(node.elts)) + "}"
        return cpp_type(kind, node) + items if isinstance(kind, List) and kind.item is not None else items

    def has_length(self, node):
        kind = self.kind(node)
        return isinstance(kind, Tuple) or isinstance(kind, Size | List) and kind.length is not None or isinstance(node, ast.Tuple | ast.List) or getattr(node, "id", "") in self.stars

    def joined_parts(self, items, type_text):
        """A display with stars of lengths that vary."""
        self.unit.helper("joined")
        text, row = "", []
        for item in [*items, None]:
            if item is not None and not isinstance(item, ast.Starred):
                row.append(self.code(item))
                continue
            parts = [f"{type_text}{{{', '.join(row)}}}"] if row else []
            parts += [self.as_vector(item.value)] if item is not None else []
            for part in parts:
                text = f"joined({text}, {part})" if text else part
            row = []
        return text

    def starless(self, items):
        """The items of a call or display, with each `*value` of known length spread."""
        spread = []
        for item in items:
            if not isinstance(item, ast.Starred):
                spread.append(item)
                continue
            if isinstance(item.value, ast.Name) and item.value.id in self.stars:
                spread += self.stars[item.value.id]
                continue
            if self.is_starred(item.value):
                spread.append(item.value)
                continue
            value, kind = item.value, self.kind(item.value)
            if kind is None and isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice) and isinstance(value.value, ast.Attribute) and value.value.attr == "shape":
                bounds = [part and self.constant(part) for part in (value.slice.lower, value.slice.upper, value.slice.step)]
                if isinstance(bounds[1], int) and bounds[1] > (bounds[0] or 0) >= 0 and bounds[2] is None:
                    kind = Size(bounds[1] - (bounds[0] or 0))  # of a branch that never ran
            length = kind.length if isinstance(kind, Size | List) else len(kind.items) if isinstance(kind, Tuple) else None
            if isinstance(value, ast.Tuple | ast.List):
                spread += self.starless(value.elts)
                continue
            if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult) and isinstance(value.left, ast.Tuple | ast.List):
                spread += self.starless(value.left.elts) * self.count(value.right)
                continue
            if length is None:
                raise Refusal(f"`*{ast.unparse(value)[:40]}` has no fixed length", item)
            if length == 0:
                continue
            base = self.local_copy(value) if not isinstance(kind, Size) else None
            for at in range(length):
                node = ast.copy_location(ast.Constant(0), item)
                node.uid = -next(self.unit.counter)
                if isinstance(kind, Size):
                    self.substitute(node, self.size_at(value, at), kinds.INT)
                elif isinstance(kind, Tuple) and not self.is_vector(value):
                    self.substitute(node, f"std::get<{at}>({base})", kind.items[at])
                else:
                    self.substitute(node, f"{base}[{at}]", kind.item if isinstance(kind, List) else kind.items[at])
                spread.append(node)
        return spread

    def count(self, node):
        """The value of an integer, which the C++ checks where the source does not write it."""
        value, kind = self.constant(node), self.kind(node.args[0]) if isinstance(node, ast.Call) and node.args else None
        if value is UNKNOWN and isinstance(kind, Size) and kind.length is not None and self.static(node.func) is len:
            return kind.length
        if value is UNKNOWN and self.kind(node) == kinds.INT and len(set(self.values(node))) == 1:
            value = self.pinned(node, self.code(node))
        if not isinstance(value, int):
            raise Refusal(f"`{ast.unparse(node)}` items: their number is not fixed", node)
        return value

    def local_copy(self, node, word="parts"):
        """A name that holds the value: the expression itself if it is a name."""
        code = self.code(node)
        if code.replace("_", "").replace("this->", "").isalnum():
            return code
        name = self.fresh(word)
        self.out(f"const auto {name} = {code};")
        return name

    def mutable_copy(self, node):
        name = self.fresh("held")
        self.out(f"auto {name} = {self.code(node)};")
        return name

    def element(self, items, index):
        """An element of a C++ list; counters of loops and constants need no check."""
        at, code = self.constant(index), self.code(index)
        if isinstance(at, int) and at < 0:
            return f"{items}.end()[{at}]"
        counter = index.left if isinstance(index, ast.BinOp) and isinstance(index.op, ast.Add) and isinstance(self.constant(index.right), int) and self.constant(index.right) >= 0 else index
        loops = [n for n in ast.walk(self.function) if isinstance(n, ast.For | ast.comprehension) and isinstance(n.iter, ast.Call) and getattr(n.iter.func, "id", "") in ("range", "enumerate")]
        counts = any(isinstance(n, ast.Name) and n.id == getattr(counter, "id", None) for loop in loops for n in ast.walk(loop.target))
        if isinstance(at, int) or counts and not any(isinstance(v, int) and v < 0 for v in self.values(counter)):
            return f"{items}[{code}]"
        self.unit.helper("item_at")
        return f"item_at({items}, {code})"

    def size_at(self, node, at):
        """Element `at` of an expression that is a torch.Size."""
        if isinstance(node, ast.Attribute) and node.attr == "shape":
            return f"{self.primary(node.value)}.size({at})"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "size" and not node.args:
            return f"{self.primary(node.func.value)}.size({at})"
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            low = self.constant(node.slice.lower) if node.slice.lower is not None else 0
            if isinstance(low, int) and node.slice.step is None:
                return self.size_at(node.value, low + at)
        return f"{self.primary(node)}[{at}]" if at >= 0 else f"{self.primary(node)}.end()[{at}]"

    def code_Dict(self, node):
        kind, words = self.kind(node), [key is not None and self.constant(key) for key in node.keys]
        pairs = list(zip(node.keys, node.values, strict=True))
        if isinstance(kind, Map) and None not in node.keys:
            return f"{cpp_type(kind, node)}{{{', '.join(f'{{{self.code(key)}, {self.typed_branch(item, kind.item)}}}' for key, item in pairs)}}}"
        if isinstance(kind, Map):
            name = self.fresh("entries")
            self.out(f"{cpp_type(kind, node)} {name};")
            self.unit.helper("update")
            for key, item in pairs:
                self.out(f"update({name}, {self.code(item)});" if key is None else f"{name}[{self.code(key)}] = {self.typed_branch(item, kind.item)};")
            return name
        if not isinstance(kind, Config) or not all(isinstance(word, str) for word in words):
            raise Refusal("a dict whose keys are no constant words has no translation; use a dataclass or arguments", node)
        return self.struct_text(kind, dict(zip(words, node.values, strict=True)), node)

    def code_Set(self, node):
        return f"{cpp_type(self.kind(node), node)}{{{', '.join(map(self.code, node.elts))}}}"

    def struct_text(self, kind, given, node):
        """A struct with these fields."""
        self.unit.struct(kind)
        fields = self.unit.struct_fields(self.unit.structs[kind.name])
        for name, value in given.items():
            given_kind = self.kind(value)
            held = self.locals.get(value.id) if isinstance(value, ast.Name) else None
            grown = isinstance(held, Optional | List) and isinstance(given_kind, Optional | Tuple)  # C++ may hold a tuple of tensors as a vector
            given_kind = held if grown else given_kind
            late = name in kind.fields() and name not in fields and kind.fields()[name] is None and isinstance(given_kind, Tensor | List | Tuple)
            if grown or late or isinstance(given_kind, Optional):
                cpp_type(given_kind, node)
                self.unit.field_kinds[kind.name, name] = Optional(given_kind) if late and not isinstance(given_kind, Tensor) else given_kind
                fields = self.unit.struct_fields(self.unit.structs[kind.name])
            empty = isinstance(given_kind, Config) and not given_kind.fields()
            if name not in fields and self.kind(value) != kinds.NONE and not empty and not names.is_setting(self.kind(value)):
                raise Refusal(f"`{ast.unparse(node)[:60]}`: {name}, {names.describe(self.kind(value))}, cannot be a field of a struct", node)
        parts = [f".{identifier(name)} = {self.code(given[name])}" for name in fields if name in given and self.kind(given[name]) != kinds.NONE]
        self.unit.left_out.update((kind.name, name) for name in fields if name not in given or self.kind(given[name]) == kinds.NONE)
        return f"{kind.name}{{{', '.join(parts)}}}"

    def code_JoinedStr(self, node):
        values = set(self.values(node))
        if len(values) == 1:
            return self.literal(values.pop())
        parts = []
        for part in node.values:
            if isinstance(part, ast.Constant):
                parts.append(f"std::string({self.literal(part.value)})")
            elif (part.format_spec is None or ast.unparse(part.format_spec) in ("f'd'", "'d'")) and part.conversion == -1 and self.kind(part.value) in (kinds.INT, kinds.STR, None):
                kind = self.kind(part.value)
                parts.append(self.code(part.value) if kind == kinds.STR else f"std::to_string({self.code(part.value)})")
            else:
                raise Refusal(f"`{ast.unparse(node)[:60]}`: only words and whole numbers without a format are translated", node)
        return " + ".join(parts) or '""'

    # Operators.

    def code_UnaryOp(self, node):
        if isinstance(node.op, ast.Not):
            code = self.condition(node.operand)
            return {"true": "false", "false": "true"}.get(code, f"!{primary(code)}")
        return {ast.USub: "-", ast.Invert: "~", ast.UAdd: "+"}[type(node.op)] + self.primary(node.operand)

    def number(self, node):
        """A number as a double."""
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return self.literal(float(node.value))
        kind = self.kind(node)
        return f"static_cast<double>({self.code(node)})" if kind in (kinds.INT, kinds.BOOL, None) else self.plain(node)

    def plain(self, node):
        """A number's text, the value of an optional one."""
        return f"*{self.primary(node)}" if isinstance(self.kind(node), Optional) else self.code(node)

    def code_BinOp(self, node):
        left, right, sign = node.left, node.right, type(node.op)
        kinds_ = (self.kind(left), self.kind(right))
        if any(isinstance(kind, Tensor) for kind in kinds_):
            return self.tensor_operation(left, right, sign, node)
        if sign is ast.MatMult:
            raise Refusal(f"`{ast.unparse(node)[:60]}` never ran", node)
        if kinds_[0] == kinds.STR and sign is ast.Mod:
            return self.formatted(left, right.elts if isinstance(right, ast.Tuple) else [right], r"%[dsi]", node)
        if all(kind == kinds.STR for kind in kinds_) and sign is ast.Add:
            return f"std::string({self.code(left)}) + {self.code(right)}"
        if any(isinstance(kind, List | Tuple | Size | kinds.Set) for kind in kinds_):
            return self.list_operation(left, right, sign, node)
        integers = all(kind in (kinds.INT, kinds.BOOL) for kind in kinds_)
        if sign is ast.Pow:
            if integers and not any(isinstance(value, float) for value in self.values(node)):
                return f"static_cast<int64_t>(std::pow({self.code(left)}, {self.code(right)}))"
            return f"std::pow({self.number(left)}, {self.plain(right)})"
        if sign in (ast.FloorDiv, ast.Mod):
            negative = any(isinstance(v, int | float) and v < 0 for part in (left, right) for v in self.values(part)) or any(
                isinstance(part, ast.BinOp) and isinstance(part.op, ast.Sub) or isinstance(part, ast.UnaryOp) for part in (left, right)
            )
            if not integers or negative:
                name = "floor_divide" if sign is ast.FloorDiv else "modulo"
                self.unit.helper(name)
                return f"{name}({self.plain(left)}, {self.plain(right)})"
            return f"{primary(self.plain(left))} {'/' if sign is ast.FloorDiv else '%'} {primary(self.plain(right))}"
        if sign is ast.Div and integers:
            if isinstance(left, ast.Constant):
                return f"{self.literal(float(left.value))} / {self.primary(right)}"
            if isinstance(right, ast.Constant):
                return f"{self.primary(left)} / {self.literal(float(right.value))}"
            return f"{self.number(left)} / {self.primary(right)}"
        if sign not in _SIGNS:
            raise Refusal(f"the operator of `{ast.unparse(node)[:60]}`", node)
        return f"{primary(self.plain(left))} {_SIGNS[sign]} {primary(self.plain(right))}"

    def formatted(self, text, values, places, node):
        """A text with values put in, as `%` and str.format do."""
        text = self.constant(text)
        parts = re.split(places, text) if isinstance(text, str) else []
        if len(parts) != len(values) + 1:
            raise Refusal(f"the format of `{ast.unparse(node)[:60]}` has no translation", node)
        texts = [f"std::string({self.literal(parts[0])})"]
        for value, part in zip(values, parts[1:], strict=True):
            texts.append(self.code(value) if self.kind(value) == kinds.STR else f"std::to_string({self.code(value)})")
            texts += [self.literal(part)] if part else []
        return " + ".join(texts)

    def tensor_operation(self, left, right, sign, node):
        if sign is ast.MatMult:
            return f"{self.primary(left)}.matmul({self.code(right)})"
        if getattr(self.kind(node), "numpy", False) and self.kind(node).dtype == "f":
            for part in (left, right):
                if self.as_double(part) != self.code(part):
                    self.substitute(part, self.as_double(part), Tensor("f", self.kind(part).rank, True))
        if sign in (ast.Pow, ast.FloorDiv, ast.Mod):
            name = {ast.Pow: "pow", ast.FloorDiv: "floor_divide", ast.Mod: "remainder"}[sign]
            if sign is ast.FloorDiv and not isinstance(self.kind(left), Tensor):
                return f"torch::floor_divide(torch::scalar_tensor({self.code(left)}, {self.primary(right)}.options()), {self.code(right)})"
            return f"torch::{name}({self.code(left)}, {self.code(right)})"
        if sign not in _SIGNS or sign in (ast.LShift, ast.RShift):
            raise Refusal(f"the operator of `{ast.unparse(node)[:60]}`", node)
        if self.kind(left) == kinds.BOOL or self.kind(right) == kinds.BOOL and sign in (ast.Add, ast.Sub, ast.Mult):
            return f"{primary(self.number(left) if self.kind(left) == kinds.BOOL else self.code(left))} {_SIGNS[sign]} " + primary(
                self.number(right) if self.kind(right) == kinds.BOOL else self.code(right)
            )
        return f"{primary(self.plain(left))} {_SIGNS[sign]} {primary(self.plain(right))}"

    def list_operation(self, left, right, sign, node):
        if isinstance(self.kind(left), kinds.Set):
            name = {ast.Sub: "difference", ast.BitOr: "union", ast.BitAnd: "intersection"}.get(sign)
            if name is None:
                raise Refusal(f"the operator of `{ast.unparse(node)[:60]}`", node)
            a, b, result = self.local_copy(left, "items"), self.local_copy(right, "items"), self.fresh("result")
            self.unit.includes_std.update(("algorithm", "iterator"))
            self.out(f"{cpp_type(self.kind(node), node)} {result};")
            self.out(f"std::set_{name}({a}.begin(), {a}.end(), {b}.begin(), {b}.end(), std::inserter({result}, {result}.end()));")
            return result
        if sign is ast.Add and any(isinstance(self.kind(part), Tuple) and not self.is_vector(part) and not isinstance(part, ast.Tuple) for part in (left, right)):
            self.unit.includes_std.add("tuple")
            return f"std::tuple_cat({', '.join(f'std::make_tuple({self.code(p)[1:-1]})' if isinstance(p, ast.Tuple) else self.code(p) for p in (left, right))})"
        if sign is ast.Add:
            self.unit.helper("joined")
            whole = merge([self.locals.get(getattr(part, "id", None), self.kind(part)) for part in (left, right)])
            whole = whole if isinstance(whole, List) and isinstance(whole.item, Many) else List(Tensor()) if all(kinds.is_tensors(self.kind(p)) for p in (left, right)) else None
            return f"joined({self.as_list(left, whole)}, {self.as_list(right, whole)})"
        if sign is ast.Mult and isinstance(left, ast.Tuple) and isinstance(self.constant(right), int) and not is_numbers(self.kind(left)) and not kinds.is_tensors(self.kind(left)):
            self.unit.includes_std.add("tuple")
            return f"std::make_tuple({', '.join([self.code(item) for item in left.elts] * self.constant(right))})"
        if sign is ast.Mult:
            self.unit.helper("repeated")
            items, times = (left, right) if not self.kind(left) == kinds.INT else (right, left)
            return f"repeated({self.as_vector(items)}, {self.code(times)})"
        raise Refusal(f"the operator of `{ast.unparse(node)[:60]}`", node)

    def as_vector(self, node):
        kind, code = self.kind(node), self.code(node)
        if isinstance(kind, kinds.Set):
            if not kind.sorted:
                raise Refusal(f"`{ast.unparse(node)[:60]}`: the order of a set is not C++'s; sort it", node)
            items = self.local_copy(node, "items")
            return f"std::vector<{cpp_type(kind.item, node)}>({items}.begin(), {items}.end())"
        if isinstance(kind, Map):
            return self.listing(kind, "keys", code, node)
        if isinstance(kind, Module) and kind.cls is nn.ParameterList:
            return f"{code}->parameters()"
        return cpp_type(kind, node) + code if code.startswith("{") else f"std::string({code})" if code.startswith('"') else code

    def listing(self, kind, part, code, node):
        """The keys, values or items of a dict as a list."""
        if not kind.sorted:
            raise Refusal(f"`{ast.unparse(node)[:60]}`: its keys are not in their order, in which C++ has them; write their list", node)
        self.unit.helper(f"{part}_of")
        return f"{part}_of({code})"

    def letters(self, node):
        """A list or a word as a vector."""
        if self.kind(node) != kinds.STR:
            return self.as_vector(node)
        self.unit.helper("letters")
        return f"letters({self.code(node)})"

    def code_BoolOp(self, node):
        conjunction = isinstance(node.op, ast.And)
        if not all(self.kind(value) in (kinds.BOOL, None) for value in node.values) and self.kind(node) not in (kinds.BOOL, None):
            return self.choice(node, conjunction)
        return self.all_or_any(node)

    def all_or_any(self, node):
        """`a and b` or `a or b` as a condition."""
        conjunction, parts = isinstance(node.op, ast.And), []
        for value in node.values:
            if parts and self.never_asked(value):
                test = (" && " if conjunction else " || ").join(parts)
                self.unit.never(self.path, value.lineno)
                self.out(f"TORCH_CHECK({'!' if conjunction else ''}({test}), {self.never_text(value.lineno)});")
                return "false" if conjunction else "true"
            first = len(self.lines)
            code = self.condition(value)
            lines = self.taken_back(first)
            if lines and parts:  # what this operand needs is computed only where it is asked
                name = self.fresh("holds")
                self.out(f"bool {name} = {(' && ' if conjunction else ' || ').join(parts)};")
                self.out(f"if ({'' if conjunction else '!'}{name}) {{")
                self.lines += [(depth + 1, text) for depth, text in lines]
                self.lines.append((self.depth + 1, f"{name} = {code};"))
                self.out("}")
                parts = [name]
                continue
            self.lines += lines
            if code == ("false" if conjunction else "true"):
                return code if not parts else (" && " if conjunction else " || ").join([*parts, code])
            if code != ("true" if conjunction else "false"):
                parts.append(f"({code})" if isinstance(value, ast.BoolOp) or " ? " in code else code)
        return (" && " if conjunction else " || ").join(parts) or ("true" if conjunction else "false")

    def never_asked(self, node):
        """Whether an operand of `and` or `or` never ran, as those before it decided."""
        wrapped = ast.Name | ast.Attribute | ast.BinOp | ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Call | ast.Subscript | ast.IfExp
        return not self.blind and isinstance(node, wrapped) and node.uid not in self.substituted and self.unit.recorder.kind(node) is None

    def and_or(self, node):
        """`test and a or b`, with a module for a, as a choice; None for anything else."""
        first = node.values[0] if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or) and len(node.values) == 2 else None
        if not isinstance(first, ast.BoolOp) or not isinstance(first.op, ast.And) or not (isinstance(self.kind(first.values[-1]), Module) or self.kind(first.values[-1]) in kinds.NUMBERS):
            return None
        tests = first.values[:-1] if isinstance(self.kind(first.values[-1]), Module) else first.values
        test = tests[0] if len(tests) == 1 else ast.copy_location(ast.BoolOp(ast.And(), tests), node)
        chosen = ast.copy_location(ast.IfExp(test, first.values[-1], node.values[1]), node)
        test.uid, chosen.uid = getattr(test, "uid", -next(self.unit.counter)), node.uid
        return chosen

    def choice(self, node, conjunction):
        """`a or b` where a and b are no conditions."""
        if (chosen := self.and_or(node)) is not None:
            return self.code(chosen)
        if conjunction or len(node.values) != 2:
            raise Refusal(f"`{ast.unparse(node)[:60]}` is no condition; write an if", node)
        first, second = node.values
        kind = self.kind(first)
        if kind == kinds.NONE:
            return self.code(second)
        if self.kind(second) is None:
            return self.code(first) if not isinstance(kind, Optional) else f"*{self.primary(first)}"
        if isinstance(kind, Optional):
            return f"{self.primary(first)}.value_or({self.code(second)})"
        return f"({self.condition(first)} ? {self.code(first)} : {self.code(second)})"

    def code_Compare(self, node):
        parts = [node.left, *node.comparators]
        texts = [self.compare(*item, node) for item in zip(parts, node.ops, parts[1:], strict=False)]
        return texts[0] if len(texts) == 1 else " && ".join(f"({text})" for text in texts)

    def compare(self, left, sign, right, node):
        kind = self.kind(left)
        if isinstance(sign, ast.Is | ast.IsNot) and is_none(right):
            return self.compare_none(left, kind, isinstance(sign, ast.IsNot), node)
        if isinstance(sign, ast.Is | ast.IsNot) and isinstance(right, ast.Constant) and isinstance(right.value, bool) and kind == kinds.BOOL:
            return ("" if (isinstance(sign, ast.Is) == right.value) else "!") + self.primary(left)
        if isinstance(sign, ast.In | ast.NotIn) and kind == kinds.STR and self.kind(right) == kinds.STR:
            words = self.always_word(left), self.always_word(right)
            if None not in words and self.code(right).startswith('"'):
                return "true" if (words[0] in words[1]) == isinstance(sign, ast.In) else "false"
            return f"{self.primary(right)}.find({self.code(left)}) {'!=' if isinstance(sign, ast.In) else '=='} std::string::npos"
        if isinstance(sign, ast.In | ast.NotIn) and isinstance(right, ast.Tuple | ast.List | ast.Set) and kind in (kinds.INT, kinds.STR, kinds.DTYPE):
            equal = isinstance(sign, ast.In)
            texts = [f"{self.primary(left)} {'==' if equal else '!='} {self.code(item)}" for item in right.elts]
            return "(" + (" || " if equal else " && ").join(texts) + ")"
        if isinstance(sign, ast.In | ast.NotIn) and kind in (kinds.INT, kinds.STR, kinds.FLOAT) and (isinstance(self.kind(right), List | Size) or is_numbers(self.kind(right))):
            items = self.local_copy(right, "items")
            return f"std::count({items}.begin(), {items}.end(), {self.code(left)}) {'>' if isinstance(sign, ast.In) else '=='} 0"
        if isinstance(sign, ast.In | ast.NotIn) and isinstance(self.kind(right), Map | kinds.Set) and not isinstance(right, ast.Set):
            return f"{self.primary(right)}.count({self.code(left)}) {'>' if isinstance(sign, ast.In) else '=='} 0"
        keyed = isinstance(self.kind(right), Module) and self.kind(right).cls in (nn.ModuleDict, nn.ParameterDict)
        if isinstance(sign, ast.In | ast.NotIn) and keyed:
            return f"{'' if isinstance(sign, ast.In) else '!'}{self.primary(right)}->contains({self.code(left)})"
        if isinstance(sign, ast.In | ast.NotIn) and isinstance(right, ast.Name) and right.id in self.displays and isinstance(self.constant(left), str):
            there = self.constant(left) in dict(self.displays[right.id]) and (right.id, self.constant(left)) not in self.popped
            return "true" if there == isinstance(sign, ast.In) else "false"
        if self.blind and isinstance(left, ast.Call) and self.static(left.func) is type and isinstance(self.kind(left.args[0]), Tensor):
            same = ("ndarray" if self.kind(left.args[0]).numpy else "Tensor") == getattr(self.static(right), "__name__", "")
            return "true" if same == isinstance(sign, ast.Eq | ast.Is) else "false"
        if isinstance(sign, ast.Is | ast.IsNot) and isinstance(kind, Tensor) and isinstance(self.kind(right), Tensor):
            return f"{'' if isinstance(sign, ast.Is) else '!'}{self.primary(left)}.is_same({self.code(right)})"
        held = [Module(nn.Module) if self.is_reference(part) else self.kind(part) for part in (left, right)]
        if isinstance(sign, ast.Is | ast.IsNot) and all(isinstance(k, Module) for k in held) and not any(kinds.NONE in self.raw_kinds(part) for part in (left, right)):
            wide = "" if held[0] == held[1] else "static_cast<const torch::nn::Module*>"
            return f"{f'{wide}({self.address(left)})' if wide else self.address(left)} {'==' if isinstance(sign, ast.Is) else '!='} {self.address(right)}"
        if isinstance(sign, ast.Eq | ast.NotEq) and kind in (*kinds.NUMBERS, kinds.BOOL) and isinstance(self.constant(right), str):
            return "false" if isinstance(sign, ast.Eq) else "true"  # a flag that may be a word in Python
        if kinds.makers(kind) and isinstance(sign, ast.Eq | ast.Is | ast.NotEq | ast.IsNot):
            return f"{self.primary(left)} {'==' if isinstance(sign, ast.Eq | ast.Is) else '!='} {self.maker_word(right)}"
        if isinstance(sign, ast.Eq | ast.NotEq) and names.is_mixed(kind) and self.kind(right) in kind.kinds:
            return f"{self.primary(left)} {_COMPARISONS[type(sign)]} {names.variant(kind)}({self.code(right)})"
        if type(sign) not in _COMPARISONS or isinstance(kind, Class | Function | Config | Module) or kind in (kinds.CALLABLE, None):
            known = self.always(node)
            if known is None:
                raise Refusal(f"`{ast.unparse(node)[:60]}` compares {names.describe(kind)}", node)
            return "true" if known else "false"
        other = self.kind(right)
        if UNKNOWN not in (self.constant(left), self.constant(right)):
            holds = {ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge}
            return "true" if holds[type(sign)](self.constant(left), self.constant(right)) else "false"
        if isinstance(kind, Size | List | Tuple) and isinstance(other, Size | Tuple | List):
            return f"{self.as_vector(left)} {_COMPARISONS[type(sign)]} {self.as_vector(right)}"
        if kind == kinds.NONE or other == kinds.NONE:
            return "true" if isinstance(sign, ast.NotEq) else "false"
        texts = self.code(left), self.code(right)
        if all(text.startswith('"') for text in texts) and isinstance(sign, ast.Eq | ast.NotEq):  # C++ would compare addresses
            return "true" if (texts[0] == texts[1]) == isinstance(sign, ast.Eq) else "false"
        return f"{primary(texts[0])} {_COMPARISONS[type(sign)]} {primary(texts[1])}"

    def address(self, node):
        """A pointer to a module."""
        code = "this" if self.is_self(node) else self.code(node)
        if self.is_self(node) or code in self.pointers or code.endswith(">()"):
            return code
        return f"&{code}" if self.is_reference(node) else f"{primary(code)}.get()"

    def compare_none(self, left, kind, negated, node):
        owner = self.kind(left.value) if isinstance(left, ast.Attribute) else None
        if isinstance(owner, Config) and isinstance(self.unit.struct_fields(owner).get(left.attr), Optional):
            return f"{'' if negated else '!'}{self.primary(left.value)}.{identifier(left.attr)}.has_value()"
        if kind == kinds.NONE:
            return "false" if negated else "true"
        if self.is_self(left) and self.cls is not None:
            return "true" if negated else "false"
        if kind is None:
            raise Refusal(f"`{ast.unparse(left)[:60]}` never ran", node)
        if isinstance(kind, Tensor):
            return ("" if negated else "!") + f"{self.primary(left)}.defined()"
        if isinstance(kind, Module):
            pointer = "" if self.code(left).endswith(">()") or self.code(left) in self.pointers or "dynamic_pointer_cast" in self.code(left) or not is_own(kind.cls) and kind.cls is nn.Module else ".is_empty()"
            return ("!" if negated else "") + f"{self.primary(left)}{pointer}" if pointer else f"{self.primary(left)} {'!=' if negated else '=='} nullptr"
        if names.is_choice(kind):
            return ("" if negated else "!") + self.primary(left)
        if kinds.makers(kind):
            return ("!" if negated else "") + f"{self.primary(left)}.empty()"
        if isinstance(kind, Optional):
            return ("" if negated else "!") + f"{self.primary(left)}.has_value()"
        if kind == kinds.CALLABLE and kinds.NONE in self.raw_kinds(left):
            return f"{self.primary(left)} {'!=' if negated else '=='} nullptr"
        return "true" if negated else "false"

    def code_IfExp(self, node):
        test = self.condition(node.test)
        if test in ("true", "false"):
            left = node.orelse if test == "true" else node.body
            if self.kind(left) is None and not self.blind:
                self.unit.never(self.path, left.lineno)
            return self.code(node.body if test == "true" else node.orelse)
        body, other = self.kind(node.body), self.kind(node.orelse)
        if body is None or other is None:
            known = {bool(value) for value in self.values(node.test)} or {body is not None}
            ran, line = (node.body, node.orelse.lineno) if True in known else (node.orelse, node.body.lineno)
            self.unit.never(self.path, line)
            self.out(f"TORCH_CHECK({primary(test) if ran is node.body else '!' + primary(test)}, {self.never_text(line)});")
            return self.code(ran)
        kind = self.kind(node)
        for part, left, sign in ((node.body, other, "!"), (node.orelse, body, "")):
            if isinstance(left, Tensor) and self.kind(part) == kinds.CALLABLE and isinstance(kind, Tensor):  # a function in place of its result
                self.out(f"TORCH_CHECK({sign}{primary(test)}, {self.never_text(part.lineno)});")
                return self.code(node.orelse if part is node.body else node.body)
        first, texts, blocks = len(self.lines), [], []
        for part, held in ((node.body, body), (node.orelse, other)):
            text = self.typed_branch(part, kind)
            number = isinstance(body, Tensor) != isinstance(other, Tensor) and held in kinds.NUMBERS  # beside a tensor
            texts.append(f"torch::scalar_tensor({text})" if number else text)
            blocks.append(self.taken_back(first))
        if any(blocks) and kind is not None and not isinstance(kind, Many | Function | Class | Config):
            name = self.fresh("chosen")  # what a branch needs is computed in it alone
            self.out(f"{cpp_type(kind, node)} {name}{self.initial(kind)};")
            for head, text, lines in ((f"if ({test}) {{", texts[0], blocks[0]), ("} else {", texts[1], blocks[1])):
                self.out(head)
                self.lines += [(depth + 1, line) for depth, line in lines]
                self.depth += 1
                self.out(f"{name} = {text};")
                self.depth -= 1
            self.out("}")
            return name
        self.lines += [line for lines in blocks for line in lines]
        return f"({test} ? {texts[0]} : {texts[1]})"

    def typed_branch(self, node, kind):
        if isinstance(kind, List) and names.is_any_module(kind.item) and isinstance(node, ast.List) and not any(isinstance(e, ast.Starred) for e in node.elts):
            return f"{cpp_type(kind, node)}{{{', '.join(self.typed_branch(item, kind.item) for item in node.elts)}}}"
        code = self.code(node)
        if is_none(node) or self.kind(node) == kinds.NONE:
            return names.nothing(kind, node)
        if isinstance(self.kind(node), Optional) and not isinstance(kind, Optional):
            return f"*{primary(code)}"
        if isinstance(kind, Optional):
            return f"{cpp_type(kind, node)}({code})"
        if kind == kinds.STR or code.startswith("{"):
            return f"{cpp_type(kind, node)}{code if code.startswith('{') else '(' + code + ')'}"
        if kind == kinds.FLOAT and self.kind(node) == kinds.INT:
            return self.number(node)
        if isinstance(kind, Many) and isinstance(self.kind(node), Module):
            return f"torch::nn::AnyModule({self.as_layer(code) if self.kind(node) == Module(nn.Sequential) else code})"
        return code

    # Indexing.

    def index(self, part):
        """What stands in brackets, as torch::indexing writes it."""
        texts = []
        if isinstance(part, ast.Tuple) and any(map(self.varies, part.elts)):
            return self.index_of_any_length(part.elts)
        if kinds.is_tensors(self.kind(part)) and isinstance(self.unit.recorder.kind(part, self.owners), Tuple) and not isinstance(part, ast.Tuple):
            part = ast.copy_location(ast.Tuple([ast.copy_location(ast.Starred(part, ast.Load()), part)], ast.Load()), part)  # an index of several tensors
        for item in self.starless(part.elts) if isinstance(part, ast.Tuple) else [part]:
            called = isinstance(item, ast.Call) and self.static(item.func) is slice
            if isinstance(item, ast.Slice) or called:
                parts = [None, *item.args][-max(len(item.args), 2) :] if called else (item.lower, item.upper, item.step)
                bounds = ["None" if bound is None or is_none(bound) else self.bound(bound) for bound in parts]
                while bounds and bounds[-1] == "None":
                    bounds.pop()
                texts.append(f"Slice({', '.join(bounds)})")
            elif isinstance(item, ast.Constant) and item.value in (None, ...):
                texts.append("None" if item.value is None else "Ellipsis")
            elif isinstance(self.kind(item), List | Tuple) or self.kind(item) == kinds.RANGE:
                texts.append(f"torch::tensor({self.as_vector(item)})")
            elif self.kind(item) == kinds.NONE:
                texts.append("None")
            else:
                texts.append(self.code(item))
        return "{" + ", ".join(texts) + "}"

    def varies(self, item):
        """Whether an item of an index is `*(part,) * n` where n varies."""
        value = item.value if isinstance(item, ast.Starred) else None
        if not (isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult) and isinstance(value.left, ast.Tuple | ast.List)) or isinstance(self.constant(value.right), int):
            return False
        sized = isinstance(value.right, ast.Call) and value.right.args and self.static(value.right.func) is len and isinstance(kind := self.kind(value.right.args[0]), Size)
        return kind.length is None if sized else len(set(self.values(value.right))) != 1

    def index_of_any_length(self, items):
        """An index with stars of lengths that vary, as a list."""
        self.unit.helper("joined")
        text, of = "", "std::vector<torch::indexing::TensorIndex>"
        for varies, row in itertools.groupby(items, self.varies):
            row = list(row)
            parts = [f"{of}{self.index(ast.Tuple(row, ast.Load()))}"] if not varies else [
                f"{of}(std::max<int64_t>({self.code(item.value.right)}, 0), {self.index(item.value.left.elts[0])[1:-1]})" for item in row]
            if varies and any(len(item.value.left.elts) != 1 for item in row):
                raise Refusal(f"`{ast.unparse(row[0])[:60]}` repeats several parts; write them out", row[0])
            for part in parts:
                text = f"joined({text}, {part})" if text else part
        return text

    def bound(self, node):
        """The end of a slice or a range, which may be a tensor of one number."""
        return f"{self.primary(node)}.item<int64_t>()" if isinstance(self.kind(node), Tensor) else self.code(node)

    def code_Subscript(self, node):
        value, index = node.value, node.slice
        if self.is_named_entry(node):
            return self.named_entry(value.value, index, node)
        if isinstance(value, ast.Dict):
            return self.code(self.chosen([(self.constant(key), item) for key, item in zip(value.keys, value.values, strict=True) if key is not None], index, node))
        if isinstance(value, ast.Call) and getattr(value.func, "attr", "") == "state_dict" and isinstance(self.kind(value.func.value), Module) and str(self.constant(index)).isidentifier():
            entry = ast.copy_location(ast.Attribute(value.func.value, self.constant(index), ast.Load()), node)
            entry.uid = -next(self.unit.counter)
            return f"{self.primary(entry)}.detach()"
        if isinstance(value, ast.Name) and value.id in self.displays and not isinstance(self.constant(index), str):
            return self.code(self.chosen(self.displays[value.id], index, node))
        if self.is_rest(value) and (keys := self.rest_keys([node])):
            return f"std::get<{self.rest_place(keys[0], node)}>({identifier(value.id)})"
        kind = self.kind(value)
        if isinstance(kind, Map):
            return f"{self.primary(value)}.at({self.code(index)})"
        if isinstance(kind, Size):
            if not isinstance(index, ast.Slice) and self.kind(index) != kinds.SLICE:
                constant = self.constant(index)
                if isinstance(value, ast.Attribute) and value.attr == "shape":
                    return f"{self.primary(value.value)}.size({self.code(index)})"
                return self.size_at(value, constant) if isinstance(constant, int) else self.element(self.primary(value), index)
            return self.slice_of(value, index)
        if isinstance(kind, Tensor):
            if isinstance(index, ast.BinOp) and ast.unparse(index).startswith("(...,) + (None,) * "):
                self.unit.helper("trailing_ones")
                return f"trailing_ones({self.code(value)}, {self.code(index.right.right)})"
            parts = index.elts if isinstance(index, ast.Tuple) else [index]
            back = [n for n, part in enumerate(parts) if ast.unparse(part) == "::-1"]  # of numpy
            if back and all(isinstance(part, ast.Slice) for part in parts):
                rest = [":" if n in back else ast.unparse(part) for n, part in enumerate(parts)]
                if set(rest) != {":"}:
                    raise Refusal(f"`{ast.unparse(node)[:60]}`: turn the axes in a statement of their own", node)
                return f"{self.primary(value)}.flip({{{', '.join(map(str, back))}}})"
            if isinstance(index, ast.Slice | ast.Tuple) or self.kind(index) != kinds.INT:
                return f"{self.primary(value)}.index({self.index(index)})"
            return f"{self.primary(value)}[{self.code(index)}]"
        if isinstance(kind, Tuple) and not self.is_vector(value):
            if isinstance(index, ast.Slice):
                bounds = [None if part is None else self.constant(part) for part in (index.lower, index.upper, index.step)]
                name = self.local_copy(value)
                return f"std::make_tuple({', '.join(f'std::get<{at}>({name})' for at in range(len(kind.items))[slice(*bounds)])})"
            at = self.constant(index)
            if not isinstance(at, int) and len(set(kind.items)) == 1 and self.kind(index) == kinds.INT:
                items = self.fresh("items")
                self.unit.includes_std.add("tuple")
                self.out(f"const auto {items} = std::apply([](const auto&... item) {{ return {cpp_type(List(kind.items[0]), node)}{{item...}}; }}, {self.code(value)});")
                return self.element(items, index)
            if not isinstance(at, int):
                raise Refusal(f"`{ast.unparse(node)[:60]}`: the index of a tuple must be a constant", node)
            return f"std::get<{at % len(kind.items)}>({self.code(value)})"
        if isinstance(kind, List | Tuple):
            if isinstance(index, ast.Slice) or self.kind(index) == kinds.SLICE:
                return self.slice_of(value, index)
            at = self.constant(index)
            base = self.primary(value) if not self.code(value).startswith("{") else f"{cpp_type(kind, node)}{self.code(value)}"
            if base.startswith("std::vector<int64_t>(") and base.endswith("->end())") and isinstance(at, int):
                return f"{base.removeprefix('std::vector<int64_t>(').partition('->begin()')[0]}->at({at % len(kind.items)})"  # sizes of a layer
            held = self.locals.get(getattr(value, "id", None))
            held = getattr(held.kind if isinstance(held, Optional) else held, "item", None)
            there = isinstance(held, Optional) and isinstance(self.kind(node), List | Tuple)
            return self.element(base, index) + (".value()" if there else "")
        if isinstance(value, ast.Name) and value.id in self.displays and isinstance(self.constant(index), str):
            return self.code(dict(self.displays[value.id])[self.constant(index)])
        made = self.modules(node) if isinstance(kind, Config) and isinstance(self.static(value), dict) else []
        if made and type(made[0]).__module__ == "torch.nn.modules.activation" and not list(made[0].parameters()):
            self.word(index)  # the C++ checks it
            keywords = {name: Operand(self.literal(held), kind_of(held), held) for name, held in vars(made[0]).items() if name in made[0].__constants__}
            return self.at(node, modules.construct, type(made[0]), [], {k: v for k, v in keywords.items() if k != "inplace"})
        at = self.constant(index) if isinstance(kind, Config) and hasattr(kind.value, "_fields") else None
        if isinstance(kind, Config) and isinstance(word := kind.value._fields[at] if isinstance(at, int) else self.word(index), str):
            self.unit.struct(kind)
            return "{}" if self.kind(node) == kinds.NONE else self.field(node, kind, word, self.primary(value))
        if isinstance(kind, Module) and kind.cls in (nn.ParameterList, nn.ParameterDict):
            text = self.code(index)
            if isinstance(self.constant(index), int) and self.constant(index) < 0:
                text = f"{self.code(value)}->size() - {-self.constant(index)}"
            return f"(*{self.code(value)})[{text}]"
        if isinstance(index, ast.Slice) and isinstance(kind, Module) and kind.cls is nn.Sequential and index.step is None:
            self.unit.helper("some_layers")
            ends = (self.code(index.lower) if index.lower else "0", self.code(index.upper) if index.upper else f"{self.code(value)}->size()")
            return f"some_layers(*{self.primary(value)}, {', '.join(ends)})"
        if isinstance(kind, Module) and list_of(kind).cls in (*_CONTAINERS, nn.ModuleDict):
            text = self.code(index)
            if self.constant(index) is not UNKNOWN and isinstance(self.constant(index), int) and self.constant(index) < 0:
                text = f"{self.code(value)}->size() - {-self.constant(index)}"
            return self.child(value, f"[{text}]", self.kind(node), node)
        if isinstance(kind, Config) and self.kind(index) == kinds.STR:
            return self.entry_by_word(value, kind, index, node)
        if kind == kinds.STR:
            if isinstance(index, ast.Slice):
                return self.slice_of(value, index)
            self.unit.helper("item_at")
            return f"std::string(1, item_at({self.as_vector(value)}, {self.code(index)}))"
        raise Refusal(f"`{ast.unparse(node)[:60]}`: {names.describe(kind)} cannot be indexed here", node)

    def field(self, node, kind, name, owner):
        """A field of a struct, which is there where `node` reads it."""
        optional = isinstance(self.unit.struct_fields(kind).get(name), Optional) and not isinstance(self.kind(node), Optional)
        return f"{owner}.{identifier(name)}{'.value()' if optional else ''}"

    def entry_by_word(self, value, kind, index, node):
        """The field of a struct that a word names, which C++ reads as it runs."""
        self.unit.struct(kind)
        fields = self.unit.struct_fields(kind)
        if len({cpp_type(held, node) for held in fields.values()}) != 1:
            raise Refusal(f"`{ast.unparse(node)[:60]}`: entries of several kinds; write an if", node)
        word, owner = self.local_copy(index, "word"), self.local_copy(value, "entries")
        tests = self.check_entry(word, fields, ast.unparse(value))
        *texts, last = [f"{owner}.{identifier(name)}" for name in fields]
        chosen = "".join(f"{test} ? {text} : " for test, text in zip(tests, texts, strict=False))
        return f"({chosen}{last})" if texts else last

    def check_entry(self, word, entries, owner=None):
        """Writes that a word must be an entry; returns the test of each."""
        tests = [f"{word} == {self.literal(name)}" for name in entries]
        what = f" is no entry of {owner}" if owner else f" is none of {', '.join(entries)}"
        self.out(f"TORCH_CHECK({' || '.join(tests)}, {word}, {self.literal(what)});")
        return tests

    def by_word(self, node):
        """`{"a": A(), "b": B()}[word]`, of layers that draw nothing, as a choice; None for anything else."""
        if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Dict) or self.kind(node.slice) != kinds.STR or len(set(self.values(node.slice))) < 2:
            return None
        pairs = list(zip(node.value.keys, node.value.values, strict=True))
        if len(pairs) < 2 or any(not isinstance(self.constant(key), str) or not isinstance(self.kind(item), Module) or self.draws(item) for key, item in pairs):
            return None
        word = self.code(node.slice)
        words = [self.constant(key) for key, _ in pairs]
        self.check_entry(word, words)
        chosen = pairs[-1][1]
        for key, item in reversed(pairs[:-1]):
            test = ast.copy_location(ast.Compare(node.slice, [ast.Eq()], [key]), node)
            chosen = ast.copy_location(ast.IfExp(test, item, chosen), node)
            test.uid, chosen.uid = -next(self.unit.counter), -next(self.unit.counter)
        return chosen

    def chosen(self, pairs, index, node):
        """The entry of a dict display that a word chooses."""
        word, entries = self.operand(index).constant, dict(pairs)
        if word is UNKNOWN or word not in entries or any(self.draws(item) for key, item in entries.items() if key != word):
            raise Refusal(f"`{ast.unparse(node)[:60]}`: which entry it is is not clear; write an if", node)
        return entries[word]

    def slice_of(self, value, index):
        """A slice of a list or size."""
        kind = self.kind(value)
        if not isinstance(kind, Size | List | Tuple) and kind != kinds.STR:
            raise Refusal(f"a slice of {names.describe(kind)}", index)
        if not isinstance(index, ast.Slice):
            self.unit.helper("part_of")
            self.unit.helper("part_by")
            return f"part_by({self.as_vector(value)}, {self.code(index)})"
        step = self.constant(index.step) if index.step is not None else 1
        if step == -1 and index.lower is None and index.upper is None:
            self.unit.helper("reversed_list")
            return f"reversed_list({self.as_vector(value)})"
        if isinstance(step, int) and step < 0:
            self.unit.helper("part_back")
            ends = [self.code(end) if end is not None else "std::nullopt" for end in (index.lower, index.upper)]
            return f"part_back({self.as_vector(value)}, {', '.join(ends)}, {step})"
        if not isinstance(step, int) or step == 0:
            raise Refusal("a slice of a list whose step is no constant has no translation", index)
        self.unit.helper("part_of")
        low = self.code(index.lower) if index.lower is not None else "0"
        high = ", " + self.code(index.upper) if index.upper is not None and not is_none(index.upper) else ""
        if index.step is not None:
            high = (high or ", std::numeric_limits<int64_t>::max()") + ", " + self.code(index.step)
        return f"part_of({self.as_vector(value)}, {low}{high})"

    def is_vector(self, node):
        """Whether a Python tuple is a std::vector in C++."""
        kind = self.kind(node)
        held = self.locals.get(node.id) if isinstance(node, ast.Name) else None
        if isinstance(node, ast.Attribute) and isinstance(owner := self.kind(node.value), Config):
            held = self.unit.field_kinds.get((owner.name, node.attr))
        if isinstance(node, ast.Attribute) and self.is_self(node.value) and self.cls is not None:
            held = self.cls.members.get(node.attr)
        if isinstance(held.kind if isinstance(held, Optional) else held, List):
            return True
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and isinstance(self.kind(node.value), Tuple):
            return self.is_vector(node.value)
        if isinstance(kind, List) or is_numbers(kind) or isinstance(kind, Size) or isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            return True
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and kinds.is_tensors(kind):
            return self.is_vector(node.left) or self.is_vector(node.right)
        if isinstance(node, ast.IfExp):
            return any(self.is_vector(part) for part in (node.body, node.orelse) if self.kind(part) is not None)
        if isinstance(node, ast.Call):
            function = self.static(node.func)
            name = getattr(function, "__name__", "") if function is not None else getattr(node.func, "attr", "")
            if function in (map, tuple, list, zip) or name in ("rearrange_many", "repeat_many"):
                return True
            if isinstance(kind, Tuple) and kinds.is_tensors(kind):
                own = inspect.isfunction(function) and self.unit.loaded.definition(function) is not None
                is_method = function is None and isinstance(node.func, ast.Attribute) and not isinstance(self.kind(node.func.value), Module)
                return (is_method or not own and function is not None) and schema.returns_vector(name)
        return isinstance(node, ast.ListComp | ast.GeneratorExp)

    def vector_kind(self, value):
        """The kind of a tuple of equal kinds that C++ holds as a vector; None for anything else."""
        kind = self.kind(value)
        alike = isinstance(kind, Tuple) and len(set(kind.items)) == 1 and not is_numbers(kind) and not kinds.is_tensors(kind)
        return List(kind.items[0], len(kind.items)) if alike and self.is_vector(value) else None

    # Comprehensions and lambdas.

    def code_ListComp(self, node):
        kind = self.kind(node)
        generator = node.generators[0]
        item = kind.item if isinstance(kind, List) else None
        if len(node.generators) == 1 and self.simple_unroll(generator):
            texts = [self.code_with(generator.target, part, node.elt) for part in generator.iter.elts]
            return f"std::vector<{cpp_type(item or self.kind(node.elt), node)}>{{{', '.join(texts)}}}"
        type_text = f"std::vector<{cpp_type(item if item is not None else self.kind(node.elt), node)}>"
        return self.gathered(node, type_text, lambda name: f"{name}.push_back({self.code(node.elt)})")

    def gathered(self, node, type_text, put):
        """The name of what a comprehension gathers; `put` is the text that adds an item to it."""
        name = self.fresh("items")
        self.out(f"{type_text} {name};")

        def body(at):
            tests = [self.condition(test) for test in node.generators[at].ifs]
            if tests:
                self.out(f"if (!({' && '.join(tests)})) continue;")
            if at + 1 < len(node.generators):
                self.loop(node.generators[at + 1].iter, node.generators[at + 1].target, lambda: body(at + 1), node)
            else:
                self.out(put(name) + ";")

        self.loop(node.generators[0].iter, node.generators[0].target, lambda: body(0), node)
        return name

    code_GeneratorExp = code_ListComp

    def code_DictComp(self, node):
        if not isinstance(self.kind(node), Map):
            raise Refusal(f"`{ast.unparse(node)[:60]}` never ran, so its type is not known", node)
        put = lambda name: f"{name}[{self.code(node.key)}] = {self.code(node.value)}"
        return self.gathered(node, cpp_type(self.kind(node), node), put)

    def code_SetComp(self, node):
        return self.gathered(node, cpp_type(self.kind(node), node), lambda name: f"{name}.insert({self.code(node.elt)})")

    def simple_unroll(self, generator):
        return isinstance(generator.iter, ast.Tuple | ast.List) and isinstance(generator.target, ast.Name) and not generator.ifs

    def code_with(self, target, value, node):
        """An expression with a name bound to another expression."""
        saved = dict(self.inline)
        self.inline[target.id] = (self.primary(value), self.kind(value), self.constant(value))
        try:
            return self.code(node)
        finally:
            self.inline = saved

    def code_Lambda(self, node):
        arguments = [argument.arg for argument in node.args.args]
        if self.unit.recorder.kind(node.body, self.owners) is None and not self.blind and isinstance(node.body, ast.Call) and node.body.uid > 0:
            self.unit.never(self.path, node.lineno)
            given = ", ".join(["const torch::Tensor&"] * len(arguments))
            return f"[]({given}) -> torch::Tensor {{ C10_THROW_ERROR(Error, {self.never_text(node.lineno)}); }}"
        kept = self.kept_by(node) if not self.blind and (node.uid < 0 or self.escapes(node)) else None
        saved, blind, inline, owners = dict(self.locals), set(self.local_names), dict(self.inline), self.owners
        if kept is not None:
            self.inline.update({name: (self.primary(value), self.kind(value), UNKNOWN) for name, value in kept.items()})
            arguments, self.owners = arguments[: len(arguments) - len(kept)], None  # it runs in another module
        for name in arguments:
            self.locals[name] = Tensor()
            self.local_names.add(name)
            self.inline.pop(name, None)
        first = len(self.lines)
        try:
            code = self.code(node.body)
        finally:
            self.locals, self.local_names, self.inline, self.owners = saved, blind, inline, owners
        before = "".join(f"{text} " for _, text in self.taken_back(first))
        mine = [names.member(n.attr, self.unit.class_names) for n in ast.walk(node.body) if isinstance(n, ast.Attribute) and self.is_self(n.value)]
        this = any(re.search(rf"\b{name}\b", before + code) for name in (*mine, "is_training", "this"))
        captures = "&" if kept is None else "=, this" if this else "="
        self.unit.captures |= kept is not None and (this or any(not isinstance(self.kind(n), kinds.Simple) for n in self.free_names(node)))
        return f"[{captures}]({', '.join(f'const torch::Tensor& {identifier(name)}' for name in arguments)}) {{ {before}return {code}; }}"

    def escapes(self, node):
        """Whether a lambda, or a name of it, is more than called, or handed to a function, in this one."""
        parents = {id(child): part for part in ast.walk(self.function) for child in ast.iter_child_nodes(part)}
        parent = parents.get(id(node))
        while isinstance(parent, ast.IfExp | ast.keyword):
            node, parent = parent, parents.get(id(parent))
        if isinstance(parent, ast.Call):
            target = self.static(parent.func)
            return parent.func is not node and getattr(parent.func, "attr", "") != "apply" and (target is None or inspect.isclass(target) and target not in (map, filter))
        if isinstance(parent, ast.Assign) and all(isinstance(target, ast.Name) for target in parent.targets):
            found = {target.id for target in parent.targets}
            return any(self.escapes(n) for n in ast.walk(self.function) if isinstance(n, ast.Name) and n.id in found and isinstance(n.ctx, ast.Load))
        return isinstance(parent, ast.Assign | ast.Return | ast.List | ast.Tuple | ast.Dict | ast.ListComp)

    def free_names(self, node):
        """The locals that a lambda or a nested function reads, as nodes."""
        own = {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
        body = node.body if isinstance(node.body, list) else [node.body]
        return [n for part in body for n in ast.walk(part) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.id not in own and n.id in self.locals]

    def times_stored(self):
        """How many times the function stores each name; a loop does so more than once."""
        loops = [n.target for n in ast.walk(self.function) if isinstance(n, ast.For | ast.comprehension)]
        stored = collections.Counter(n.id for n in ast.walk(self.function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
        stored.update(a.arg for a in ast.walk(self.function.args) if isinstance(a, ast.arg))
        stored.update(n.id for target in loops for n in ast.walk(target) if isinstance(n, ast.Name))
        return stored

    def changing(self, node):
        """The names of locals that a lambda or a nested function reads, and that get another value or are changed."""
        stored = self.times_stored()
        return sorted({n.id for n in self.free_names(node) if stored[n.id] > 1 or self.is_reference(n) or self.changes(n.id)})

    def kept_by(self, node):
        """The defaults of a lambda's arguments, by name. C++ keeps the values of what it reads, so that these must stay as they are."""
        again = self.changing(node)
        kind = self.unit.recorder.kind(node.body) if node.body.uid > 0 else self.kind(node.body)
        wanted = len(node.args.args) - len(node.args.defaults)
        if again or wanted != 1 or not isinstance(kind, Tensor):
            why = f"reads {', '.join(again)}, which changes" if again else f"is of {wanted} arguments" if wanted != 1 else f"returns {names.describe(kind)}"
            raise Refusal(f"`{ast.unparse(node)[:60]}` {why}; C++ keeps functions of one tensor that return one, and reads nothing that changes: make it a module", node)
        return dict(zip([a.arg for a in node.args.args[wanted:]], node.args.defaults, strict=True))

    def kept_function(self, node):
        """The text of a function that a member keeps: of a lambda, a functools.partial(...), a name, a layer or a choice."""
        if isinstance(node, ast.IfExp):
            body, other = (f"{cpp_type(kinds.CALLABLE)}({self.kept_function(part)})" for part in (node.body, node.orelse))
            return f"{self.condition(node.test)} ? {body} : {other}"
        if isinstance(node, ast.Call) and self.static(node.func) is functools.partial:
            x = ast.copy_location(ast.Name(self.fresh("x"), ast.Load()), node)
            body = recalled(node, node.args[0], [*node.args[1:], x], node.keywords)
            made = ast.copy_location(ast.Lambda(ast.arguments([], [ast.arg(x.id)], None, [], [], None, []), body), node)
            x.uid, body.uid, made.uid = (-next(self.unit.counter) for _ in range(3))
            return self.code_Lambda(made)
        kind = self.kind(node)
        return self.argument(node, kinds.CALLABLE)

    def taken_back(self, first):
        """The lines from number `first` on, which then belong elsewhere."""
        lines = self.lines[first:]
        del self.lines[first:]
        self.declarations = {at: name for at, name in self.declarations.items() if at < first}
        return lines

    # Calls.

    def code_Call(self, node):
        function = node.func
        method = super_call(node)
        if method is not None:
            return self.super_method(method, node)
        if isinstance(function, ast.Name) and function.id in self.partials:
            return self.code_Call(self.call_of_partial(self.partials[function.id], node))
        target = self.static(function)
        if target is not None:
            return self.call_static(target, node)
        if (choice := self.made_by_word(node)) is not None:
            return self.code(choice)
        if self.kind(function) == kinds.DTYPE:
            return self.legacy_tensor(node, self.code(function))
        if isinstance(function, ast.Call) and getattr(self.static(function.func), "__name__", "") == "_ntuple" and isinstance(self.kind(node), Tuple):
            return self.pair_of(len(self.kind(node).items), node)
        kind = self.kind(function)
        held = self.cls.members.get(function.attr) if self.cls and isinstance(function, ast.Attribute) and self.is_self(function.value) else None
        if any(map(names.is_any_module, (kind, held))):
            given = ", ".join(self.code(a) for a in [*self.starless(node.args), *self.placed_keywords(node, (kind, held))])
            if any(p.name == getattr(function, "id", None) and p.template for p in self.signature().parameters):
                return f"{self.code(function)}->forward({given})"
            several = next(k for k in (kind, held) if isinstance(k, Many))
            if names.holds_container(several) or getattr(function, "id", None) in self.any_calls or self.is_named_entry(function):
                self.unit.helper("call_any")
                return f"call_any<{', '.join(names.implementation(k) for k in several.kinds)}>({self.code(function)}, {given})"
            return f"{self.primary(function)}.forward({given})"
        if isinstance(function, ast.Attribute):
            if self.is_self(function.value) and self.cls is not None and not isinstance(kind, Module):
                if function.attr in self.cls.lambdas:
                    return self.written_out(*self.cls.lambdas[function.attr], node)
                if self.unit.bound_method(self.cls, function.attr):
                    return self.own_method(self.unit.bound_method(self.cls, function.attr), node)
                if inspect.getattr_static(self.cls.cls, function.attr, None) is not None or self.unit.overriding(self.cls.cls, function.attr):
                    return self.own_method(function.attr, node)
            owner = self.kind(function.value)
            if isinstance(owner, Tensor):
                return self.tensor_method(node)
            if owner == kinds.GENERATOR and function.attr == "manual_seed":
                seed = f"static_cast<uint64_t>({self.code(node.args[0])})"
                new = isinstance(function.value, ast.Call)
                return f"at::detail::createCPUGenerator({seed})" if new else f"{self.primary(function.value)}.set_current_seed({seed})"
            owner = Module(nn.Module) if self.is_reference(function.value) else owner
            if kind == kinds.CALLABLE and self.is_self(function.value):
                self.cls.use(function.attr, self.unit.attribute_kind(self.cls, function.attr))
                if len(node.args) != 1 or node.keywords or not isinstance(self.kind(node.args[0]), Tensor) or not isinstance(self.kind(node), Tensor):
                    raise Refusal(f"`{ast.unparse(node)[:60]}`: self.{function.attr} is a function of something else than one tensor; make it a module", node)
                return f"{self.member(function.attr)}({self.code(node.args[0])})"
            if isinstance(owner, Module) and not isinstance(kind, Module):
                return self.module_method(node, owner)
            if isinstance(owner, List | Size | Map | kinds.Set) or is_numbers(owner) and function.attr in ("index", "count") or (isinstance(owner, Config) and function.attr in ("get", "items", "keys", "values", *["copy"] * isinstance(owner.value, dict))) or owner in (kinds.STR, *kinds.NUMBERS) or (
                isinstance(function.value, ast.Name) and function.value.id in self.displays):
                return self.container_method(node, owner)
            if isinstance(owner, Config) and isinstance(inspect.getattr_static(type(owner.value), function.attr, None), staticmethod):
                return self.call_static(getattr(owner.value, function.attr), node)
            if isinstance(owner, Config) and inspect.isfunction(getattr(type(owner.value), function.attr, None)):
                return self.plain_method(getattr(type(owner.value), function.attr), [function.value, *node.args], node)
        if isinstance(kind, Module):
            return self.call_module(kind, self.code(function), node)
        if isinstance(kind, Function | Class) and isinstance(function, ast.Call) and getattr(function.func, "id", "") == "getattr":
            self.operand(function.args[1])  # emits what the name has to be
        if isinstance(kind, Function):
            return self.call_static(kind.function, node)
        if isinstance(kind, Class):
            return self.call_static(kind.cls, node)
        if kind == kinds.CALLABLE and isinstance(function, ast.Name) and function.id in {p.name for p in self.signature().parameters} and (
            not isinstance(self.kind(node), Tensor) or any(not isinstance(self.kind(a), Tensor) for a in node.args) or len(node.args) != 1):
            raise Refusal(f"{function.id} is a function that is handed over, of something else than one tensor; hand over a class, or what the function returns", node)
        if kind == kinds.CALLABLE:
            signature = self.nested_signatures.get(getattr(function, "id", None))
            if signature is None and node.keywords:
                raise Refusal(f"`{ast.unparse(node)[:60]}` calls a lambda by keywords; give it arguments in order", node)
            return f"{self.primary(function)}({', '.join(self.bind_nested(signature, node) if signature else map(self.code, node.args))})"
        raise Refusal(f"the call `{ast.unparse(node)[:60]}` has no translation", node)

    def placed_keywords(self, node, several):
        """The keywords of a call of modules of several classes, which stand in their places for each of them."""
        empty = lambda name, value: name is None and self.unit.recorder.no_keywords(self.function, value.id) or name is not None and self.kind(value) == kinds.NONE
        keywords = [(name, value) for name, value in self.spread_keywords(node) if not empty(name, value)]
        taken = [list(inspect.signature(k.cls.forward).parameters)[1:] for k in next(k for k in several if names.is_any_module(k)).kinds]
        first, words = len(self.starless(node.args)), [name for name, _ in keywords]
        if any(words != names_[first : first + len(words)] for names_ in taken):
            raise Refusal(f"`{ast.unparse(node)[:60]}` calls modules of several classes by keywords, which not all have in that place", node)
        return [value for _, value in keywords]

    def written_out(self, function, kept, node):
        """The call of a lambda that is a member."""
        saved = dict(self.inline)
        bound = {a.arg: (self.local_copy(value, "given"), self.kind(value), self.constant(value)) for a, value in zip(function.args.args, node.args, strict=True)}
        self.inline.update({**{name: (self.code(held), self.kind(held), UNKNOWN) for name, held in kept.items()}, **bound})
        try:
            return self.code(function.body)
        finally:
            self.inline = saved

    def plain_method(self, function, arguments, node):
        """A method or property of an object that is no module: a function whose first argument is the object."""
        call = ast.copy_location(ast.Call(node, arguments, list(getattr(node, "keywords", ()))), node)
        if self.unit.loaded.definition(function) is None:
            raise Refusal(f"the source of {function.__qualname__} is not at hand", node)
        return f"{self.unit.function(function, node)}({', '.join(self.bind(function, call))})"

    def super_method(self, method, node):
        base = self.cls.base
        if base is nn.Module and method == "train":
            return f"torch::nn::Module::train({', '.join(self.code(a) for a in node.args)})"
        if base is nn.Module:
            raise Refusal(f"super().{method} of {self.cls.cls.__name__} means the other base of a derived class, which C++ does not know; call that base's layer", node)
        owner = f"{names.class_name(base)}Impl" if is_own(base) else f"{modules.holder(base)}Impl"
        if is_own(base):
            self.unit.need_method(base, method)
            arguments = self.bind(getattr(base, method), node)
        else:
            arguments = [self.code(argument) for argument in node.args]
        return f"{owner}::{names.member(method) if method != 'forward' else method}({', '.join(arguments)})"

    def own_method(self, name, node):
        cls = self.cls.cls
        if name in ("parameters", "modules", "named_parameters", "children", "buffers", "named_modules") and not self.unit.overrides(cls, name):
            return f"{name}()"
        if name == "apply" and not self.unit.overrides(cls, name):
            return self.apply(node)
        if name in ("to", "double", "float", "half", "bfloat16", "eval", "train", "requires_grad_") and not self.unit.overrides(cls, name):
            return self.changed_module("this", name, node)
        owner = next((base for base in cls.__mro__ if name in vars(base)), None)
        if owner in _CONTAINERS:
            return self.module_method(node, Module(owner))
        derived = self.unit.overriding(cls, name)
        if owner is None and derived:
            owner = cls  # only derived classes define it
        if owner is None or not is_own(owner):
            raise Refusal(f"self.{name}(...) of {owner.__name__ if owner else cls.__name__} has no translation", node)
        if derived and (self.constructor or name == "forward"):
            raise Refusal(f"the constructor of {cls.__name__} calls {name}, which {derived[0].__name__} overrides; in C++ it would not reach it: "
                          f"call it in {derived[0].__name__}'s constructor", node)
        self.unit.need_method(owner, name)
        function = getattr(cls, name, None)
        definition = self.unit.loaded.definition(function)
        if derived and not (definition and self.unit.recorder.called(definition[1])):
            function = getattr(derived[0], name)
        return self.first_of(function, f"{self.member(name)}({', '.join(self.bind(function, node))})", node)

    def first_of(self, function, call, node):
        """A call that is a tensor here, of a function that returns a tuple elsewhere."""
        definition = self.unit.loaded.definition(function) if isinstance(self.kind(node), Tensor) else None
        result = self.unit.recorder.returns(definition[1]) if definition else None
        whole = kinds.with_more(result)
        return call if result == whole else f"{call}.{identifier(whole.value._fields[0])}" if isinstance(whole, Config) else f"std::get<0>({call})"

    def apply(self, node):
        target = node.args[0]
        self.unit.helper("apply_to")
        function = self.static(target)
        if inspect.isfunction(function) and self.unit.loaded.definition(function) and not isinstance(target, ast.Lambda):
            return self.apply_function(function, "*this", node)
        if getattr(target, "id", None) in self.nested_signatures:
            return f"apply_to(*this, {identifier(target.id)})"
        if not (isinstance(target, ast.Attribute) and self.is_self(target.value)):
            raise Refusal("apply of anything but a method or a function", node)
        self.unit.need_method(self.cls.cls, target.attr)
        return f"apply_to(*this, [this](torch::nn::Module& module) {{ {names.member(target.attr)}(module); }})"

    def apply_function(self, function, target, node):
        self.unit.helper("apply_to")
        if function.__name__ == "<lambda>":
            raise Refusal("apply of a lambda has no translation; name the function", node)
        return f"apply_to({target}, [](torch::nn::Module& module) {{ {self.unit.function(function, node)}(module); }})"

    def module_method(self, node, kind):
        name = node.func.attr
        target = self.code(node.func.value)
        kind = kind if self.unit.overrides(kind.cls, name) else list_of(kind)
        if is_own(kind.cls) and (self.unit.overrides(kind.cls, name) or not hasattr(nn.Module, name)):
            self.unit.need_method(kind.cls, name)
            return f"{target}->{names.member(name, self.unit.class_names) if name != 'forward' else name}({', '.join(self.bind(getattr(kind.cls, name), node))})"
        if name == "forward":
            return self.call_module(kind, target, node)
        if name == "append" and kind.cls is nn.ParameterList:
            return f"{target}->append({self.parameter(node.args[0])})"
        if name == "insert" and kind.cls is nn.ModuleList:
            return f"{target}->insert({self.code(node.args[0])}, {self.local_copy(node.args[1], 'layer')}{'' if self.kind(node.args[1]) == Module(nn.Module) else '.ptr()'})"
        if name in ("append", "add_module") and kind.cls in (nn.ModuleList, nn.Sequential):
            any_class = kind.cls is nn.ModuleList and names.is_any_module(self.kind(node.args[0])) and not names.holds_container(self.kind(node.args[0]))
            return f"{target}->push_back({', '.join(map(self.module_text, node.args))}{'.ptr()' if any_class else ''})"
        if name == "register_parameter" and len(node.args) == 2 and isinstance(self.kind(node.args[1]), Tensor):
            value = self.local_copy(node.args[1], "parameter")
            return f"{target}->register_parameter({self.code(node.args[0])}, {value}, {value}.requires_grad())"
        if name == "apply" and inspect.isfunction(self.static(node.args[0])):
            return self.apply_function(self.static(node.args[0]), self.referred(node.func.value), node)
        if name == "apply" and getattr(node.args[0], "id", None) in self.nested_signatures:
            self.unit.helper("apply_to")
            return f"apply_to({self.referred(node.func.value)}, {identifier(node.args[0].id)})"
        if name in ("parameters", "buffers", "modules", "children", "flatten_parameters"):
            return f"{self.reached(node.func.value)}{name}()"
        if name in ("double", "float", "half", "bfloat16", "to", "eval", "train", "requires_grad_"):
            return self.changed_module(target, name, node)
        if name == "reset_parameters" and issubclass(kind.cls, nn.Linear | nn.modules.conv._ConvNd | nn.Embedding | nn.Bilinear | nn.LayerNorm | nn.GroupNorm | nn.modules.batchnorm._BatchNorm):
            return f"{target}->reset_parameters()"
        raise Refusal(f"{kind.cls.__name__}.{name}() has no translation", node)

    def changed_module(self, target, name, node):
        """`module.to(...)` and the like, which change the module and return it."""
        if not target.isidentifier():
            local = self.fresh("layer")
            self.out(f"auto {local} = {target};")
            target = local
        dtype = {"double": "torch::kDouble", "float": "torch::kFloat", "half": "torch::kHalf", "bfloat16": "torch::kBFloat16"}.get(name)
        if name in ("eval", "train"):
            self.out(f"{target}->{name}({', '.join(self.code(a) for a in node.args)});")
        elif name == "requires_grad_":
            value = self.code(node.args[0]) if node.args else "true"
            self.out(f"for (auto& parameter : {target}->parameters()) parameter.set_requires_grad({value});")
        else:
            given = [*node.args, *(k.value for k in node.keywords)]
            values = [a for a in given if self.kind(a) not in (kinds.NONE, kinds.FORMAT)]
            for layout in [a for a in given if self.kind(a) == kinds.FORMAT]:
                self.note_left_out(layout, "which changes no number")
            if dtype or values:
                self.out(f"{target}->to({dtype or ', '.join(self.code(a) for a in values)});")
        return target

    def container_method(self, node, kind):
        name, held = node.func.attr, node.func.value
        if isinstance(held, ast.Name) and held.id in self.displays and name in ("get", "pop", "setdefault") and isinstance(self.constant(node.args[0]), str):
            given = {key: value for key, value in self.displays[held.id] if (held.id, key) not in self.popped}
            if name == "setdefault" and self.constant(node.args[0]) not in given:
                self.displays[held.id] = [*given.items(), (self.constant(node.args[0]), node.args[1])]
                self.popped.discard((held.id, self.constant(node.args[0])))
            if name == "pop":
                self.popped.add((held.id, self.constant(node.args[0])))
            default = node.args[1] if len(node.args) > 1 else ast.Constant(None)
            return self.code(given.get(self.constant(node.args[0]), default))
        target = self.code(held)
        if name == "copy" and not node.args:
            return self.copied(node, kind, target)
        if isinstance(kind, kinds.Set) and name == "add":
            return f"{target}.insert({self.code(node.args[0])})"
        if isinstance(kind, Map) and name in ("get", "pop") and not node.keywords:
            key = self.key_of(node.args[0])
            self.unit.helper("popped") if name == "pop" else None
            held = f"popped({target}, {key})" if name == "pop" else f"{target}.at({key})"
            if len(node.args) == 1 and (name == "pop" or kinds.NONE not in self.raw_kinds(node)):
                return held
            default = node.args[1] if len(node.args) > 1 else ast.copy_location(ast.Constant(None), node)
            whole = merge([kind.item, kinds.NONE if is_none(default) else self.kind(default)])
            other = names.nothing(whole, node) if is_none(default) else self.typed_branch(default, whole)
            value = f"({target}.count({key}) > 0 ? {f'{cpp_type(whole, node)}({held})' if isinstance(whole, Optional) else held} : {other})"
            return value if name == "get" else self.local_copy(self.stand_for(value, whole, node), "taken")
        if isinstance(kind, Map) and name in ("keys", "values", "items"):
            return self.listing(kind, name, target, node)
        if isinstance(kind, Map) and name == "update" and len(node.args) == 1:
            self.unit.helper("update")
            return f"update({target}, {self.code(node.args[0])})"
        if isinstance(kind, kinds.Set) and name in ("issubset", "issuperset"):
            sets = [target, self.set_of(node.args[0], kind)][:: 1 if name == "issuperset" else -1]
            self.unit.includes_std.add("algorithm")
            return f"std::ranges::includes({', '.join(sets)})"
        if isinstance(kind, List) and ast.unparse(node.func.value) in self.kept_lists:
            raise Refusal(f"`{ast.unparse(node)[:60]}` changes a list that was put into another; C++ holds a copy there", node)
        if isinstance(kind, List) and name == "append" and isinstance(self.kind(node.args[0]), List):
            self.kept_lists.add(ast.unparse(node.args[0]))
        if isinstance(kind, List) and name == "append":
            code, layers = self.code(node.args[0]), self.any_modules(node.func.value)
            code = self.as_layer(code) if layers and self.kind(node.args[0]) == Module(nn.Sequential) else code
            return f"{target}.push_back({f'torch::nn::AnyModule({code})' if layers else code})"
        if isinstance(kind, List) and name == "pop" and not node.args:
            local = self.fresh("last")
            self.out(f"auto {local} = {target}.back();")
            self.out(f"{target}.pop_back();")
            return local
        if isinstance(kind, List) and name == "insert":
            return f"{target}.insert({target}.begin() + {self.code(node.args[0])}, {self.code(node.args[1])})"
        if isinstance(kind, List | Tuple | Size) and name in ("index", "count"):
            items, value = self.local_copy(held, "items"), self.code(node.args[0])
            find = f"std::find({items}.begin(), {items}.end(), {value}) - {items}.begin()"
            return f"static_cast<int64_t>({find if name == 'index' else f'std::count({items}.begin(), {items}.end(), {value})'})"
        if isinstance(kind, List) and name == "reverse":
            return f"std::reverse({target}.begin(), {target}.end())"
        if isinstance(kind, List) and name == "extend":
            self.unit.helper("joined")
            return f"{target} = joined({target}, {self.as_list(node.args[0], kind)})"
        if isinstance(kind, Config) and name == "get" and isinstance(self.constant(node.args[0]), str):
            word = self.constant(node.args[0])
            if word in kind.fields():
                self.unit.struct(kind)
                return f"{primary(target)}.{identifier(word)}"
            return self.code(node.args[1]) if len(node.args) > 1 else "{}"
        if kind == kinds.STR and name == "format" and not node.keywords:
            return self.formatted(node.func.value, node.args, r"\{\d?\}", node)
        if kind in kinds.NUMBERS and name == "item":
            return target
        if kind in kinds.NUMBERS and name == "astype" and self.kind(node) in names.SIMPLE:
            return f"static_cast<{names.SIMPLE[self.kind(node)]}>({target})"
        if kind == kinds.FLOAT and name == "is_integer":
            return f"(std::floor({target}) == {target})"
        if kind == kinds.STR and name == "lower" and len(set(self.values(node))) > 1:
            self.unit.helper("lower")
            return f"lower({target})"
        if kind == kinds.STR and name == "join" and isinstance(node.args[0], ast.Tuple | ast.List) and all(self.kind(item) == kinds.STR for item in node.args[0].elts):
            return f' + {target} + '.join(f"std::string({self.code(item)})" for item in node.args[0].elts) or '""'
        if kind == kinds.STR and name == "replace" and len(node.args) == 2:
            self.unit.helper("replaced")
            return f"replaced({target}, {', '.join(map(self.code, node.args))})"
        if kind == kinds.STR and name in ("endswith", "startswith") and len(node.args) == 1:
            return f"{target}.{name.removesuffix('with')}_with({self.code(node.args[0])})"
        values = set(self.values(node))
        if len(values) == 1:
            return self.literal(values.pop(), node)
        raise Refusal(f"the call `{ast.unparse(node)[:60]}` has no translation", node)

    @staticmethod
    def copied(node, kind, target):
        """A copy of a list or dict, as C++ makes one by itself; of lists in it, Python would copy no more than the names."""
        items = [kind_of(value) for value in kind.fields().values()] if isinstance(kind, Config) else [getattr(kind, "item", None)]
        if any(isinstance(item, List | Map | kinds.Set | Config) for item in items):
            raise Refusal(f"`{ast.unparse(node)[:60]}` shares what is in it, which C++ copies", node)
        return target

    def tensor_method(self, node):
        name = node.func.attr
        if name == "numpy" and self.path == DRIVER:
            return self.code(node.func.value)
        listed = kinds.INT if self.path == DRIVER else getattr(self.kind(node), "item", None)
        if name == "tolist" and listed in kinds.NUMBERS:
            self.unit.helper("list_of")
            return f"list_of<{cpp_type(listed)}>({self.code(node.func.value)})"
        if name == "type" and not node.args and not node.keywords:
            return f"{self.primary(node.func.value)}.scalar_type()"
        if self.kind(node.func.value).numpy and self.array_method(node) is not None:
            return self.array_method(node)
        if name == "type" and len(node.args) == 1 and isinstance(node.args[0], ast.Call) and getattr(node.args[0].func, "attr", "") == "type":
            return f"{self.primary(node.func.value)}.to({self.primary(node.args[0].func.value)}.scalar_type())"
        if name == "new" and not node.keywords and not any(isinstance(self.kind(a), Tensor) for a in node.args):
            return self.legacy_tensor(recalled(node, node.func, self.starless(node.args), []), f"{self.primary(node.func.value)}.options()")
        if name in schema.SIZED_METHODS and any(isinstance(a, ast.Starred) and not self.has_length(a.value) for a in node.args):
            sizes = [Operand(self.joined_parts(node.args, "std::vector<int64_t>"), Size(None))]
        else:
            sizes = [self.operand(a) for a in self.starless(node.args)]
        arguments = [self.operand(node.func.value), *sizes]
        keywords = self.keywords(node)
        return self.at(node, schema.call, name, arguments, keywords, method=True)

    def keywords(self, node):
        """A call's keyword arguments as operands, with `**` of a local display spread."""
        return {name: self.operand(value) for name, value in self.spread_keywords(node)}

    def spread_keywords(self, node):
        for keyword in node.keywords:
            value = keyword.value
            if keyword.arg is None and isinstance(value, ast.Name) and value.id in self.displays:
                yield from (entry for entry in self.displays[value.id] if (value.id, entry[0]) not in self.popped)
            elif keyword.arg is None and isinstance(self.kind(value), Config) and not self.is_rest(value):
                for name, held in self.kind(value).fields().items():
                    yield name, self.stand_for("{}" if held is None else f"{self.primary(value)}.{identifier(name)}", kind_of(held), value)
            elif keyword.arg is None and isinstance(value, ast.Dict):
                yield from ((key.value, item) for key, item in zip(value.keys, value.values, strict=True))
            else:
                yield keyword.arg, value

    @staticmethod
    def at(node, function, *arguments, **keywords):
        """Calls a table's function; its refusals get the node's line."""
        try:
            return function(*arguments, **keywords)
        except Refusal as refusal:
            if refusal.line is None:
                refusal.line = getattr(node, "lineno", None)
            raise

    def call_module(self, kind, target, node):
        cls = kind.cls
        if is_own(cls) and not is_own(next(b for b in cls.__mro__ if "forward" in vars(b))):
            return f"{target}->forward({', '.join(self.code(a) for a in node.args)})"
        if is_own(cls):
            return self.first_of(cls.forward, f"{target}->forward({', '.join(self.bind(cls.forward, node))})", node)
        if cls.__module__.startswith("einops"):
            return f"{target}->forward({self.code(node.args[0])})"
        if cls is nn.Sequential:
            found = self.modules(node.func)
            chain = [type(child) for module in found if isinstance(module, nn.Sequential) for child in module]
            if any(modules.returns_tuple(child) for child in chain if not is_own(child)):
                raise Refusal("an nn.Sequential that holds a module with several results", node)
            if isinstance(self.kind(node), Tuple):
                template = "template " if self.in_template else ""
                given = [(cpp_type(self.kind(a), node) if isinstance(a, ast.Tuple) else "") + self.code(a) for a in node.args]
                return f"{target}->{template}forward<{cpp_type(self.kind(node), node)}>({', '.join(given)})"
            if len(node.args) == 1 and any(isinstance(module, nn.Sequential) and not len(module) for module in found):
                self.unit.helper("through")  # C++ refuses what Python hands through
                return f"through({target}, {self.code(node.args[0])})"
            return f"{target}->forward({', '.join(self.code(a) for a in node.args)})"
        if any(isinstance(a, ast.Starred) and self.is_starred(a.value) for a in node.args):
            return f"{target}->forward({', '.join(self.code(a) for a in self.starless(node.args))})"
        arguments = [self.operand(a) for a in self.starless(node.args)]
        keywords = self.keywords(node)
        return self.at(node, modules.call, cls, target, arguments, keywords, module=next(iter(self.modules(node.func)), None))

    def call_static(self, target, node):
        """A call of something that the source names."""
        if getattr(target, "makes_layer", False):
            return self.normed(target, node)
        if isinstance(target, functools.partial):
            return self.call_partial(target, node)
        if target is functools.partial:
            return "{}"  # a static argument
        if inspect.isclass(target):
            return self.call_class(target, node)
        name, module = getattr(target, "__name__", ""), getattr(target, "__module__", None) or ""
        builtin = getattr(self, "call_" + name, None) if module in ("builtins", "functools") else None
        if builtin is not None:
            return builtin(node)
        ntuple = module == "torch.nn.modules.utils" or getattr(target, "__qualname__", "") == "_ntuple.<locals>.parse"
        if ntuple and len(node.args) == 1 and isinstance(self.kind(node), Tuple | List):
            return self.pair_of(len(self.kind(node).items) if isinstance(self.kind(node), Tuple) else self.kind(node).length, node)
        if name == "generate_square_subsequent_mask":
            return f"torch::nn::TransformerImpl::generate_square_subsequent_mask({self.code(node.args[-1])})"
        if target is functools.reduce:
            return self.call_reduce(node)
        if target is torch.is_tensor and self.always(node) is not None:
            return "true" if self.always(node) else "false"
        if target in (inspect.isfunction, callable):
            return "true" if self.kind(node.args[0]) == kinds.CALLABLE or isinstance(self.kind(node.args[0]), Function | Class | Module) else "false"
        if module == "math" or target in vars(math).values():
            return self.call_math(name, node)
        if module.split(".")[0] == "numpy" or type(target).__name__ == "ufunc":
            return self.call_numpy(name, node)
        if module.split(".")[0] in ("einops", "einops_exts"):
            return self.call_einops(ast.unparse(node.func).split(".")[-1], node)
        definition = self.unit.loaded.definition(target) if inspect.isfunction(target) else None
        if definition is not None and isinstance(definition[1], ast.Lambda):
            return self.inlined(target, definition[1], [ast.copy_location(ast.Return(definition[1].body), node)], definition[0], node)
        if definition is not None:
            return self.checkpointed(definition[1], node) or self.call_function(target, definition, node)
        if name == "cast" and module == "typing":
            return self.code(node.args[1])
        if name in ("copy", "deepcopy") and module == "copy" and isinstance(self.kind(node), Config):
            return f"{self.kind(node).name}({self.code(node.args[0])})"
        if name == "_get_clones" and module.startswith("torch.nn."):
            self.unit.helper("copy_of")
            self.unit.copies, layer, made, count = True, self.local_copy(node.args[0], "layer"), self.fresh("list"), self.fresh("n")
            self.out(f"torch::nn::ModuleList {made};")
            self.out(f"for (int64_t {count} = 0; {count} < {self.code(node.args[1])}; ++{count}) {made}->push_back(copy_of({layer}));")
            return made
        if name == "deepcopy" and module == "copy":
            self.unit.helper("copy_of")
            self.unit.copies = True
            return f"copy_of({self.code(node.args[0])})"
        if module == "random" or type(target).__module__ == "random" or getattr(target, "__self__", None).__class__.__name__ == "Random":
            raise Refusal(f"random.{name} draws Python's numbers; use torch.rand or torch.randint", node)
        if module == "time":
            raise Refusal(f"time.{name} has no translation", node)
        if module == "builtins" and getattr(torch, name, None) is not target:
            raise Refusal(f"{name}() has no translation", node)
        if module.startswith("torch") or target in vars(torch).values() or target in vars(F).values() or type(target).__name__ in (
            "builtin_function_or_method", "_DisabledTorchFunctionImpl", "method_descriptor"):
            return self.call_torch(target, name, node)
        if module == "builtins" and name not in vars(torch):
            raise Refusal(f"{name}() has no translation", node)
        if operator is inspect.getmodule(target):
            raise Refusal(f"operator.{name} has no translation", node)
        raise Refusal(f"the source of {name or target} is not at hand; only own classes and functions, torch, math and einops are translated", node)

    def call_math(self, name, node):
        """A function of Python's math."""
        if name == "log" and len(node.args) == 2:
            return f"std::log({self.number(node.args[0])}) / std::log({self.number(node.args[1])})"
        if name == "prod":
            return self.call_prod(node)
        if name in ("gcd", "lcm") and len(node.args) > 1:
            self.unit.includes_std.add("numeric")
            return functools.reduce(lambda a, b: f"std::{name}<int64_t, int64_t>({a}, {b})", map(self.code, node.args))
        if name in ("floor", "ceil", "trunc"):
            return f"static_cast<int64_t>(std::{name}({self.number(node.args[0])}))"
        if name in ("degrees", "radians"):
            return f"{primary(self.number(node.args[0]))} * {self.literal(getattr(math, name)(1.0))}"
        if name in ("comb", "factorial"):
            self.unit.helper(name)
            return f"{name}({', '.join(map(self.code, node.args))})"
        if name not in _CMATH:
            raise Refusal(f"math.{name} has no translation; write it with other functions of math", node)
        return f"std::{_CMATH[name]}({', '.join(map(self.number, node.args))})"

    def normed(self, target, node):
        """weight_norm or spectral_norm of torch.nn.utils: the class of layers.py that stands for what it makes."""
        kind, function = self.kind(node), target.makes_layer
        if not isinstance(kind, Module):
            raise Refusal(f"{function} of layers of several classes; write one call for each", node)
        self.unit.need_class(kind.cls)
        self.note(f"{self.unit.loaded.place(self.path, node.lineno)}: {function} makes a {kind.cls.__name__}, a class of its own")
        _, values = layers.bound(function, target, *node.args, **{k.arg: k.value for k in node.keywords})
        if values["dim"] is None or is_none(values["dim"]):
            values["dim"] = layers.default_dim(function, self.kind(node.args[0]).cls)
        given = [self.code(value) if isinstance(value, ast.AST) else repr(value) for value in values.values()]
        return f"{names.holder(kind)}({', '.join([self.code(node.args[0]), *given])})"

    def from_pretrained(self, node):
        """nn.Embedding.from_pretrained."""
        given = dict(zip(("embeddings", "freeze", "padding_idx"), node.args, strict=False)) | {k.arg: k.value for k in node.keywords}
        if set(given) - {"embeddings", "freeze", "padding_idx"}:
            raise Refusal(f"`{ast.unparse(node)[:60]}`: only freeze and padding_idx are translated", node)
        options = "".join(f".{name}({self.code(given[name])})" for name in ("freeze", "padding_idx") if name in given and self.kind(given[name]) != kinds.NONE)
        more = f", torch::nn::EmbeddingFromPretrainedOptions(){options}" if options else ""
        return f"torch::nn::Embedding::from_pretrained({self.primary(given['embeddings'])}.detach(){more})"  # a parameter of its own

    def pair_of(self, count, node):
        """torch.nn.modules.utils' _pair and the like."""
        kind = self.kind(node.args[0])
        if isinstance(kind, List | Tuple | Size):
            return self.as_vector(node.args[0])
        if kind == kinds.NONE:
            return f"std::vector<torch::Tensor>({count})"
        return f"std::vector<{cpp_type(kind, node)}>({count}, {self.code(node.args[0])})"

    def call_numpy(self, name, node):
        """A function of numpy of numbers, or of arrays, which are tensors in C++."""
        given = [self.kind(a) for a in node.args]
        if name in _SCALAR_NUMPY and all(kind in kinds.NUMBERS for kind in given):
            return f"std::{ {'power': 'pow'}.get(name, name)}({', '.join(self.number(a) for a in node.args)})"
        if name in ("sum", "prod") and not isinstance(given[0], Tensor) and (name == "prod" or self.kind(node) == kinds.INT):
            return getattr(self, f"call_{name}")(node)
        if name == "shape" and isinstance(given[0], Tensor):
            return f"{self.primary(node.args[0])}.sizes().vec()"
        starred = [getattr(item, "value", None) for item in getattr(node.args[0], "elts", ()) if isinstance(item, ast.Starred)] if node.args else []
        if name in ("array", "asarray") and starred and all(isinstance(self.kind(value), Tensor) for value in starred):  # rows of an array among numbers
            parts = [self.code(item.value) if isinstance(item, ast.Starred) else f"torch::tensor({{{self.code(item)}}})" for item in node.args[0].elts]
            code = f"torch::cat({{{', '.join(parts)}}})"
        elif name in ("array", "asarray", "stack") and isinstance(given[0], List | Tuple):
            self.unit.helper("array_of")
            code = f"array_of({self.as_vector(node.args[0])})"
        elif name == "einsum" and isinstance(self.constant(node.args[0]), str):
            code = f"torch::einsum({self.code(node.args[0])}, {{{', '.join(map(self.as_double, node.args[1:]))}}})"
        elif name == "meshgrid" and all(isinstance(kind, Tensor) for kind in given):
            order = next((self.constant(k.value) for k in node.keywords if k.arg == "indexing"), "xy")
            return f"torch::meshgrid({{{', '.join(map(self.code, node.args))}}}, {self.literal(order)})"
        elif name in ("sin", "cos", "exp", "log", "sqrt", "tanh") and isinstance(self.kind(node), Tensor) and not self.kind(node).numpy:
            return f"torch::{name}({self.code(node.args[0])})"
        elif any(isinstance(kind, Tensor) and not kind.numpy for kind in given):
            raise Refusal(f"numpy.{name} of a tensor has no translation; use torch.{name}", node)
        elif name in arrays.NAMES and isinstance(self.kind(node), Tensor):
            keywords = {arrays.KEYWORDS.get(k.arg, k.arg): self.operand(k.value) for k in node.keywords if k.arg != "dtype"}
            if name not in arrays.MADE:
                self.arrays_of_lists(node.args)
            if name in ("cumsum", "cumprod") and not keywords and len(node.args) == 1 and self.kind(node).rank == 1:
                keywords = {"dim": Operand("0", kinds.INT, 0)}
            operands = [Operand(self.as_double(a), self.kind(a), self.constant(a)) if isinstance(self.kind(a), Tensor) and self.kind(node).dtype == "f" else self.operand(a)
                        for a in node.args]
            code = self.at(node, schema.call, arrays.NAMES[name], operands, keywords, method=False)
        else:
            raise Refusal(f"numpy.{name} has no translation; use torch.{name}", node)
        dtype = self.array_dtype(name, node)
        return f"{primary(code)}.to({dtype})" if dtype else code

    def arrays_of_lists(self, arguments):
        """The first argument of a numpy function of arrays, where it is a list of numbers."""
        kind = self.kind(arguments[0]) if arguments else None
        items = {kind.item} if isinstance(kind, List) else set(kind.items) if is_numbers(kind) else {kinds.INT} if isinstance(kind, Size) else set()
        if items & set(kinds.NUMBERS):
            self.unit.helper("array_of")
            letter = "f" if kinds.FLOAT in items else "i"
            self.substitute(arguments[0], f"array_of({self.as_vector(arguments[0])})", Tensor(letter, 1, True))

    def array_dtype(self, name, node):
        """The dtype that a call of numpy asks for, or the one that numpy gives where torch would give another; "" for neither."""
        wanted = next((k.value for k in node.keywords if k.arg == "dtype"), None)
        if wanted is not None:
            value = self.static(wanted) or self.constant(wanted)
            if arrays.dtype(value) is None:
                raise Refusal(f"`{ast.unparse(node)[:60]}`: the dtype has no translation", node)
            return arrays.dtype(value)
        return "torch::kDouble" if name in arrays.MADE and self.kind(node).dtype == "f" else ""

    def as_double(self, node):
        """An array's text in double precision, to which numpy promotes integers."""
        kind = self.kind(node)
        return f"{self.primary(node)}.to(torch::kDouble)" if isinstance(kind, Tensor) and kind.numpy and kind.dtype in "ib" else self.code(node)

    def array_method(self, node):
        name, owner = node.func.attr, self.primary(node.func.value)
        if name == "astype":
            value = self.static(node.args[0]) or self.constant(node.args[0])
            if arrays.dtype(value):
                return f"{owner}.to({arrays.dtype(value)})"
        if name == "copy":
            return f"{owner}.clone()"
        if name == "transpose" and node.args:
            return f"{owner}.permute({{{', '.join(self.code(a) for a in self.starless(node.args))}}})"
        if name in ("reshape", "sum", "mean", "max", "min", "flatten", "repeat", "T", "cumsum"):
            return None
        raise Refusal(f"`{ast.unparse(node)[:60]}`: numpy's {name} has no translation", node)

    def checkpointed(self, function, node):
        """A call of an own `checkpoint(function, inputs, ...)`, which returns `function(*inputs)` unless a custom autograd.Function
        shall compute it again in the backward pass; None for another function."""
        names = [a.arg for a in function.args.args[:2]]
        returned = [ast.unparse(n.value) for n in ast.walk(function) if isinstance(n, ast.Return) and n.value is not None]
        if len(names) < 2 or len(node.args) < 2 or not isinstance(node.args[1], ast.Tuple | ast.List) or f"{names[0]}(*{names[1]})" not in returned or not any(
            f".apply({names[0]}, " in text for text in returned):
            return None
        given = dict(zip((a.arg for a in function.args.args), node.args, strict=False)) | {k.arg: k.value for k in node.keywords}
        flags = [given[name] for n in ast.walk(function) if isinstance(n, ast.If) and (name := ast.unparse(n.test)) in given]
        off = any((seen := self.values(flag)) and not any(seen) for flag in flags)
        owner = node.args[0].value if isinstance(node.args[0], ast.Attribute) else None
        reached = (owner is not None and self.modules(owner)) or [self.unit.root]
        if not off and any(isinstance(m, nn.modules.dropout._DropoutNd) and m.p > 0 for module in reached for m in module.modules()):
            raise Refusal(f"`{ast.unparse(node.func)}` computes its function again in the backward pass, with other dropout; turn it off, or dropout", node)
        return self.call_directly(node, node.args[1].elts)

    def call_directly(self, node, arguments):
        """A checkpoint's function, called where Python calls the checkpoint."""
        self.note(f"{self.unit.loaded.place(self.path, node.lineno)}: checkpoint(...) calls its function directly, with the same numbers and more memory")
        return self.code_Call(recalled(node, node.args[0], arguments, []))

    def call_torch(self, target, name, node):
        where = where_of(target)
        if name in ("from_numpy", "as_tensor", "tensor") and node.args and isinstance(self.kind(node.args[0]), Tensor) and self.kind(node.args[0]).numpy:
            dtype = next((k.value for k in node.keywords if k.arg == "dtype"), node.args[1] if len(node.args) > 1 else None)
            return f"{self.primary(node.args[0])}.to({self.code(dtype)})" if dtype is not None else self.code(node.args[0])
        if name in ("is_scripting", "is_tracing", "is_available", "is_autocast_enabled", "is_compiling", "is_initialized") and self.always(node) is not None:
            return "true" if self.always(node) else "false"
        owner = self.static(node.func.value) if isinstance(node.func, ast.Attribute) else getattr(target, "__self__", None)
        if name == "apply" and inspect.isclass(owner) and issubclass(owner, torch.autograd.Function):
            raise Refusal(f"`{ast.unparse(node.func)}` is a custom autograd.Function; write its forward with operations of torch", node)
        if name == "checkpoint" and node.args:
            return self.call_directly(node, node.args[1:])
        if name == "checkpoint_sequential" and len(node.args) == 3 and self.kind(node.args[0]) == Module(nn.Sequential):
            return self.call_directly(node, node.args[2:])
        if name in ("compile", "no_grad", "script", "custom_fwd") or where == "refused":
            raise Refusal(f"{getattr(target, '__module__', 'torch')}.{name} has no translation", node)
        if name == "multi_head_attention_forward":
            raise Refusal("F.multi_head_attention_forward has no translation; call an nn.MultiheadAttention", node)
        equation = []
        if name == "einsum":
            word = self.word(node.args[0])
            several = word is UNKNOWN and self.kind(node.args[0]) == kinds.STR
            equation = [Operand(self.code(node.args[0]) if several else "", kinds.STR, word)]
        arguments = equation + [self.operand(a) for a in self.starless(node.args[len(equation):])]
        keywords = self.keywords(node)
        out = next((k.value for k in node.keywords if k.arg == "out"), None)
        if name in ("arange", "linspace", "zeros", "ones", "full", "eye", "rand", "randn") and ast.unparse(out or node).endswith(".new()"):
            like = self.primary(out.func.value)  # a tensor that is made there, and whose dtype counts
            keywords = {k: v for k, v in keywords.items() if k != "out"} | {
                "dtype": Operand(f"{like}.scalar_type()", kinds.DTYPE), "device": Operand(f"{like}.device()", kinds.DEVICE)}
        if None in keywords:
            raise Refusal(f"`{ast.unparse(node)[:60]}` hands on **kwargs", node)
        if name == "from_pretrained" and isinstance(self.kind(node), Module) and self.kind(node).cls is nn.Embedding:
            return self.from_pretrained(node)
        if name == "tensor" and isinstance(arguments[0].kind, List) and isinstance(arguments[0].kind.item, List) and arguments[0].constant is UNKNOWN:
            self.unit.helper("array_of")
            dtype = keywords.pop("dtype", None) or Operand("torch::kLong" if self.kind(node).dtype == "i" else "torch::kFloat", kinds.DTYPE)
            return "".join([f"array_of({arguments[0].code})", *(f".to({o.code})" for o in (dtype, *keywords.values()))])
        if name in ("trunc_normal_", "gumbel_softmax"):
            self.unit.helper(name)
        if target is torch.manual_seed and not any(isinstance(n, ast.Expr) and n.value is node for n in ast.walk(self.function)):
            self.out(f"torch::manual_seed({arguments[0].code if arguments else keywords['seed'].code});")
            return "at::globalContext().defaultGenerator(torch::kCPU)"
        if name == "calculate_gain" and arguments and arguments[0].constant is UNKNOWN:
            self.unit.helper("calculate_gain")
            return f"calculate_gain({', '.join(a.code for a in (*arguments, *keywords.values()))})"
        if name in ("_calculate_fan_in_and_fan_out", "_calculate_correct_fan"):
            self.unit.includes_std.add("tuple")
            weight, *mode = [*arguments, *keywords.values()]
            mode = mode and mode[0].constant
            fans = f"torch::nn::init::_calculate_fan_in_and_fan_out({weight.code})"
            if name == "_calculate_correct_fan" and mode in ("fan_in", "fan_out"):
                return f"std::get<{int(mode == 'fan_out')}>({fans})"
            if name == "_calculate_fan_in_and_fan_out":  # a pair of numbers, which is a vector
                return f"std::apply([](auto... fans) {{ return std::vector<int64_t>{{fans...}}; }}, {fans})"
        return self.at(node, schema.call, name, arguments, keywords, method=False, where=where)

    def call_einops(self, name, node):
        named = next((keyword for keyword in node.keywords if keyword.arg == "pattern"), None)
        if named is not None:
            keywords = [keyword for keyword in node.keywords if keyword is not named]
            return self.call_einops(name, recalled(node, node.func, [node.args[0], named.value, *node.args[1:]], keywords))
        sizes = {keyword.arg: self.code(keyword.value) for keyword in node.keywords if keyword.arg != "reduction"}
        pattern = self.word(node.args[1]) if len(node.args) > 1 else UNKNOWN
        if name == "einsum" and isinstance(self.constant(node.args[-1]), str):
            return self.at(node, einops.einsum, [self.operand(a) for a in node.args[:-1]], self.constant(node.args[-1]))
        if name in ("pack", "unpack"):
            self.unit.helper("star_of")
            self.unit.helper(name)
            first, *others = node.args
            return f"{name}({', '.join([self.as_list(first, List(Tensor())), *map(self.code, others)])})"
        if not isinstance(pattern, str):
            return self.einops_by_word(name, node)
        first = node.args[0]
        kind = self.kind(first)
        if name in ("rearrange_many", "repeat_many"):
            if not isinstance(first, ast.Tuple | ast.List):
                items = self.starless([ast.copy_location(ast.Starred(first, ast.Load()), first)])
                first = ast.copy_location(ast.Tuple(items, ast.Load()), first)
            function = getattr(einops, name.removesuffix("_many"))
            return f"std::vector<torch::Tensor>{{{', '.join(self.at(node, function, self.operand(x), pattern, sizes) for x in first.elts)}}}"
        if isinstance(kind, List | Tuple):
            item = kind.item if isinstance(kind, List) else kind.items[0]
            items = self.code(first) if self.code(first).startswith("{") else self.as_vector(first)
            operand = Operand(f"torch::stack({items})", Tensor("f", 1 + item.rank if item.rank is not None else None))
        else:
            operand = self.operand(first)
        if name == "reduce":
            return self.at(node, einops.reduce, operand, pattern, self.constant(node.args[2]), sizes)
        return self.at(node, getattr(einops, name), operand, pattern, sizes)

    def einops_by_word(self, name, node):
        """A call whose pattern was one of a few words, which C++ tells apart as it runs."""
        word = node.args[1] if len(node.args) > 1 else None
        words = sorted(set(self.values(word))) if isinstance(word, ast.Name) and self.kind(word) == kinds.STR else []
        if not 1 < len(words) < 5:
            raise Refusal("an einops pattern that is no constant", node)
        code, texts = self.code(word), []
        self.out(f"TORCH_CHECK({' || '.join(f'{code} == {self.literal(one)}' for one in words)}, {self.literal(ast.unparse(word) + ' was none of the recorded words')});")
        for one in words:
            given = [node.args[0], self.synthetic(one, node), *node.args[2:]]
            texts.append(self.call_einops(name, recalled(node, node.func, given, node.keywords)))
        *others, last = texts
        return "(" + "".join(f"{code} == {self.literal(one)} ? {text} : " for one, text in zip(words, others, strict=False)) + last + ")"

    def call_partial(self, target, node):
        call = recalled(node, node.func, list(node.args), list(node.keywords))
        given = {keyword.arg for keyword in node.keywords}
        for value in reversed(target.args):
            call.args.insert(0, self.synthetic(value, node))
        for name, value in target.keywords.items():
            if name not in given:
                call.keywords.append(ast.keyword(name, self.synthetic(value, node)))
        return self.call_static(target.func, call)

    def synthetic(self, value, node):
        """A node that stands for a Python value."""
        if kinds.makes(kind_of(value)):
            return self.static_name(value, node)
        return self.stand_for(self.literal(value, node) if value is not None else "{}", kind_of(value), node, value)

    def call_class(self, cls, node):
        if cls in (int, float, bool, str):
            return self.call_number(cls, node)
        if cls in (tuple, list):
            return self.letters(node.args[0]) if node.args else "{}"
        if cls is reversed:
            self.unit.helper("reversed_list")
            return f"reversed_list({self.as_vector(node.args[0])})"
        if cls is slice:
            texts = ["None" if is_none(a) else self.code(a) for a in node.args]
            return f"Slice({', '.join(texts if len(texts) > 1 else ['None', *texts])})"
        if cls is torch.Size:
            return self.as_vector(node.args[0])
        if cls is torch.Generator and all(self.constant(a) == "cpu" for a in [*node.args, *(k.value for k in node.keywords)]):
            return "at::detail::createCPUGenerator()"
        if cls in (torch.device,):
            return f"torch::Device({', '.join(self.code(a) for a in node.args)})"
        if cls is torch.autograd.Variable:
            return self.code(node.args[0])  # a tensor, since PyTorch 0.4
        if cls is nn.Parameter:
            data = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "data"), None)
            return "torch::empty({0})" if data is None else self.code(data)
        star = node.args[0].value if len(node.args) == 1 and isinstance(node.args[0], ast.Starred) else None
        if star is not None and cls.__name__ in ("Tensor", "FloatTensor") and (kinds.is_numbers(self.kind(star)) or self.kind(star) == List(kinds.INT)):
            return f"torch::empty({self.code(star)})"
        if cls is torch.Tensor or isinstance(cls, type(torch.FloatTensor)):
            return self.legacy_tensor(node, self.literal(torch.float32 if cls is torch.Tensor else cls.dtype))
        builtin = getattr(self, "call_" + cls.__name__, None) if cls.__module__ in ("builtins", "itertools") else None
        if builtin is not None:
            return builtin(node)
        if issubclass(cls, nn.Module):
            return self.construct(cls, node)
        if cls.__module__ != "builtins":
            return self.config(cls, node)
        raise Refusal(f"{cls.__name__}(...) has no translation", node)

    def legacy_tensor(self, node, dtype):
        """The tensor of a class of tensors, or of Tensor.new: of sizes, or of numbers."""
        whole = len(node.args) == 1 and isinstance(self.kind(node.args[0]), Size)
        if whole or node.args and all(self.kind(a) == kinds.INT for a in node.args):
            sizes = self.code(node.args[0]) if whole else f"{{{', '.join(self.code(a) for a in node.args)}}}"
            return f"torch::empty({sizes}{'' if dtype == 'torch::kFloat' else ', ' + dtype})"
        if not node.args:
            return f"torch::empty({{0}}{'' if dtype == 'torch::kFloat' else ', ' + dtype})"
        if isinstance(self.kind(node.args[0]), Tensor):
            return f"{self.primary(node.args[0])}.to({dtype})"
        if isinstance(self.kind(node.args[0]), List) and isinstance(self.kind(node.args[0]).item, List):
            self.unit.helper("array_of")
            return f"array_of({self.as_vector(node.args[0])}).to({dtype})"
        return f"torch::tensor({self.as_vector(node.args[0])}, {dtype})"

    def call_number(self, cls, node):
        value = self.constant(node)
        if value is not UNKNOWN:
            return self.literal(value)
        argument = node.args[0]
        if cls is bool:
            return self.condition(argument)
        if cls is str:
            values = set(self.values(node))
            if self.kind(argument) == kinds.STR:
                return self.code(argument)
            return self.literal(values.pop()) if len(values) == 1 else f"std::to_string({self.code(argument)})"
        kind = self.kind(argument)
        if kind == kinds.STR and self.code(argument).startswith('"'):
            return self.literal(cls(ast.literal_eval(self.code(argument))))
        if kind == kinds.STR and isinstance(self.static(getattr(argument, "value", argument)), str):  # a part of a constant
            return self.literal(self.values(node)[0])
        if kind == kinds.STR:
            self.unit.helper("number_of")
            return f"number_of<{cpp_type(self.kind(node), node)}>({self.code(argument)})"
        text = {int: "int64_t", float: "double"}[cls]
        if isinstance(kind, Tensor):
            return f"{self.primary(argument)}.item<{text}>()"
        return self.code(argument) if kind == (kinds.INT if cls is int else kinds.FLOAT) else f"static_cast<{text}>({self.plain(argument)})"

    def more_options(self, cls, node):
        """The options of a layer that a function was given, with what the call sets besides."""
        given = [k for k in node.keywords if k.arg is not None]
        if any(self.kind(k.value) == kinds.STR for k in given):
            raise Refusal(f"`{ast.unparse(node)[:60]}` sets an option by a word beside **kwargs; name the arguments", node)
        more = "".join(f".{k.arg}({self.code(k.value)})" for k in given)
        return f"{modules.holder(cls)}Options(options){more}" if more else "options"

    def construct(self, cls, node):
        """A module's constructor call."""
        cls = nn.Linear if cls is nn.modules.linear.NonDynamicallyQuantizableLinear else cls
        if is_own(cls):
            kind = self.kind(node)
            kind = kind if isinstance(kind, Module) else self.unit.resolve(Module(cls), lambda: [])
            self.unit.need_class(cls)
            if list_of(kind).cls in _CONTAINERS and not self.unit.own_constructor(cls):
                name = self.fresh("layers")
                self.out(f"{names.holder(kind)} {name};")
                self.fill(list_of(kind).cls, name, node)
                return name
            return f"{names.holder(kind)}({', '.join(self.bind(cls.__init__, node, constructor=cls))})"
        if cls.__module__.startswith("einops"):
            return self.einops_layer(cls, node)
        if cls is nn.Module:
            return "std::make_shared<torch::nn::Module>()"
        if cls in _FILLED:
            name = self.fresh({"Sequential": "layers", "ModuleList": "list", "ModuleDict": "dict"}.get(cls.__name__, "parameters"))
            self.out(f"torch::nn::{cls.__name__} {name};")
            self.fill(cls, name, node)
            return name
        if any(k.arg is None for k in node.keywords) and self.unit.options_of(self.function, self.path, self.cls) is cls:
            return f"{modules.holder(cls)}({self.more_options(cls, node)})"
        arguments = [self.operand(a) for a in self.starless(node.args)]
        keywords = self.keywords(node)
        if None in keywords:
            raise Refusal(f"`{ast.unparse(node)[:60]}` hands on **kwargs", node)
        made = self.modules(node)
        if cls in (nn.Softmax, nn.LogSoftmax, nn.Softmin) and not arguments and not keywords and len({m.dim for m in made}) == 1 and made[0].dim is not None:
            keywords["dim"] = Operand(str(made[0].dim), kinds.INT, made[0].dim)
        dtype = keywords.pop("dtype", None) if modules.draws(cls) or {"weight", "elementwise_affine", "affine"} & set(getattr(cls, "__annotations__", {})) else None
        text = self.at(node, modules.construct, cls, arguments, keywords)
        if dtype is not None and dtype.kind != kinds.NONE:
            self.unit.helper("in_dtype")
            text = f"in_dtype({dtype.code}, [&] {{ return {text}; }})"
        self.unit.includes.update(modules.includes(text))
        if text.startswith("attentive::compat::") and "LayerNorm" not in text.split("(")[0]:
            self.unit.recognised.append(f"{self.unit.loaded.place(self.path, node.lineno)}: nn.{cls.__name__}, as {text.split('(')[0]}")
        self.unit.compat_norm |= text.startswith("attentive::compat::LayerNorm")
        return text

    def einops_layer(self, cls, node):
        given = dict(zip(("pattern", "reduction"), node.args, strict=False)) | {k.arg: k.value for k in node.keywords}
        pattern, how = (self.constant(given.pop(name)) if name in given else None for name in ("pattern", "reduction"))
        sizes = {name: self.code(value) for name, value in given.items()}
        if cls.__name__ not in ("Rearrange", "Reduce") or not isinstance(pattern, str):
            raise Refusal(f"einops' layer {cls.__name__}; call the function in forward", node)
        ranks = {getattr(layer, "rank", None) for layer in self.modules(node)}
        return self.at(node, einops.layer, pattern, sizes, ranks.pop() if len(ranks) == 1 else None, how)

    def fill(self, cls, name, node):
        """Statements that put the modules, or the parameters, of a constructor call into a container."""
        items = list(node.args)
        if cls is nn.ParameterList:
            for value in items:
                if isinstance(value, ast.ListComp | ast.GeneratorExp) and len(value.generators) == 1:
                    generator = value.generators[0]
                    self.loop(generator.iter, generator.target, lambda v=value: self.put_parameter(name, v.elt), value)
                elif isinstance(value, ast.List | ast.Tuple):
                    for item in value.elts:
                        self.put_parameter(name, item)
                else:
                    self.out(f"for (const auto& parameter : {self.code(value)}) {name}->append(parameter);")
            return
        if cls is nn.Sequential and len(items) == 1 and isinstance(items[0], ast.Call) and getattr(self.static(items[0].func), "__name__", "") == "OrderedDict":
            for pairs in items[0].args:
                self.fill_pairs(name, pairs)
            return
        if cls is nn.Sequential and len(items) == 1 and isinstance(items[0], ast.Name) and items[0].id in self.named_layers:
            self.out(f"for (const auto& layer : {identifier(items[0].id)}) {name}->push_back(layer.key(), layer.value());")
            return
        if cls is nn.Sequential and len(items) == 1 and isinstance(items[0], ast.Name) and items[0].id in self.dicts:
            for key, text in self.dicts[items[0].id]:
                self.out(f'{name}->push_back("{key}", {text});')
            return
        if cls in (nn.ModuleDict, nn.ParameterDict):
            self.fill_dict(cls, name, items[0] if items else None, node)
            return
        if cls is nn.ModuleList and items:
            items = [ast.copy_location(ast.Starred(items[0], ast.Load()), node)]
        self.fill_items(cls is nn.Sequential, name, items)

    def fill_items(self, sequential, name, items):
        """Puts modules, and those of starred lists, into an nn.Sequential or an nn.ModuleList."""
        for item in items:
            if not isinstance(item, ast.Starred):
                self.push(name, item, not sequential)
                continue
            value, starred = item.value, lambda part: ast.copy_location(ast.Starred(part, ast.Load()), part)
            if isinstance(value, ast.List | ast.Tuple):
                self.fill_items(sequential, name, value.elts)
            elif isinstance(value, ast.ListComp | ast.GeneratorExp):
                generator = value.generators[0]
                self.loop(generator.iter, generator.target, lambda v=value: self.push(name, v.elt, not sequential), value)
            elif isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
                self.fill_items(sequential, name, [starred(value.left), starred(value.right)])
            elif isinstance(value, ast.IfExp) and self.condition(value.test) not in ("true", "false"):
                self.each_choice(value, lambda part: self.never(part.lineno) if self.kind(part) is None else self.fill_items(sequential, name, [starred(part)]))
            elif isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult) and isinstance(value.left, ast.List):
                raise Refusal("one module several times in a list", item)
            else:
                self.fill_from(name, value, sequential)

    def fill_pairs(self, name, pairs):
        """Puts named layers into an nn.Sequential: a list of pairs, or several."""
        if isinstance(pairs, ast.BinOp):
            self.fill_pairs(name, pairs.left)
            self.fill_pairs(name, pairs.right)
        elif isinstance(pairs, ast.ListComp | ast.GeneratorExp) and len(pairs.generators) == 1:
            self.loop(pairs.generators[0].iter, pairs.generators[0].target, lambda: self.fill_pair(name, pairs.elt), pairs)
        elif isinstance(pairs, ast.Tuple | ast.List):
            for pair in pairs.elts:
                self.fill_pair(name, pair)
        else:
            raise Refusal(f"`{ast.unparse(pairs)[:60]}`: name the layers in a list of pairs", pairs)

    def fill_pair(self, name, pair):
        self.out(f"{name}->push_back({self.code(pair.elts[0])}, {self.module_text(pair.elts[1])});")

    def push(self, name, node, listed=False):
        """Puts one module into a list; of a choice between two classes each has a statement of its own."""
        choice = self.chosen_call(node)
        node = choice or node
        both = [self.kind(node.body), self.kind(node.orelse)] if isinstance(node, ast.IfExp) else []
        if choice is not None or kinds.NONE in both or isinstance(merge(both), Many):
            self.each_choice(node, lambda part: self.push(name, part, listed))
        else:
            any_class = listed and names.is_any_module(self.kind(node)) and not names.holds_container(self.kind(node))
            self.out(f"{name}->push_back({self.module_text(node)}{'.ptr()' if any_class else ''});")

    def each_choice(self, node, put):
        """Writes an if with a branch for each part of a choice, which `put` writes; a choice of the source's in it stands in the else, with
        what its test needs."""
        head, made = f"if ({self.condition(node.test)}) {{", True
        while made:
            self.out(head)
            self.depth += 1
            put(node.body)
            self.depth -= 1
            node = node.orelse
            made = isinstance(node, ast.IfExp) and node.uid < 0
            head = f"}} else if ({self.condition(node.test)}) {{" if made else "} else {"
        self.out(head)
        self.depth += 1
        put(node)
        self.depth -= 1
        self.out("}")

    def chosen_call(self, node):
        """The call of a name that stands for one of several classes, as a choice between calls; None for anything else."""
        choice = self.choices.get(getattr(node.func, "id", None)) if isinstance(node, ast.Call) else None
        if choice is None:
            return self.made_by_word(node)
        calls = (ast.copy_location(ast.Call(part, node.args, node.keywords), node) for part in (choice.body, choice.orelse))
        node = ast.copy_location(ast.IfExp(choice.test, *calls), node)
        for part in (node, node.body, node.orelse):
            part.uid = -next(self.unit.counter)
        return node

    def made_by_word(self, node):
        """The call of an expression that is a word for one of several classes, functions or partials, as a choice between calls; else None."""
        sites = self.maker_sites(node.func.id) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not self.blind else []
        sites = [site for site in sites if self.raw_kinds(site) & self.raw_kinds(node.func)]
        found = kinds.makers(self.kind(node.func)) if isinstance(node, ast.Call) and self.static(node.func) is None else ()
        if not found and not sites:
            return None
        makers = {ast.unparse(site): site for site in sites} or {
            names.maker_word(kind): self.static_name(kind.cls if isinstance(kind, Class) else kind.function, node) for kind in found}
        self.check_entry(self.code(node.func), list(makers))
        chosen = None
        for word, maker in reversed(makers.items()):
            call = self.call_of_partial(maker, node) if isinstance(maker, ast.Call) else ast.copy_location(ast.Call(maker, node.args, node.keywords), node)
            call.uid = -next(self.unit.counter)
            if chosen is not None:
                test = self.stand_for(f"{self.primary(node.func)} == {schema.literal(word)}", kinds.BOOL, node, UNKNOWN)
                chosen = ast.copy_location(ast.IfExp(test, call, chosen), node)
                chosen.uid = -next(self.unit.counter)
            else:
                chosen = call
        return chosen

    def maker_sites(self, name):
        """What a local is given that is only called, is functools.partial(...) somewhere and is several things: C++ holds the text of each as a word. []
        for any other name."""
        stores = [n for n in ast.walk(self.function) if isinstance(n, ast.Name) and n.id == name and not isinstance(n.ctx, ast.Load)]
        if len(stores) < 2 or name in self.locals and self.locals[name] != kinds.STR:
            return []
        values = [n.value for n in ast.walk(self.function) if isinstance(n, ast.Assign) and len(n.targets) == 1 and n.targets[0] in stores]
        made = [isinstance(value, ast.Call) and self.static(value.func) is functools.partial for value in values]
        called = {id(n.func) for n in ast.walk(self.function) if isinstance(n, ast.Call)}
        loads = [n for n in ast.walk(self.function) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)]
        if len(values) < len(stores) or not any(made) or any(id(n) not in called for n in loads) or not all(
            partial or callable(self.static(value)) for partial, value in zip(made, values, strict=True)):
            return []
        ran = [value for value in values if self.unit.recorder.kind(value, self.owners) is not None]
        stored = self.times_stored()
        for value in (value for value in ran if isinstance(value, ast.Call)):
            for part in (n for given in [*value.args[1:], *(k.value for k in value.keywords)] for n in ast.walk(given)):
                kept = isinstance(part, ast.Constant | ast.expr_context) or isinstance(part, ast.Name) and stored[part.id] < 2
                if not kept and self.static(part) is None:
                    raise Refusal(f"`{ast.unparse(value)[:60]}`: give it names that keep their values, as {name} is called later", value)
        return ran

    def call_of_partial(self, made, node):
        """The call that a call of functools.partial(...) makes."""
        given = {keyword.arg for keyword in node.keywords}
        return recalled(node, made.args[0], [*made.args[1:], *node.args], [keyword for keyword in made.keywords if keyword.arg not in given] + node.keywords)

    def parameter(self, node, made=None):
        """The text of an nn.Parameter, or of one of an expression; `made`: of what that call is given."""
        return f"{self.primary(node)}.detach().set_requires_grad({self.wants_gradient(made or node) or 'true'})"

    def wants_gradient(self, node):
        """The text of requires_grad of an nn.Parameter(...), None if it is not given."""
        made = isinstance(node, ast.Call) and self.static(node.func) is nn.Parameter
        given = [*node.args[1:2], *(k.value for k in node.keywords if k.arg == "requires_grad")] if made else []
        return self.condition(given[0]) if given else None

    def put_parameter(self, name, node):
        self.out(f"{name}->append({self.parameter(node)});")

    def put_entry(self, target, kind, key, value):
        """Puts a module or a parameter into an nn.ModuleDict or nn.ParameterDict."""
        if kind.cls is nn.ParameterDict:
            self.out(f"{target}->insert({key}, {self.parameter(value)});")
        else:
            self.update(target, [(key, self.code(value))])

    def fill_from(self, name, value, sequential):
        """Pushes the modules of a list that was built before."""
        code, kind = self.code(value), self.listed(value)
        if isinstance(kind, Module):
            self.out(f"for (const auto& module : *{code}) {name}->push_back({self.typed_child(value) if sequential and kind.cls is nn.ModuleList else 'module'});")
        else:
            pointer = ".ptr()" if self.any_modules(value) and not sequential else ""
            layers = sequential and getattr(self.kind(value), "item", None) == Module(nn.Sequential)
            self.out(f"for (const auto& module : {code}) {name}->push_back({self.as_layer('module') if layers else 'module' + pointer});")

    def typed_child(self, container):
        """A module of an nn.ModuleList, `module`, as a layer of an nn.Sequential, which calls it."""
        kind = self.child_kind(container, container)
        if not isinstance(kind, Module) or kind.cls in (nn.Module, nn.ModuleList, nn.ModuleDict):
            raise Refusal(f"an nn.Sequential of an nn.ModuleList of {names.describe(kind)}; make the list an nn.Sequential", container)
        layer = f"{names.holder(kind)}(std::dynamic_pointer_cast<{names.implementation(kind)}>(module))"
        return self.as_layer(layer) if kind.cls is nn.Sequential else layer

    def any_modules(self, node):
        kind = self.locals.get(node.id) if isinstance(node, ast.Name) and node.id in self.locals else self.kind(node)
        return isinstance(kind, List) and isinstance(kind.item, Many)

    def fill_dict(self, cls, name, items, node):
        if items is None:
            pairs = []
        elif isinstance(items, ast.Dict):
            pairs = list(zip(items.keys, items.values, strict=True))
        elif isinstance(items, ast.Call) and self.static(items.func) is dict and not items.args:
            pairs = [(ast.Constant(k.arg), k.value) for k in items.keywords]
        elif isinstance(items, ast.DictComp) and len(items.generators) == 1:
            one = items.generators[0]
            self.loop(one.iter, one.target, lambda: self.put_entry(name, Module(cls), self.code(items.key), items.value), node)
            return
        elif isinstance(items, ast.Name) and items.id in self.named_layers:
            self.out(f"{name}->update({identifier(items.id)});")
            return
        elif isinstance(items, ast.Name) and items.id in self.dicts:
            self.update(name, [(f'"{key}"', text) for key, text in self.dicts[items.id]])
            return
        else:
            raise Refusal("an nn.ModuleDict of anything but a display", node)
        if cls is nn.ParameterDict:  # drawn in this order, kept in that of their names
            drawn = {self.constant(key): self.local_copy(value, "drawn") for key, value in pairs}
            for key in sorted(drawn):
                self.out(f"{name}->insert({self.literal(key)}, {drawn[key]}.detach().set_requires_grad(true));")
            return
        words = [self.code(key) if hasattr(key, "uid") else self.literal(key.value) for key, _ in pairs]
        self.update(name, [(word, self.code(value)) for word, (_, value) in zip(words, pairs, strict=True)])

    def update(self, name, pairs):
        """Puts modules into an nn.ModuleDict; C++ evaluates a list in braces in its order."""
        if pairs:
            self.out(f"{name}->update({{{', '.join(f'{{{word}, {module}.ptr()}}' for word, module in pairs)}}});")

    def module_text(self, node):
        """A module as an entry of a container."""
        if self.kind(node) == kinds.NONE:
            return "std::make_shared<torch::nn::Module>()"  # an entry that is of no class
        code, container = self.code(node), self.kind(node) == Module(nn.Sequential)
        inner = container and any(child is m for other in self.unit.instances.get(nn.Sequential, {}).values() for child in other for m in self.modules(node))
        return self.as_layer(code) if inner else code

    def as_layer(self, code):
        """An nn.Sequential that is a layer of another one, or in a list of layers of any class."""
        self.unit.helper("as_layer")
        return f"NestedSequential({code})"

    def config(self, cls, node):
        """A constructor call of a class that only holds values."""
        kind = self.kind(node)
        plain = issubclass(cls, dict) and cls.__init__ is dict.__init__ or cls is types.SimpleNamespace or hasattr(cls, "__dataclass_fields__") or hasattr(cls, "_fields")
        own = inspect.isfunction(cls.__init__) and self.unit.loaded.definition(cls.__init__) is not None
        plain &= not own
        if not isinstance(kind, Config) or not plain and not own and self.cls is not None:
            raise Refusal(f"{cls.__name__}(...) is no module; make it a dataclass, or a function that returns tensors", node)
        self.unit.struct(kind)
        if own and self.path != DRIVER:
            return f"{self.unit.function(cls.__init__, node, kind)}({', '.join(self.bind(cls.__init__, node))})"
        finish = self.unit.loaded.definition(getattr(cls, "__post_init__", None))
        computes = finish and any(isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) for n in ast.walk(finish[1]))
        if not plain or computes and self.path == DRIVER:
            return self.recorded_struct(self.unit.recorder.kind(node) or kind)  # of the command line
        if computes:
            raise Refusal(f"{cls.__name__}(...) computes fields in __post_init__; make it a function that returns them, or hand the object over", node)
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        order = list(kind.fields())
        given.update(zip(order, self.starless(node.args), strict=False))
        return self.struct_text(kind, given, node)

    def recorded_struct(self, kind):
        """A config with the values that it had; those of the first of its kind are the defaults."""
        held, given = self.unit.structs[kind.name], []
        for name, field in self.unit.struct_fields(held).items():
            value, usual = kind.fields().get(name), held.fields()[name]
            same = not isinstance(field, Optional) and (value is usual or kind_of(value) == kind_of(usual) and value == usual)
            if value is not None and not same and not isinstance(field, Config | Tensor):
                given.append(f".{identifier(name)} = {self.literal(value)}")
            else:
                self.unit.left_out.add((kind.name, name))
        return f"{kind.name}{{{', '.join(given)}}}"

    # Built-in functions.

    def call_dict(self, node):
        one = len(node.args) == 1 and not node.keywords and isinstance(self.kind(node.args[0]), Map | Config)
        return self.copied(node, self.kind(node), self.code(node.args[0])) if one and self.kind(node.args[0]) == self.kind(node) else self.config(dict, node)

    def class_list(self, node):
        """The classes of a list that C++ does not hold; () for any other expression."""
        held = self.static(node) if isinstance(node, ast.Name | ast.Attribute) else None
        return held if isinstance(held, tuple) and all(map(inspect.isclass, held)) else ()

    def call_len(self, node):
        if self.class_list(node.args[0]):
            return str(len(self.class_list(node.args[0])))
        kind, code = self.kind(node.args[0]), self.code(node.args[0])
        if isinstance(kind, Tensor):
            return f"{primary(code)}.size(0)"
        return f"static_cast<int64_t>({primary(code)}{'->' if isinstance(kind, Module) else '.'}size())"

    def call_min(self, node):
        name = node.func.id
        if len(node.args) == 1 and isinstance(self.kind(node.args[0]), Tensor):
            return self.of_array(f"{self.primary(node.args[0])}.{name}()", node)
        if len(node.args) == 1:
            items = self.local_copy(node.args[0], "items")
            return f"*std::{name}_element({items}.begin(), {items}.end())"
        kind = cpp_type(self.kind(node), node)
        texts = [self.number(a) if kind == "double" else self.plain(a) for a in node.args]
        return f"std::{name}<{kind}>({{{', '.join(texts)}}})" if len(texts) > 2 else f"std::{name}<{kind}>({', '.join(texts)})"

    call_max = call_min

    def of_array(self, code, node):
        """A tensor's text, as a number where Python has one of numpy's."""
        return f"{code}.item<{cpp_type(self.kind(node), node)}>()" if self.kind(node) in kinds.NUMBERS else code

    def call_abs(self, node):
        return f"std::abs({self.code(node.args[0])})" if not isinstance(self.kind(node.args[0]), Tensor) else f"{self.primary(node.args[0])}.abs()"

    def call_round(self, node):
        kind = self.kind(node.args[0])
        if len(node.args) > 1 or isinstance(kind, Tensor):
            raise Refusal("round with digits or of a tensor", node)
        return f"static_cast<int64_t>(std::nearbyint({self.number(node.args[0])}))"

    def call_pow(self, node):
        return f"std::pow({self.number(node.args[0])}, {self.plain(node.args[1])})"

    def call_divmod(self, node):
        self.unit.helper("floor_divide")
        self.unit.helper("modulo")
        a, b = (self.local_copy(part, "part") for part in node.args)
        return f"std::vector<{cpp_type(self.kind(node).items[0], node)}>{{floor_divide({a}, {b}), modulo({a}, {b})}}"

    def call_sum(self, node):
        argument = node.args[0]
        kind = self.kind(node)
        if isinstance(argument, ast.Tuple | ast.List) and argument.elts:
            return "(" + " + ".join(self.primary(item) for item in argument.elts) + ")"
        if isinstance(self.kind(argument), Tensor):
            return self.of_array(f"{self.primary(argument)}.sum(0)", node)
        items = self.local_copy(argument, "items")
        if isinstance(kind, Tensor):
            name = self.fresh("total")
            self.out(f"auto {name} = {items}[0];")
            self.out(f"for (size_t n = 1; n < {items}.size(); ++n) {name} = {name} + {items}[n];")
            return name
        self.unit.includes_std.add("numeric")
        return f"std::accumulate({items}.begin(), {items}.end(), {cpp_type(kind, node)}(0))"

    def call_prod(self, node):
        self.unit.includes_std.update(("numeric", "functional"))
        items = self.local_copy(node.args[0], "items")
        kind = cpp_type(self.kind(node), node)
        return f"std::accumulate({items}.begin(), {items}.end(), {kind}(1), std::multiplies<{kind}>())"

    def call_reduce(self, node):
        values = set(self.values(node))
        raise Refusal(f"functools.reduce ({len(values)} values); write the loop", node)

    def call_isinstance(self, node):
        known = self.always(node)
        if self.blind and node.func.id == "isinstance":
            classes = self.static(node.args[1])
            classes = [self.static(c) for c in node.args[1].elts] if classes is None else [classes]
            kind = self.kind(node.args[0])
            of = {kinds.INT: int, kinds.FLOAT: float, kinds.BOOL: bool, kinds.STR: str}.get(kind) or {Tuple: tuple, List: list, Tensor: torch.Tensor, Size: torch.Size}.get(type(kind))
            known = None if of is None else any(issubclass(of, c) for c in classes)
        if node.func.id == "isinstance" and isinstance(node.args[0], ast.Name) and node.args[0].id in self.narrowed:
            classes = node.args[1].elts if isinstance(node.args[1], ast.Tuple) else [node.args[1]]
            return "true" if issubclass(self.narrowed[node.args[0].id].cls, tuple(self.static(c) for c in classes)) else "false"
        if node.func.id == "hasattr" and isinstance(node.args[0], ast.Name) and node.args[0].id in self.narrowed:
            found = {hasattr(m, self.constant(node.args[1])) for m in self.unit.instances.get(self.narrowed[node.args[0].id].cls, {}).values()}
            known = found.pop() if len(found) == 1 else None
        if self.blind and node.func.id == "callable":
            kind = self.kind(node.args[0])
            known = isinstance(kind, Function | Class | Module) or kind == kinds.CALLABLE or isinstance(self.static(node.args[0]), types.FunctionType)
        asked = {int: kinds.INT, float: kinds.FLOAT, str: kinds.STR}.get(self.static(node.args[1])) if node.func.id == "isinstance" and known is None else None
        if names.is_mixed(self.kind(node.args[0])) and asked in self.kind(node.args[0]).kinds:
            return f"std::holds_alternative<{cpp_type(asked)}>({self.code(node.args[0])})"
        if known is None and node.func.id == "hasattr" and self.is_self(node.args[0]) and isinstance(name := self.constant(node.args[1]), str):
            self.cls.use(name, self.unit.attribute_kind(self.cls, name))
            if isinstance(self.cls.members.get(name), Tensor):
                return f"{self.member(name)}.defined()"
        if known is None:
            raise Refusal(f"`{ast.unparse(node)[:60]}` has both answers; test it in an if of its own", node)
        return "true" if known else "false"

    call_hasattr = call_callable = call_issubclass = call_isinstance

    def is_named_entry(self, node):
        """Whether it reads an attribute whose name is put together, or an entry of a module's dicts."""
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "getattr":
            return not isinstance(self.constant(node.args[1]), str) and (self.is_self(node.args[0]) or isinstance(self.kind(node.args[0]), Module))
        held = node.value if isinstance(node, ast.Subscript) else None
        dicts = isinstance(held, ast.Attribute) and held.attr in ("_modules", "_parameters", "_buffers")
        return dicts and (self.is_self(held.value) or isinstance(self.kind(held.value), Module))

    def named_entry(self, owner, word, node):
        """A module's child, parameter or buffer whose name is put together."""
        kind = self.kind(node)
        if not self.is_named_entry(node):
            raise Refusal("getattr with a name that is no constant", node)
        if isinstance(kind, Tensor):
            self.unit.helper("tensor_named")
            return f"tensor_named({self.referred(owner)}, {self.code(word)})"
        if not isinstance(kind, Module) and not names.is_any_module(kind):
            raise Refusal(f"`{ast.unparse(node)[:60]}`, {names.describe(kind)} with a name that is no constant", node)
        cast = f"->{'template ' if self.in_template else ''}as<{names.implementation(kind)}>()" if isinstance(kind, Module) and kind.cls is not nn.Module else ""
        return f"{self.reached(owner)}named_children()[{self.code(word)}]{cast}"

    def call_getattr(self, node):
        name = self.constant(node.args[1])
        owner = node.args[0]
        if not isinstance(name, str):
            return self.named_entry(owner, node.args[1], node)
        if self.is_self(owner):
            if self.kind(node) == kinds.NONE and name not in self.cls.members:
                return "{}"
            self.cls.use(name, self.kind(node))
            return self.member(name)
        if name in ("__len__",):
            raise Refusal(f"getattr of {name}", node)
        kind = self.kind(owner)
        if isinstance(kind, Config):
            return f"{self.primary(owner)}.{identifier(name)}" if name in kind.fields() else self.code(node.args[2])
        raise Refusal(f"`{ast.unparse(node)[:60]}` has no translation", node)

    def call_map(self, node):
        function, items = node.args[0], node.args[1]
        if isinstance(function, ast.Call) and getattr(self.static(function.func), "__name__", "") == "itemgetter" and len(function.args) == 1:
            each = ast.copy_location(ast.Name(self.fresh("each"), ast.Load()), node)
            entry = ast.copy_location(ast.Subscript(each, function.args[0], ast.Load()), node)
            function = ast.copy_location(ast.Lambda(ast.arguments([], [ast.arg(each.id)], None, [], [], None, []), entry), node)
            each.uid = entry.uid = -next(self.unit.counter)
            kind = self.element_kind(self.kind(items), 0)
            self.substitute(entry, f"{each.id}[{self.code(function.body.slice)}]", kind.items[0])
        partial, before, keywords = isinstance(function, ast.Call) and self.static(function.func) is functools.partial, [], []
        if partial:
            (function, *before), keywords = function.args, function.keywords
        if not isinstance(function, ast.Name | ast.Attribute) and (partial or not isinstance(function, ast.Lambda)):
            raise Refusal("map of a function that is made there; write a comprehension", node)
        if isinstance(function, ast.Lambda):
            targets, body = [ast.Name(a.arg, ast.Store()) for a in function.args.args], function.body
            item = self.unit.recorder.kind(body, self.owners) or self.kind(body)
        else:
            targets = [ast.Name(self.fresh("each"), ast.Store()) for _ in node.args[1:]]
            given = [ast.copy_location(ast.Name(target.id, ast.Load()), node) for target in targets]
            body = ast.copy_location(ast.Call(function, [*before, *given], keywords), node)
            for part in (body, *given):
                part.uid = -next(self.unit.counter)
            item, kind = self.mapped_kind(function, items), self.element_kind(self.kind(items), 0)
            if partial and len(given) == 1 and isinstance(kind, Tuple) and kinds.is_tensors(kind):
                parts = ", ".join(f"std::get<{n}>({given[0].id})" for n in range(len(kind.items)))
                self.substitute(given[0], f"std::vector<torch::Tensor>{{{parts}}}", List(kind.items[0], len(kind.items)))
        target = targets[0]
        if len(targets) > 1:
            items = ast.copy_location(ast.Call(ast.Name("zip", ast.Load()), node.args[1:], []), node)
            target = ast.Tuple(targets, ast.Store())
            items.uid = items.func.uid = -next(self.unit.counter)
        name = self.fresh("items")
        self.out(f"std::vector<{cpp_type(item, node)}> {name};")
        self.loop(items, target, lambda: self.out(f"{name}.push_back({self.code(body)});"), node)
        return name

    def call_reduce(self, node):
        """functools.reduce as a loop."""
        function, items, kind = node.args[0], node.args[1], self.kind(node)
        sign = {operator.mul: "*", operator.add: "+"}.get(self.static(function))
        item = self.element_kind(self.kind(items), 0)
        if not isinstance(kind, Tensor) and kind not in kinds.NUMBERS or not (isinstance(function, ast.Lambda) and len(function.args.args) == 2 or sign and (isinstance(item, Tensor) or item in kinds.NUMBERS)):
            raise Refusal(f"`{ast.unparse(node)[:60]}` has no translation; write a loop", node)
        list_, whole, count = self.local_copy(self.stand_for(self.as_vector(items), self.kind(items), items), "items"), self.fresh("whole"), self.fresh("n")
        start = self.held(self.code(node.args[2]), self.kind(node.args[2]), kind) if len(node.args) > 2 else f"{list_}.at(0)"
        self.out(f"{cpp_type(kind, node)} {whole} = {start};")
        self.out(f"for (size_t {count} = {0 if len(node.args) > 2 else 1}; {count} < {list_}.size(); ++{count}) {{")
        self.depth += 1
        saved, each = dict(self.inline), f"{list_}[{count}]"
        if not sign:
            self.inline.update(zip([a.arg for a in function.args.args], [(whole, kind, UNKNOWN), (each, item, UNKNOWN)], strict=True))
        self.out(f"{whole} = {f'{whole} {sign} {each}' if sign else self.code(function.body)};")
        self.inline, self.depth = saved, self.depth - 1
        self.out("}")
        return whole

    def call_filter(self, node):
        """filter as a comprehension."""
        function, items = node.args
        each = ast.copy_location(ast.Name(function.args.args[0].arg if isinstance(function, ast.Lambda) else self.fresh("each"), ast.Load()), node)
        test = function.body if isinstance(function, ast.Lambda) else each if is_none(function) else recalled(node, function, [each], [])
        each.uid, test.uid = -next(self.unit.counter), test.uid if isinstance(function, ast.Lambda) else -next(self.unit.counter)
        target = ast.copy_location(ast.Name(each.id, ast.Store()), node)
        made = ast.copy_location(ast.ListComp(each, [ast.comprehension(target, items, [test], 0)]), node)
        made.uid = -next(self.unit.counter)
        self.substitute(made, "", self.kind(node))
        return self.code_ListComp(made)

    def mapped_kind(self, function, items):
        """The kind of an item of map(function, items)."""
        own = isinstance(function, ast.Attribute) and self.is_self(function.value) and self.cls is not None
        target = getattr(self.cls.cls, function.attr, None) if own else self.static(function)
        if target in (int, float, bool, str):
            return {int: kinds.INT, float: kinds.FLOAT, bool: kinds.BOOL, str: kinds.STR}[target]
        definition = self.unit.loaded.definition(target) if inspect.isfunction(target) else None
        known = self.unit.recorder.returns(definition[1]) if definition else None
        return known if known is not None else Tensor(rank=getattr(self.element_kind(self.kind(items), 0), "rank", None))

    def zipped(self, node):
        """The arguments of zip, with `*map(reversed, (a, b))` spread."""
        call = node.args[0].value if len(node.args) == 1 and isinstance(node.args[0], ast.Starred) else None
        if not (isinstance(call, ast.Call) and self.static(call.func) is map and isinstance(call.args[1], ast.Tuple | ast.List)):
            return node.args
        if getattr(call, "spread", None) is None:
            call.spread = [ast.copy_location(ast.Call(call.args[0], [part], []), node) for part in call.args[1].elts]
            for part in call.spread:
                part.uid = -next(self.unit.counter)
        return call.spread

    def call_zip(self, node):
        """zip or enumerate as a list of tuples."""
        item, name = self.element_kind(self.kind(node), 0), self.fresh("pairs")
        parts = [ast.copy_location(ast.Name(self.fresh("part"), ast.Store()), node) for _ in (self.zipped(node) if node.func.id == "zip" else "ab")]
        self.out(f"std::vector<{cpp_type(item, node)}> {name};")
        self.loop(node, ast.Tuple(parts, ast.Store()), lambda: self.out(f"{name}.push_back({{{', '.join(part.id for part in parts)}}});"), node)
        return name

    call_enumerate = call_zip

    def factors(self, node):
        """The arguments of itertools.product."""
        repeat = next((self.constant(k.value) for k in node.keywords if k.arg == "repeat"), 1)
        if not isinstance(repeat, int) or any(isinstance(a, ast.Starred) for a in node.args):
            raise Refusal("itertools.product of a number of lists that is no constant", node)
        return [*node.args] * repeat

    def call_product(self, node):
        """itertools.product as a list of tuples."""
        item, name = self.element_kind(self.kind(node), 0), self.fresh("items")
        parts = [ast.copy_location(ast.Name(self.fresh("part"), ast.Store()), node) for _ in self.factors(node)]
        self.out(f"std::vector<{cpp_type(item, node)}> {name};")
        inner = lambda: self.out(f"{name}.push_back({{{', '.join(part.id for part in parts)}}});")
        for items, part in reversed(list(zip(self.factors(node), parts, strict=True))):
            inner = functools.partial(self.loop, items, part, inner, node)
        inner()
        return name

    def call_combinations(self, node):
        """itertools.combinations as a list of tuples."""
        length, (item, _) = self.indexable(node.args[0], "@")
        name, places = self.fresh("chosen"), [self.fresh("at") for _ in range(self.count(node.args[1]))]
        self.out(f"std::vector<{cpp_type(self.element_kind(self.kind(node), 0), node)}> {name};")
        for before, place in zip([None, *places], places, strict=False):
            self.out(f"for (int64_t {place} = {before + ' + 1' if before else 0}; {place} < {length}; ++{place})")
            self.depth += 1
        self.out(f"{name}.push_back({{{', '.join(item.replace('@', place) for place in places)}}});")
        self.depth -= len(places)
        return name

    def call_any(self, node):
        word = node.func.id
        if isinstance(node.args[0], ast.List | ast.Tuple):
            both = ast.copy_location(ast.BoolOp(ast.Or() if word == "any" else ast.And(), node.args[0].elts), node)
            both.uid = node.uid
            return self.code_BoolOp(both)
        argument, kind = node.args[0], self.kind(node.args[0])
        written = isinstance(argument, ast.GeneratorExp | ast.ListComp)
        if not written and (is_numbers(kind) or isinstance(kind, Size) or isinstance(kind, List) and kind.item in kinds.NUMBERS):
            items = self.local_copy(argument, "items")
            self.unit.includes_std.add("algorithm")
            return f"std::{word}_of({items}.begin(), {items}.end(), [](auto item) {{ return item != 0; }})"
        name = self.fresh(word)
        if not written or len(argument.generators) > 1:
            raise Refusal(f"{word} of anything but a comprehension", node)
        self.out(f"bool {name} = {'false' if word == 'any' else 'true'};")
        one = argument.generators[0]
        tests = "".join(f"{self.condition(test)} && " for test in one.ifs)
        self.loop(one.iter, one.target, lambda: self.out(
            f"{name} = {name} {'||' if word == 'any' else '&&'} ({tests}{self.condition(argument.elt)});" if word == "any" or not tests else
            f"if ({tests[:-4]}) {name} = {name} && ({self.condition(argument.elt)});"), argument)
        return name

    call_all = call_any

    def call_next(self, node):
        argument = node.args[0]
        if isinstance(argument, ast.Call) and isinstance(argument.func, ast.Attribute) and argument.func.attr == "parameters":
            return f"{self.code(argument)}.front()"
        raise Refusal(f"`{ast.unparse(node)[:60]}` has no translation", node)

    def call_range(self, node):
        self.unit.helper("range_of")
        low, high, *step = [self.code(a) for a in (node.args if len(node.args) > 1 else [ast.Constant(0), *node.args])]
        return f"range_of({', '.join([low, high, *step])})"

    def key_of(self, node):
        """A key that is read twice."""
        return self.literal(self.constant(node)) if isinstance(self.constant(node), str | int) else self.local_copy(node, "key")

    def set_of(self, node, kind):
        """What may be iterated, as a set."""
        if isinstance(self.kind(node), kinds.Set):
            return self.code(node)
        listed = isinstance(self.kind(node), Map)
        items = self.local_copy(self.stand_for(self.as_vector(node), List(kind.item), node) if listed else node, "items")
        return f"{cpp_type(kind, node)}({items}.begin(), {items}.end())"

    def call_set(self, node):
        kind = self.kind(node)
        if not isinstance(kind, kinds.Set):
            raise Refusal(f"`{ast.unparse(node)[:60]}` has no translation", node)
        return self.set_of(node.args[0], kind) if node.args else f"{cpp_type(kind, node)}{{}}"

    call_frozenset = call_set

    def call_sorted(self, node):
        item = getattr(self.kind(node), "item", None)
        if node.keywords or not isinstance(self.kind(node), List) or item not in (*kinds.NUMBERS, kinds.STR) and not is_numbers(item):
            raise Refusal("sorted of anything but numbers or words, or by a key, has no translation", node)
        name = self.fresh("sorted")
        self.out(f"auto {name} = {self.as_vector(node.args[0])};")
        self.out(f"std::sort({name}.begin(), {name}.end());")
        return name

    def call_print(self, node):
        raise Refusal("print inside of an expression", node)


def where_of(target):
    """Which of torch's namespaces a function is from."""
    module = getattr(target, "__module__", None) or ""
    name = getattr(target, "__name__", "")
    if module.startswith("torch.nn.init"):
        return "init"
    if module.startswith(("torch.utils", "torch.autograd", "torch.jit", "torch.fx", "torch.cuda", "torch.distributed")):
        return "refused"
    for where in ("special", "linalg", "fft"):
        if getattr(getattr(torch, where), name, None) is target:
            return where
    return "F" if getattr(F, name, None) is target and getattr(torch, name, None) is not target else "torch"


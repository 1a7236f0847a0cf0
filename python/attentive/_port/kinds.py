"""Kinds of Python values that a class was seen to compute with, and the C++ types that hold them."""

import dataclasses
import enum
import functools
import inspect
import types

import torch
from torch import nn


class Refusal(Exception):
    """Something that is not translated: the file and line, what it is, and what to change."""

    def __init__(self, why, node=None, path=None):
        super().__init__(why)
        self.why, self.path = why, path
        self.line = getattr(node, "lineno", None)

    def __str__(self):
        place = ":".join(str(part) for part in (self.path, self.line) if part is not None)
        return f"{place}: {self.why}" if place else self.why


class Kind:
    """A kind of value; equal kinds are held by one C++ type."""


@dataclasses.dataclass(frozen=True)
class Simple(Kind):
    name: str


NONE, INT, FLOAT, BOOL, STR = (Simple(name) for name in ("None", "int", "float", "bool", "str"))
DTYPE, DEVICE, RANGE, CALLABLE, SLICE = (Simple(name) for name in ("dtype", "device", "range", "callable", "slice"))
PACKED, FORMAT, GENERATOR = Simple("packed sequence"), Simple("memory format"), Simple("generator")
OPTIONS = Simple("options")  # of a layer of PyTorch, in C++
NUMBERS = (INT, FLOAT, BOOL)
_lambdas = {}  # one function for each lambda of the source, which Python makes anew whenever it runs
_partials = {}  # one object for equal ones
_keyed = {}  # dicts whose keys the code learns as it runs, with their kinds, by id


@dataclasses.dataclass(frozen=True)
class Tensor(Kind):
    """`dtype` is f, i, b or c (floating, integral, bool, complex), or ? if it varies; `rank` is None if it varies.
    `numpy`: it is an array, which C++ holds as a tensor."""

    dtype: str = "f"
    rank: int | None = None
    numpy: bool = False


@dataclasses.dataclass(frozen=True)
class Size(Kind):
    """torch.Size; `length` is None if it varies."""

    length: int | None = None


@dataclasses.dataclass(frozen=True)
class Tuple(Kind):
    items: tuple = ()


@dataclasses.dataclass(frozen=True)
class List(Kind):
    """`item` is None for a list that was always empty."""

    item: Kind | None = None
    length: int | None = None


@dataclasses.dataclass(frozen=True)
class Module(Kind):
    """`variant` tells apart uses of one class whose members are of different classes, and of PyTorch's those that C++ holds as a
    torch::nn::Functional."""

    cls: type
    variant: int = 0


@dataclasses.dataclass(frozen=True)
class Class(Kind):
    cls: type


@dataclasses.dataclass(frozen=True)
class Function(Kind):
    """A function with a name; lambdas and bound methods are CALLABLE."""

    function: object


_ANONYMOUS = ("SimpleNamespace", "Namespace", "dict", "AttrDict", "OrderedDict", "ConfigDict")


class Config(Kind):
    """An object that only holds values: a dataclass's, a namespace, a dict with words as keys."""

    inner_names = {}  # of namespaces within namespaces, by their ids
    seen = {}  # by class: its objects, by their ids

    def __init__(self, value):
        self.value = value
        if type(value).__name__ not in _ANONYMOUS:
            self.seen.setdefault(type(value), {})[id(value)] = value
        inner = value if isinstance(value, dict) else getattr(value, "__dict__", {})
        for name, item in inner.items():
            if isinstance(name, str) and type(item).__name__ in _ANONYMOUS:
                self.inner_names.setdefault(id(item), "".join(word.title() for word in name.split("_")) + "Config")

    def __eq__(self, other):
        return isinstance(other, Config) and (self.value is other.value or self.name == other.name)

    def __hash__(self):
        return hash(self.name)

    def __repr__(self):
        return f"Config({self.name})"

    @property
    def name(self):
        name = type(self.value).__name__
        return self.inner_names.get(id(self.value), "Config") if name in _ANONYMOUS else name

    def field_kind(self, name):
        """The kind that holds a field of all objects of the class."""
        objects = self.seen.get(type(self.value), {}).values()
        return merge([kind_of(getattr(other, name, None)) for other in objects] or [kind_of(self.fields()[name])])

    def fields(self):
        """Name and value of each field."""
        value = self.value
        if isinstance(value, dict):
            return dict(value)
        names = list(getattr(value, "_fields", ())) or list(getattr(value, "__dataclass_fields__", ()))
        names += [name for name in getattr(value, "__dict__", {}) if name not in names]
        constants = {
            name: item
            for cls in reversed(type(value).__mro__[:-1])
            for name, item in vars(cls).items()
            if not name.startswith("_") and not callable(item) and not isinstance(item, property | staticmethod | classmethod)
        }
        return {name: getattr(value, name) for name in names} | {name: item for name, item in constants.items() if name not in names}


@dataclasses.dataclass(frozen=True)
class Set(Kind):
    """`sorted`: Python gave its numbers in their order, which C++ keeps."""

    item: Kind
    sorted: bool


@dataclasses.dataclass(frozen=True)
class Map(Kind):
    """A dict whose keys are no words, or not known to the source. `sorted`: C++ keeps its order, that of its keys or, of words, its own."""

    key: Kind
    item: Kind
    sorted: bool


@dataclasses.dataclass(frozen=True)
class Optional(Kind):
    """A number, word or list that was None at times."""

    kind: Kind


@dataclasses.dataclass(frozen=True)
class Many(Kind):
    """Kinds that no C++ type holds together."""

    kinds: tuple


class Entries(dict):
    """A dict that a comprehension made: its keys may be words, which C++ does not know before."""


def kind_of(value):
    """The kind of one value."""
    if isinstance(value, torch.Tensor):
        dtype = value.dtype
        letter = "f" if dtype.is_floating_point else "c" if dtype.is_complex else "b" if dtype == torch.bool else "i"
        return Tensor(letter, value.dim())
    if value is None:
        return NONE
    if isinstance(value, enum.Enum) and not isinstance(value, enum.IntEnum):
        return Function(value)  # a constant
    if type(value) is int and abs(value) >= 2**63:
        return Many((Simple("an integer beyond 64 bits"),))
    for cls, kind in (
        *((bool, BOOL), (int, INT), (float, FLOAT), (str, STR), (torch.dtype, DTYPE), (type(torch.FloatTensor), DTYPE)),
        *((torch.device, DEVICE), (torch.memory_format, FORMAT), (torch.Generator, GENERATOR)),
    ):
        if isinstance(value, cls):
            return kind
    if isinstance(value, range):
        return RANGE
    if isinstance(value, slice):
        return SLICE
    if isinstance(value, torch.Size):
        return Size(len(value))
    if isinstance(value, nn.utils.rnn.PackedSequence):
        return PACKED
    if type(value).__name__ == "ndarray":
        return Tensor({"f": "f", "b": "b", "c": "c"}.get(value.dtype.kind, "i"), value.ndim, True) if value.dtype.kind in "fbciu" else Many((Simple("numpy"),))
    if type(value).__module__ == "numpy" and hasattr(value, "dtype"):
        return BOOL if value.dtype.kind == "b" else FLOAT if "float" in type(value).__name__ else INT if "int" in type(value).__name__ else Many((Simple("numpy"),))
    if isinstance(value, tuple) and not hasattr(value, "_asdict"):
        return Tuple(tuple(kind_of(item) for item in value))
    if isinstance(value, list) and len(set(map(type, value)) | set(map(id, value))) > 2 and all(isinstance(item, type) for item in value):
        return Tuple(tuple(Class(item) for item in value))  # of several classes, in their order
    if isinstance(value, list):
        return List(merge([kind_of(item) for item in value]), len(value))
    if isinstance(value, set | frozenset):
        item = merge([kind_of(item) for item in value]) or INT
        return Set(item, item in NUMBERS and list(value) == sorted(value))
    if isinstance(value, nn.Upsample | nn.SiLU | nn.Mish | nn.RMSNorm):
        from .modules import is_functional

        return Module(type(value), int(is_functional(type(value), value)))
    if isinstance(value, nn.Module):
        return Module(nn.Linear if type(value) is nn.modules.linear.NonDynamicallyQuantizableLinear else type(value))
    if isinstance(value, type):
        return Class(value)
    if isinstance(value, types.ModuleType):
        return Simple("module")
    if callable(value) and not hasattr(value, "__dict__") or inspect.isroutine(value):
        name = getattr(value, "__qualname__", "<")
        if name.endswith("<lambda>") and value.__closure__ is None and not value.__defaults__ and not value.__kwdefaults__:
            return Function(_lambdas.setdefault(value.__code__, value))
        return CALLABLE if "<" in name or inspect.ismethod(value) else Function(value)
    if isinstance(value, functools.partial):
        try:
            return Function(_partials.setdefault((value.func, value.args, *sorted(value.keywords.items())), value))
        except TypeError:  # of what has no hash, or no order
            return Function(value)
    return map_kind(value) or Config(value)


def keyed(value):
    """Notes a dict whose keys the code learns as it runs, and returns it."""
    if isinstance(value, dict):
        known = _keyed.setdefault(id(value), [value, None])
        known[1] = map_kind(value) or known[1]  # it may be empty in the end
    return value


def map_kind(value, alike=False):
    """The kind of a dict whose keys are no words, or not known to the source, of values of one kind; None for anything else. `alike`: C++ holds another
    one in its place so."""
    words = isinstance(value, dict) and all(isinstance(key, str) for key in value)
    if not isinstance(value, dict) or words and not (alike or value and isinstance(value, Entries) or id(value) in _keyed):
        return None
    if words and not value and not alike:
        return _keyed[id(value)][1]
    key, item = (merge([kind_of(part) for part in parts]) for parts in (value, value.values()))
    inner = item.kind if isinstance(item, Optional) else item
    if words and (isinstance(item, Many) or not isinstance(value, Entries) and isinstance(inner, Module | Class | Function | Config | Simple) and inner not in (*NUMBERS, STR)):
        return None
    comparable = key in NUMBERS or is_numbers(key)
    return Map(key, item, words or comparable and list(value) == sorted(value))


def settled(kind, alike=False):
    """A kind that was seen before it was known how the code uses its dicts."""
    if isinstance(kind, Config):
        return map_kind(kind.value, alike) or kind
    if isinstance(kind, Tuple):
        return Tuple(tuple(settled(item) for item in kind.items))
    return List(settled(kind.item), kind.length) if isinstance(kind, List) else kind


def makes(kind):
    """The class of the modules that a class or a partial of one makes; None for any other kind."""
    cls = kind.cls if isinstance(kind, Class) else getattr(kind.function, "func", None) if isinstance(kind, Function) else None
    return cls if isinstance(cls, type) and issubclass(cls, nn.Module) else None


def makers(kind):
    """The classes and partials that one name stands for, which C++ tells apart by words; () for any other kind."""
    some = [k for k in kind.kinds if k != NONE] if isinstance(kind, Many) else []
    return tuple(some) if len(some) > 1 and all(map(makes, some)) else ()


def merge(kinds):
    """One kind for all; None for none."""
    kinds = [settled(k) for kind in kinds if kind is not None for k in (kind.kinds if isinstance(kind, Many) else (kind,))]
    alike = any(isinstance(kind, Map) and kind.key == STR for kind in kinds)
    kinds = list(dict.fromkeys(settled(kind, True) if alike else kind for kind in kinds))
    if len(kinds) < 2:
        return kinds[0] if kinds else None
    some = [kind for kind in kinds if kind != NONE]
    if all(isinstance(kind, Map) for kind in some):
        whole = Map(merge([kind.key for kind in some]), merge([kind.item for kind in some]), all(kind.sorted for kind in some))
        return whole if len(kinds) == len(some) or NONE not in kinds else Optional(whole)
    if all(isinstance(kind, Set) for kind in some) and len(kinds) == len(some):
        return Set(merge([kind.item for kind in some]), all(kind.sorted for kind in some))
    first = some[0]
    if all(map(makes, some)):
        return Many(tuple(some)) if len(some) > 1 else Optional(first)
    if len(some) == 1 and isinstance(first, Function):
        return CALLABLE
    if len(some) == 1:
        return first if isinstance(first, Tensor | Module | Optional) or first == CALLABLE else Optional(first)
    if len(some) < len(kinds):
        inner = merge(some)
        return inner if isinstance(inner, Tensor | Module | Many | Optional) else Optional(inner)
    if all(isinstance(kind, Tensor) for kind in some):
        letters, ranks = {kind.dtype for kind in some}, {kind.rank for kind in some}
        return Tensor(letters.pop() if len(letters) == 1 else "?", ranks.pop() if len(ranks) == 1 else None, all(kind.numpy for kind in some))
    if any(isinstance(kind, Optional) for kind in some):
        inner = merge([kind.kind if isinstance(kind, Optional) else kind for kind in some])
        return inner if isinstance(inner, Many) else Optional(inner)
    if FLOAT in some and set(some) <= set(NUMBERS):
        return FLOAT
    if set(some) <= {INT, BOOL}:
        return INT
    if all(isinstance(kind, Size | List) or is_numbers(kind) for kind in some) and any(isinstance(kind, Size) for kind in some):
        return Size(None)
    if all(isinstance(kind, Tuple) for kind in some):
        if len({len(kind.items) for kind in some}) == 1:
            return Tuple(tuple(merge(items) for items in zip(*(kind.items for kind in some), strict=True)))
        if all(is_numbers(kind) or is_tensors(kind) or not kind.items for kind in some):
            return List(merge([item for kind in some for item in kind.items]))
    if all(isinstance(kind, List) or kind == Tuple() or is_tensors(kind) or is_numbers(kind) for kind in some):
        some = [kind if isinstance(kind, List) else List(merge(list(kind.items)), len(kind.items)) for kind in some]
        lengths = {kind.length for kind in some}
        return List(merge([kind.item for kind in some]), lengths.pop() if len(lengths) == 1 else None)
    if all(isinstance(kind, Function | Module) or kind == CALLABLE for kind in some) and not all(isinstance(kind, Module) for kind in some):
        return CALLABLE
    return Many(tuple(some))


def promoted(kind):
    """What C++ holds where Python has a tensor or a number: a tensor."""
    if isinstance(kind, Many) and any(isinstance(k, Tensor) for k in kind.kinds) and all(isinstance(k, Tensor) or k in NUMBERS for k in kind.kinds):
        return merge([k for k in kind.kinds if isinstance(k, Tensor)])
    return Tuple(tuple(map(promoted, kind.items))) if isinstance(kind, Tuple) else kind


def classes(kind):
    """The classes of a list or tuple of nothing but classes, which C++ has no type for."""
    items = kind.items if isinstance(kind, Tuple) else (kind.item,) * (kind.length or 0) if isinstance(kind, List) else ()
    return tuple(item.cls for item in items) if all(isinstance(item, Class) for item in items) else ()


def with_more(kind):
    """What C++ returns where some calls of a function return a tensor, and others a tuple that begins with it: that tuple."""
    several = [k for k in kind.kinds if not isinstance(k, Tensor)] if isinstance(kind, Many) else []
    whole = merge(several)
    named = isinstance(whole, Config) and hasattr(whole.value, "_fields")
    first = kind_of(whole.value[0]) if named else whole.items[0] if isinstance(whole, Tuple) and whole.items else None
    return whole if len(several) < len(getattr(kind, "kinds", ())) and isinstance(first, Tensor) else kind


def is_numbers(kind):
    """Whether it is a tuple of numbers, words or slices of one kind, which C++ holds as a vector."""
    return isinstance(kind, Tuple) and bool(kind.items) and kind.items[0] in (*NUMBERS, STR, SLICE) and all(item == kind.items[0] for item in kind.items)


def is_tensors(kind):
    """Whether it is a tuple or list of tensors."""
    items = kind.items if isinstance(kind, Tuple) else (kind.item,) if isinstance(kind, List) else ()
    return bool(items) and all(isinstance(item, Tensor) for item in items)


def is_own(cls):
    """Whether a module's class is translated: neither PyTorch's nor einops'."""
    return cls.__module__.split(".")[0] not in ("torch", "einops")


UNKNOWN = object()


@dataclasses.dataclass
class Operand:
    """An argument of a call: its C++ text, its kind, and its value where the source writes a constant (else UNKNOWN)."""

    code: str
    kind: Kind
    constant: object = UNKNOWN

    @property
    def primary(self):
        """The text, in parentheses if a `.` or an operator could not follow it."""
        return primary(self.code)


def primary(code):
    """`code`, in parentheses if a `.` or an operator could not follow it."""
    depth = 0
    for at, letter in enumerate(code):
        depth += (letter in "([{") - (letter in ")]}")
        if depth == 0 and (letter in " +*/%?<=&|" or (letter in "-!~" and code[at : at + 2] != "->")):
            return f"({code})"
    return code

"""Names of C++: words that it reserves, what torch::nn::Module already calls something, and the types of kinds."""

import re

import torch
from torch import nn

from . import kinds
from .kinds import Config, Kind, List, Many, Map, Module, Optional, Refusal, Size, Tensor, Tuple, is_numbers, is_own

_WORDS = set(
    "alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl concept const const_cast consteval "
    "constexpr constinit continue co_await co_return co_yield decltype default delete do double dynamic_cast else enum explicit "
    "export extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or "
    "or_eq private protected public register reinterpret_cast requires return short signed sizeof static static_assert static_cast "
    "struct switch template this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile "
    "wchar_t while xor xor_eq torch attentive at c10 std None Slice Ellipsis kDraws inputs module EOF NULL".split()
)
_MODULE_WORDS = set(
    "name train eval to modules named_modules parameters named_parameters children named_children apply clone save load zero_grad "
    "buffers named_buffers is_training pretty_print register_module register_parameter register_buffer unregister_module "
    "is_serializable as shared_from_this weak_from_this replace_module".split()
)


COMMENT_END = " \t\\"  # a backslash would take the next line along


def identifier(name):
    """A name of a local, an argument, a function or a field."""
    return name + "_" if name in _WORDS else name


def member(name, class_names=()):
    """A name of a member or a method."""
    if name == "clone":
        return "own_clone"  # Module has a clone_
    if name[0].isdigit():
        return "child_" + name  # of add_module
    return name + "_" if name in _WORDS or name in _MODULE_WORDS or name in class_names else name


def class_name(cls):
    return re.sub(r"^_+", "", cls.__name__)


def namespace(text):
    """A C++ namespace of a file's or folder's name."""
    name = re.sub(r"\W+", "_", text).strip("_").lower() or "ported"
    return identifier(("ported_" + name) if name[0].isdigit() else name)


SIMPLE = {
    kinds.INT: "int64_t",
    kinds.FLOAT: "double",
    kinds.BOOL: "bool",
    kinds.STR: "std::string",
    kinds.DTYPE: "torch::Dtype",
    kinds.FORMAT: "torch::MemoryFormat",
    kinds.DEVICE: "torch::Device",
    kinds.PACKED: "torch::nn::utils::rnn::PackedSequence",
    kinds.GENERATOR: "at::Generator",
    kinds.SLICE: "torch::indexing::Slice",
    kinds.CALLABLE: "std::function<torch::Tensor(const torch::Tensor&)>",
    kinds.NONE: "torch::Tensor",
    kinds.RANGE: "std::vector<int64_t>",
}


def holder(kind):
    """The C++ class of a module; `kind` is a Module of one class."""
    cls = kind.cls
    if is_own(cls):
        return class_name(cls) + (kind.arguments if isinstance(kind, TemplateModule) else "")
    if cls is nn.Module:
        return "std::shared_ptr<torch::nn::Module>"
    from . import modules

    if cls.__module__.startswith("einops") or kind.variant or modules.is_functional(cls):
        return "torch::nn::Functional"
    return modules.holder(cls)


class TemplateModule(Module):
    """A module of an own class that is a template in C++; `arguments` are those of the template, with brackets."""

    def __init__(self, cls, variant, arguments):
        super().__init__(cls, variant)
        object.__setattr__(self, "arguments", arguments)


def implementation(kind):
    """The class behind a holder."""
    text = holder(kind)
    name, bracket, rest = text.partition("<")
    return f"{name}Impl{bracket}{rest}"


def cpp_type(kind: Kind | None, node=None):
    """The C++ type of values of a kind."""
    if kind in SIMPLE:
        return SIMPLE[kind]
    if isinstance(kind, Tensor):
        return "torch::Tensor"
    if is_choice(kind):
        return "bool"
    if kinds.makers(kind):
        return "std::string"
    if isinstance(kind, Optional):
        return f"std::optional<{cpp_type(kind.kind, node)}>"
    if isinstance(kind, Size):
        return "std::vector<int64_t>"
    if isinstance(kind, List):
        if kind.item is None:
            return "std::vector<torch::Tensor>"
        item = kinds.CALLABLE if isinstance(kind.item, kinds.Function) and callable(kind.item.function) else kind.item
        return f"std::vector<{'torch::nn::AnyModule' if is_any_module(item) else variant(item) if is_mixed(item) else cpp_type(item, node)}>"
    if isinstance(kind, Tuple):
        if is_numbers(kind):
            return f"std::vector<{cpp_type(kind.items[0])}>"
        return "std::tuple<" + ", ".join(cpp_type(item, node) for item in kind.items) + ">"
    if isinstance(kind, Module):
        return holder(kind)
    if isinstance(kind, kinds.Set):
        return f"std::set<{cpp_type(kind.item, node)}>"
    if isinstance(kind, Map):
        key, item = (cpp_type(kinds.STR if part is None else part, node) for part in (kind.key, kind.item))
        return f"WordMap<{item}>" if kind.key in (kinds.STR, None) else f"std::map<{key}, {item}>"
    if isinstance(kind, Config):
        return kind.name
    if is_any_module(kind):
        return "std::shared_ptr<torch::nn::Module>" if holds_container(kind) else "torch::nn::AnyModule"
    raise Refusal(f"no one C++ type holds {describe(kind)}", node)


def is_mixed(kind):
    """Whether it is the items of a list of numbers and words."""
    return isinstance(kind, Many) and kinds.STR in kind.kinds and set(kind.kinds) <= {kinds.INT, kinds.FLOAT, kinds.STR}


def variant(kind):
    """The C++ type of such an item."""
    return f"std::variant<{', '.join(SIMPLE[k] for k in (kinds.INT, kinds.FLOAT, kinds.STR) if k in kind.kinds)}>"


def is_choice(kind):
    """Whether it is a class or None: in C++, whether there is one."""
    return isinstance(kind, Optional) and (isinstance(kind.kind, kinds.Class) or kinds.makes(kind.kind) is not None)


def maker_word(kind):
    """The word that stands for a class or a partial of one where it may be another."""
    if kind == kinds.NONE:
        return ""
    if isinstance(kind, kinds.Class):
        return kind.cls.__name__
    text = lambda value: value.__name__ if isinstance(value, type) else repr(value)
    given = [*map(text, kind.function.args), *(f"{name}={text(value)}" for name, value in kind.function.keywords.items())]
    return f"{kind.function.func.__name__}({', '.join(given)})"


def nothing(kind, node=None):
    """The text of a value of a kind where Python has None."""
    if is_choice(kind):
        return "false"
    return "std::nullopt" if isinstance(kind, Optional) else f"{cpp_type(kind, node)}({'nullptr' if isinstance(kind, Module) else ''})"


def is_setting(kind):
    """Whether it is an object that C++ has no use for, such as a choice of backends or a logger, or a list of them."""
    inner = kind.item if isinstance(kind, List) else kind
    return isinstance(inner, Config) and type(inner.value).__module__.split(".")[0] in ("torch", "logging")


def is_any_module(kind):
    """Whether it is modules of several classes."""
    return isinstance(kind, Many) and all(isinstance(item, Module) for item in kind.kinds)


def holds_container(kind):
    """Whether modules of several classes have a container among them, which torch::nn::AnyModule cannot hold."""
    return any(item.cls in (nn.Sequential, nn.ModuleList, nn.ModuleDict) for item in kind.kinds)


def describe(kind):
    """A kind in words, for messages."""
    if isinstance(kind, Many):
        return " and ".join(sorted({describe(item) for item in kind.kinds}))
    if isinstance(kind, Module | kinds.Class):
        return f"{kind.cls.__module__}.{kind.cls.__qualname__}" if isinstance(kind, kinds.Class) else f"a {kind.cls.__name__}"
    if isinstance(kind, kinds.Function):
        return getattr(kind.function, "__name__", "a function")
    if isinstance(kind, Tensor):
        return "a tensor"
    if kind is None:
        return "something that never ran"
    return kind.name if isinstance(kind, kinds.Simple) else type(kind).__name__.lower()


def is_torch_name(name):
    """Whether torch:: or at:: has a function of that name, which C++ would find beside an own one."""
    return hasattr(torch, name) or hasattr(torch.nn.functional, name)

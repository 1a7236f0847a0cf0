"""C++ text for calls of PyTorch: functions of ATen through their schemas, and a table for what Python spells otherwise."""

import dataclasses
import functools
import inspect
import math
import re

import torch
import torch.nn.functional as F

from .kinds import (
    BOOL, DEVICE, DTYPE, FLOAT, FORMAT, GENERATOR, INT, NONE, NUMBERS, RANGE, STR, UNKNOWN, List, Operand, Optional, Refusal, Size, Tensor,
    Tuple, is_numbers, is_tensors, kind_of,
)  # fmt: skip

DTYPES = {
    torch.float32: "torch::kFloat", torch.float64: "torch::kDouble", torch.float16: "torch::kHalf", torch.bfloat16: "torch::kBFloat16",
    torch.int64: "torch::kLong", torch.int32: "torch::kInt", torch.int16: "torch::kShort", torch.int8: "torch::kChar",
    torch.uint8: "torch::kByte", torch.bool: "torch::kBool", torch.complex64: "torch::kComplexFloat", torch.complex128: "torch::kComplexDouble",
}  # fmt: skip
_CASTS = {name: DTYPES[getattr(torch, name)] for name in ("float", "double", "half", "bfloat16", "long", "int", "short", "bool", "cfloat", "cdouble")}
_CASTS |= {"char": "torch::kChar", "byte": "torch::kByte"}
_TENSOR_TYPES = {"FloatTensor": "float", "DoubleTensor": "double", "HalfTensor": "half", "LongTensor": "long", "IntTensor": "int", "BoolTensor": "bool"}
REDUCTIONS = {"none": "torch::Reduction::None", "mean": "torch::Reduction::Mean", "sum": "torch::Reduction::Sum"}
_OPTIONS = ("dtype", "layout", "device", "pin_memory")
_WHERE = {"torch": "torch", "F": "torch.nn.functional", "init": "torch.nn.init"}
_RENAMED = {"input": ("self",), "tensor": ("self",), "axis": ("dim", "dims"), "keepdims": ("keepdim",), "training": ("train",),
            "split_size_or_sections": ("split_size",), "mat": ("self",)}  # fmt: skip
SIZED_METHODS = {"view", "reshape", "permute", "repeat", "expand", "tile", "flip", "new_zeros", "new_ones", "new_empty", "resize_", "squeeze"}
_SIZED = {"zeros", "ones", "rand", "randn", "empty"}
_STAR = {"broadcast_tensors", "cartesian_prod", "block_diag", "chain_matmul"}
_ALIASES = {"spmm": "mm", "dsmm": "mm", "ndimension": "dim", "nelement": "numel", "logsigmoid": "log_sigmoid", "cross_entropy": "cross_entropy_loss", "nll_loss": "nll_loss_nd",
            "dropout1d": "feature_dropout", "dropout2d": "feature_dropout", "dropout3d": "feature_dropout", "concatenate": "concat"}  # fmt: skip
_REASONS = {
    "is not translated; move the module and its inputs instead": "cuda",
    "leaves PyTorch; write it with functions of torch": "numpy from_numpy tolist",
    "is not translated; hooks have no place in the C++": "register_hook",
    "reads boolean masks as numbers in C++; use nn.MultiheadAttention or F.scaled_dot_product_attention": "multi_head_attention_forward",
    "has both answers; test it in an if of its own": "is_tensor",
    "has other results in C++; move it out of the class": "unique_consecutive stft istft",
    "is not translated; use nn.EmbeddingBag": "embedding_bag",
}
_REFUSED = {name: reason for reason, names in _REASONS.items() for name in names.split()}
_DRAWING = {
    "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "bernoulli", "bernoulli_", "normal", "normal_",
    "uniform_", "multinomial", "exponential_", "random_", "geometric_", "cauchy_", "log_normal_", "poisson", "gumbel_softmax", "rrelu",
    "dropout", "dropout1d", "dropout2d", "dropout3d", "dropout_", "alpha_dropout", "feature_dropout", "feature_alpha_dropout",
}  # fmt: skip
_DRAWING_INIT = ("uniform", "normal", "xavier", "kaiming", "trunc", "orthogonal", "sparse")


# ---- Literals


def literal(value):
    """The C++ text of a constant."""
    if value is None:
        return "{}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if not -(2**63) < value < 2**63:
            raise Refusal(f"{value} does not fit into 64 bits")
        return str(int(value))
    if isinstance(value, float):
        if math.isnan(value):
            return "std::numeric_limits<double>::quiet_NaN()"
        if math.isinf(value):
            return "-" * (value < 0) + "std::numeric_limits<double>::infinity()"
        short = re.sub(r"e([+-])0*", lambda sign: "e" + sign[1].strip("+"), f"{value:g}")
        return short if "e" in short and float(short) == value else repr(value)
    if isinstance(value, str):
        escaped = "".join(f"\\{ord(c):03o}" if ord(c) < 32 else f"\\{c}" if c in '"\\' else c for c in value)
        return f'"{escaped}"'
    if isinstance(value, torch.Tensor) and value.numel() == 0 and value.dtype in DTYPES:
        return f"torch::empty({{{', '.join(map(str, value.shape))}}}, {DTYPES[value.dtype]})"
    if isinstance(value, tuple | list):
        if value and all(isinstance(item, str) for item in value):
            return f"std::vector<std::string>{{{', '.join(map(literal, value))}}}"
        numbers = isinstance(value, list) and {type(item) for item in value} == {int, float}
        return f"{{{', '.join(literal(float(item) if numbers else item) for item in value)}}}"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{{{literal(key)}, {literal(item)}}}' for key, item in value.items())}}}"
    value = value.dtype if type(value) is type(torch.FloatTensor) else value
    if value in DTYPES if isinstance(value, torch.dtype) else False:
        return DTYPES[value]
    if isinstance(value, torch.memory_format):
        words = str(value).removeprefix("torch.").removesuffix("_format").split("_")
        return f"torch::MemoryFormat::{''.join(map(str.title, words))}"
    if isinstance(value, torch.device):
        return f'torch::Device("{value}")'
    raise Refusal(f"a value of type {type(value).__name__} cannot be written as a constant in C++")


def _constant(value):
    return Operand(literal(value), kind_of(value), value)


def elements(code):
    """The parts of a braced list, None if `code` is not one."""
    begin = re.match(r"(std::vector<[\w:]+>)?\{", code)
    if not begin or not code.endswith("}"):
        return None
    parts, depth, quoted, last = [], 0, False, begin.end()
    for at in range(begin.end(), len(code)):
        letter = code[at]
        quoted ^= letter == '"' and code[at - 1] != "\\"
        if quoted:
            continue
        if depth == 0 and letter in ",}":
            parts.append(code[last:at].strip())
            last = at + 1
            if letter == "}":
                return ([] if parts == [""] else parts) if last == len(code) else None
        depth += (letter in "([{") - (letter in ")]}")
    return None


# ---- Any function of ATen


def _device(operand):
    return f"torch::Device({operand.code})" if operand.kind == STR else operand.code


def _options(kwargs):
    """The text of dtype, device and requires_grad, empty if none is given."""
    given = {name: kwargs[name] for name in ("dtype", "device") if name in kwargs and kwargs[name].kind != NONE}
    texts = {name: _device(operand) for name, operand in given.items()}
    if "requires_grad" in kwargs and kwargs["requires_grad"].constant is not False:
        texts["requires_grad"] = kwargs["requires_grad"].code
    layout = kwargs.get("layout", Operand("", NONE)).kind
    if layout != NONE and getattr(layout, "value", None) is not torch.strided:
        raise Refusal("layout is not translated; leave it out")
    if len(texts) == 1 and "requires_grad" not in texts and not any(isinstance(operand.kind, Optional) for operand in given.values()):
        return next(iter(texts.values()))
    return _chain("torch::TensorOptions()", texts, texts) if texts else ""


def _fit(argument, operand, loose):
    """The text of an operand as an argument of a schema, None if its kind does not fit; `loose`: a tensor may be a number."""
    kind, code, name = operand.kind, operand.code, argument.name
    wanted = re.sub(r"^Optional\[(.*)\]$", r"\1", str(argument.type))
    if kind == NONE:
        return None if wanted == str(argument.type) else "{}" if wanted == "Tensor" else "std::nullopt"
    if isinstance(kind, Optional):
        kind = kind.kind
        code = code if wanted != str(argument.type) and not wanted.startswith("List") else f"{operand.primary}.value()"
    if wanted == "Tensor":
        return code if isinstance(kind, Tensor) else None
    if loose and isinstance(kind, Tensor) and kind.rank == 0 and wanted in ("int", "float", "number"):
        return operand.primary + {"int": ".item<int64_t>()", "float": ".item<double>()", "number": ".item()"}[wanted]
    if wanted == "int":
        return code if kind == DTYPE and name == "dtype" or kind in (INT, BOOL) and name != "dtype" else None
    if wanted in ("float", "number"):
        return code if kind in NUMBERS and (wanted in ("number", "float") or kind != BOOL) else None
    if wanted in ("bool", "str"):
        return code if kind == {"bool": BOOL, "str": STR}[wanted] else None
    if wanted == "Device":
        return _device(operand) if kind in (DEVICE, STR) else None
    if wanted == "Generator":
        return code if kind == GENERATOR else None
    if wanted == "List[Tensor]":
        return code if is_tensors(kind) else None
    if wanted in ("List[int]", "List[float]"):
        if kind == INT or kind == FLOAT and wanted == "List[float]":
            length = argument.N or 0
            code = code if length == 1 else f"{{{', '.join([code] * max(length, 1))}}}"
        elif not (isinstance(kind, Size) or is_numbers(kind) or isinstance(kind, List) and kind.item in (INT, FLOAT) or kind in (Tuple(()), List(None, 0))):
            return None
        if name in ("dim", "padding") and re.match(r"0$|\{0, [^,]*\}$", code):  # 0 could be a null pointer: of names, of a word
            return code if name == "dim" and code == "0" else f"std::vector<int64_t>{code if code[0] == '{' else '{0}'}"
        return code
    return None


def _bind(schema, args, kwargs, defaults, loose):
    """The texts of a call's arguments by a schema, up to the last that has to be given; None if the call does not fit."""
    names = [argument.name for argument in schema.arguments]
    overload = schema.overload_name
    if any(argument.is_out for argument in schema.arguments) or not names or any(word in overload for word in ("Dimname", "names")) or "generator" in overload and "generator" not in kwargs:
        return None
    positional = [argument.name for argument in schema.arguments if not argument.kwarg_only]
    if len(args) > len(positional):
        return None
    given = dict(zip(positional, args))
    for name, operand in kwargs.items():
        name = next((other for other in _RENAMED.get(name, ()) if name not in names and other in names), name)
        if name in given:
            return None
        given[name] = operand
    options = None
    if "layout" in names:
        options = _options(given)
        given = {name: operand for name, operand in given.items() if name not in (*_OPTIONS, "requires_grad")}
    if any(name not in names and operand.kind != NONE for name, operand in given.items()):
        return None
    texts, count = [], 0
    for argument in schema.arguments:
        name, wanted = argument.name, given.get(argument.name)
        if options is not None and name in _OPTIONS:
            if name == "dtype":
                texts.append(options or "{}")
                count = len(texts) if options else count
            continue
        absent = argument.default_value if argument.has_default_value() else UNKNOWN
        if wanted is None and defaults.get(name) is not None and absent not in (defaults[name], [defaults[name]] * (argument.N or 0)):
            wanted = _constant(defaults[name])
        if wanted is not None and not (wanted.kind == NONE and absent is None):
            text = _fit(argument, wanted, loose)
            if text is None:
                return None
            texts.append(text)
            count = len(texts)
        elif absent is UNKNOWN:
            if name != "cudnn_enabled" and str(argument.type) != "Optional[Tensor]":
                return None
            texts.append("true" if name == "cudnn_enabled" else "{}")
            count = len(texts)
        else:
            plain = REDUCTIONS[("none", "mean", "sum")[absent]] if name == "reduction" else literal(absent)
            texts.append("std::nullopt" if absent is None and str(argument.type) != "Optional[Tensor]" else plain)
    if schema.name == "aten::argsort" or schema.overload_name in ("dim", "stable") and {"unbiased", "stable"} & set(names):
        count = len(texts)  # std(int) would be read as std(bool), and sort(bool, int) as sort(int, bool)
    return texts[:count]


def _aten(name, args, kwargs, what, method=False, defaults=None):
    """The text of a call of aten::name."""
    schemas = torch._C._jit_get_schemas_for_operator(f"aten::{name}")
    some = {key: operand for key, operand in kwargs.items() if operand.kind != NONE}
    for loose, named in ((False, some), (False, kwargs), (True, some)):
        for schema in schemas:
            texts = _bind(schema, args, named, defaults or {}, loose)
            if texts is not None:
                return _text(name, texts, method, next(iter([*args, *kwargs.values()]), None))
    if not schemas:
        raise Refusal(f"{what} has no counterpart in C++; write it with other functions of torch")
    given = [_shown(operand.kind) for operand in args] + [f"{key}={_shown(operand.kind)}" for key, operand in kwargs.items()]
    raise Refusal(f"{what}({', '.join(given)}) fits no function of C++; give its arguments by name, in PyTorch's own kinds")


def _shown(kind):
    return getattr(kind, "name", None) or type(kind).__name__


def _text(name, texts, method, first):
    if method or name.endswith("_") and hasattr(torch.Tensor, name) and isinstance(first.kind, Tensor):
        return f"{first.primary}.{name}({', '.join(texts[1:])})"
    return f"{'at' if name == 'normal' else 'torch'}::{name}({', '.join(texts)})"  # torch::normal takes numbers alone


# ---- What Python spells otherwise: functions of (args, kwargs, what, method)


def _named(names, args, kwargs, what):
    """Operands by name."""
    names = names.split()
    given = dict(zip(names, args)) | kwargs
    unknown = [name for name in kwargs if name not in names or names.index(name) < len(args)]
    if len(args) > len(names) or unknown:
        raise Refusal(f"{what}: argument {unknown[0] if unknown else len(args)} is not translated; leave it out")
    return {name: operand for name, operand in given.items() if operand.kind != NONE}


def _dim(given, what):
    """Adds the dimension that PyTorch takes where none is given."""
    if "dim" not in given:
        rank = getattr(given["input"].kind, "rank", None)
        if rank is None:
            raise Refusal(f"{what} without dim: give it")
        given["dim"] = Operand("0" if rank in (0, 1, 3) else "1", INT)
    return given


def _word(operand, choices, what):
    """The C++ text that stands for a word, which has to be a constant."""
    if operand.constant not in choices:
        raise Refusal(f"{what}: {operand.constant if isinstance(operand.constant, str) else 'a computed word'} is not translated; write one of {', '.join(choices)}")
    return choices[operand.constant]


def _chain(options, given, names):
    """An options object with its setters; `names` may map a Python name to C++'s."""
    return options + "".join(f".{name}({given[name].code if isinstance(given[name], Operand) else given[name]})" for name in names if name in given)


def _double(code):
    """A number's text as a double's, which a braced list would not convert by itself."""
    return f"{code}.0" if re.fullmatch(r"-?\d+", code) else code if re.fullmatch(r"-?[\d.]+(e-?\d+)?", code) else f"static_cast<double>({code})"


def _pair(operand, length=2, item="int64_t"):
    """A list of numbers from a number or a list."""
    code = operand.code if item == "int64_t" else _double(operand.code)
    return f"std::vector<{item}>{{{', '.join([code] * length)}}}" if operand.kind in NUMBERS else operand.code


def _to(args, kwargs, what, method):
    x, found = args[0], {}
    for name, operand in [*((None, operand) for operand in args[1:]), *kwargs.items()]:
        kind = operand.kind.kind if isinstance(operand.kind, Optional) else operand.kind
        role = {DTYPE: "dtype", DEVICE: "device", STR: "device"}.get(kind, "other" if isinstance(kind, Tensor) else None)
        if name == "copy" and operand.constant is not False or role is None and kind not in (BOOL, NONE):
            raise Refusal(f"{what}: {name or 'this argument'} is not translated; give a dtype, a device or a tensor")
        if role:
            found[role] = operand
    if "other" in found:
        return f"{x.primary}.to({found['other'].code})"
    plain = not any(isinstance(operand.kind, Optional) for operand in found.values())
    text = f"{_device(found['device'])}, {found['dtype'].code}" if len(found) == 2 and plain else _options(found)
    return f"{x.primary}.to({text})" if text else x.code


def _type(args, kwargs, what, method):
    args = [*args, *(kwargs[name] for name in ("dtype",) if name in kwargs)]
    if len(args) == 2 and args[1].kind == DTYPE:
        return f"{args[0].primary}.to({args[1].code})"
    word = _TENSOR_TYPES.get(str(args[1].constant).split(".")[-1]) if len(args) == 2 else None
    if word is None:
        raise Refusal(f"{what}: give it a dtype, as torch.float32")
    return f"{args[0].primary}.to({_CASTS[word]})"


def _unique(args, kwargs, what, method):
    given = _named("input sorted return_inverse return_counts dim", args, kwargs, what)
    for name in ("return_inverse", "return_counts", "dim"):
        if name in given and given[name].constant is not False:
            raise Refusal(f"{what} with {name} has other results in C++; move it out of the class")
    return f"std::get<0>(at::_unique2({', '.join(given[name].code for name in ('input', 'sorted') if name in given)}))"


def _size(args, kwargs, what, method):
    given = _named("self dim", args, kwargs, what)
    return f"{args[0].primary}.size({given['dim'].code})" if "dim" in given else f"{args[0].primary}.sizes().vec()"


def _item(args, kwargs, what, method):
    letter = getattr(args[0].kind, "dtype", "f")
    return f"{args[0].primary}.item<{ {'i': 'int64_t', 'b': 'bool'}.get(letter, 'double') }>()"


def _dims(args, kwargs, what, method):
    """Sizes or dimensions given one by one become a list."""
    name = what.split(".")[-1]
    begin = 1 if method else 0
    read = lambda o: f"{o.primary}.value()" if o.kind == Optional(INT) else f"{o.primary}.item<int64_t>()"
    rest = [Operand(read(o), INT) if o.kind == Optional(INT) or o.kind == Tensor("i", 0) else o for o in args[begin:]]
    if rest and all(operand.kind in (INT, BOOL) for operand in rest) and (name != "squeeze" or len(rest) > 1):
        sizes = Operand(f"{{{', '.join(operand.code for operand in rest)}}}", Size(len(rest)))
        return _aten(name, [*args[:begin], sizes], kwargs, what, method)
    return _aten(name, args, kwargs, what, method)


def _numbers(operand, what):
    """The text of a nested list of numbers for torch::tensor."""
    kind, parts = operand.kind, elements(operand.code)
    if operand.constant is not UNKNOWN:
        flat = torch.tensor(operand.constant)
        if flat.dim() == 1 and flat.numel() < 2:
            return f"std::vector<{'double' if flat.is_floating_point() else 'int64_t'}>{literal(flat.tolist())}"
        return literal(flat.tolist()) if not flat.is_floating_point() else literal(torch.tensor(operand.constant, dtype=torch.float64).tolist())
    item = INT if isinstance(kind, Size) or kind == RANGE else getattr(kind, "item", None)
    items = kind.items if isinstance(kind, Tuple) else (item,) * len(parts or [0])
    if parts is None and (isinstance(kind, Size | List) and item in (INT, FLOAT) or kind == RANGE):
        return operand.code
    if parts is None or any(not (item in NUMBERS or isinstance(item, List | Tuple)) for item in items):
        raise Refusal(f"{what} of these values is not translated; use torch.stack, torch.cat or a list of numbers")
    if all(item in NUMBERS for item in items):
        if FLOAT in items:
            parts = [_double(part) for part in parts]
        inner = "double" if FLOAT in items else "bool" if set(items) == {BOOL} else "int64_t"
        return f"{{{', '.join(parts)}}}" if inner == "bool" else f"std::vector<{inner}>{{{', '.join(parts)}}}"
    return f"{{{', '.join(re.sub('^std::vector<.*?>', '', _numbers(Operand(part, item), what)) for part, item in zip(parts, items))}}}"


def _tensor(args, kwargs, what, method):
    data, x = args[-1], args[0]
    options = _options(kwargs) if not method or kwargs else f"{x.primary}.options()"
    if isinstance(data.kind, Tensor):
        text = data.code if what == "torch.as_tensor" else f"{data.primary}.detach().clone()"
        return f"{text}.to({options})" if options else text
    text = data.code if data.kind in NUMBERS else _numbers(data, what)
    return f"torch::tensor({text}{', ' + options if options else ''})"


def _legacy_tensor(args, kwargs, what, method):
    dtype = _CASTS[_TENSOR_TYPES.get(what.split(".")[-1], "float")]
    whole = bool(args) and isinstance(args[0].kind, Size)
    if args and all(operand.kind == INT for operand in args) or whole:
        sizes = args[0].code if whole else f"{{{', '.join(operand.code for operand in args)}}}"
        return f"torch::empty({sizes}{'' if dtype == 'torch::kFloat' else ', ' + dtype})"
    return _tensor(args, {"dtype": Operand(dtype, DTYPE)}, what, False)


def _einsum(args, kwargs, what, method):
    equation = literal(args[0].constant) if isinstance(args[0].constant, str) else args[0].code
    if not equation:
        raise Refusal("torch.einsum needs its equation as a word")
    rest = args[1:]
    listed = rest[0].code if len(rest) == 1 and not isinstance(rest[0].kind, Tensor) else f"{{{', '.join(operand.code for operand in rest)}}}"
    return f"torch::einsum({equation}, {listed})"


def _starred(args, kwargs, what, method):
    """Tensors given one by one become a list."""
    listed = args[0].code if len(args) == 1 and not isinstance(args[0].kind, Tensor) else f"{{{', '.join(operand.code for operand in args)}}}"
    indexing = f', {kwargs["indexing"].code if "indexing" in kwargs else chr(34) + "ij" + chr(34)}' if what == "torch.meshgrid" else ""
    return f"torch::{what.split('.')[-1]}({listed}{indexing})"


def _norm(args, kwargs, what, method):
    given = _named("self p dim keepdim dtype", args, {("self" if name == "input" else name): v for name, v in kwargs.items()}, what)
    order = given.pop("p", _constant(2))
    given["ord"] = _constant(2) if order.constant == "fro" else order
    return _aten("linalg_vector_norm", [], given, what)


def _tensordot(args, kwargs, what, method):
    given = _named("a b dims", args, kwargs, what)
    dims = given["dims"].constant if "dims" in given else 2
    if isinstance(dims, int):
        dims = [list(range(-dims, 0)), list(range(dims))]
    elif dims is UNKNOWN:
        raise Refusal("torch.tensordot needs constant dims")
    lists = ", ".join(literal([pair] if isinstance(pair, int) else list(pair)) for pair in dims)
    return f"torch::tensordot({given['a'].code}, {given['b'].code}, {lists})"


def _moments(args, kwargs, what, method):
    """std and var: a correction of 0 or 1 is C++'s `unbiased`."""
    if "correction" in kwargs and kwargs["correction"].constant in (0, 1):
        kwargs = {("unbiased" if name == "correction" else name): operand for name, operand in kwargs.items()}
        kwargs["unbiased"] = _constant(bool(kwargs["unbiased"].constant))
    elif "correction" in kwargs:
        kwargs = kwargs | {"correction": dataclasses.replace(kwargs["correction"], code=f"std::optional<torch::Scalar>({kwargs['correction'].code})")}
    return _aten(what.split(".")[-1], args, kwargs, what, method)


def _nonzero(args, kwargs, what, method):
    pairs = kwargs.pop("as_tuple", None)
    return f"{args[0].primary}.nonzero{'_numpy' if pairs is not None and pairs.constant is True else ''}()"


def _normalize(args, kwargs, what, method):
    given = _named("input p dim eps", args, kwargs, what)
    options = _chain("torch::nn::functional::NormalizeFuncOptions()", given, ("p", "dim", "eps"))
    return f"torch::nn::functional::normalize({given['input'].code}{', ' + options if len(given) > 1 else ''})"


MODES = {"nearest": "torch::kNearest", "linear": "torch::kLinear", "bilinear": "torch::kBilinear", "bicubic": "torch::kBicubic",
         "trilinear": "torch::kTrilinear", "area": "torch::kArea", "nearest-exact": "torch::kNearestExact"}  # fmt: skip


def _interpolate(args, kwargs, what, method):
    given = _named("input size scale_factor mode align_corners recompute_scale_factor antialias", args, kwargs, what)
    x, rank = given["input"], getattr(given["input"].kind, "rank", None)
    if rank is None:
        raise Refusal(f"{what} of a tensor whose number of dimensions varies is not translated")
    setters = {name: operand.code for name, operand in given.items()}
    for name, item in (("size", "int64_t"), ("scale_factor", "double")):
        if name in given:
            setters[name] = _pair(given[name], rank - 2, item)
            setters[name] = f"std::vector<{item}>{setters[name]}" if setters[name].startswith("{") else setters[name]
    if "mode" in given:
        setters["mode"] = _word(given["mode"], MODES, what)
    return f"torch::nn::functional::interpolate({x.code}, {_chain('torch::nn::functional::InterpolateFuncOptions()', setters, list(given)[1:])})"


def _unfold(args, kwargs, what, method):
    if method:
        return _aten("unfold", args, kwargs, what, True)
    begin = "input output_size kernel_size" if what.endswith(".fold") else "input kernel_size"
    given = _named(f"{begin} dilation padding stride", args, kwargs, what)
    order = [*begin.split()[1:], "dilation", "padding", "stride"]
    given = {"padding": _constant(0), "dilation": _constant(1), "stride": _constant(1)} | given
    texts = [f"{{{given[name].code}, {given[name].code}}}" if given[name].kind == INT else given[name].code for name in order]
    return f"torch::{'col2im' if 'output_size' in order else 'im2col'}({given['input'].code}, {', '.join(texts)})"


def _grid_sample(args, kwargs, what, method):
    given = _named("input grid mode padding_mode align_corners", args, kwargs, what)
    mode = _word(given.get("mode", _constant("bilinear")), {"bilinear": "0", "nearest": "1", "bicubic": "2"}, what)
    padding = _word(given.get("padding_mode", _constant("zeros")), {"zeros": "0", "border": "1", "reflection": "2"}, what)
    corners = given["align_corners"].code if "align_corners" in given else "false"
    return f"torch::grid_sampler({given['input'].code}, {given['grid'].code}, {mode}, {padding}, {corners})"


def _embedding(args, kwargs, what, method):
    given = _named("input weight padding_idx max_norm norm_type scale_grad_by_freq sparse", args, kwargs, what)
    index = given.get("padding_idx")
    if "max_norm" in given or index is not None and not (isinstance(index.constant, int) and index.constant >= 0):
        options = "".join(f".{name}({operand.code})" for name, operand in given.items() if name not in ("input", "weight"))
        space, tensors = "torch::nn::functional", f"{given['input'].code}, {given['weight'].code}"
        return f"{space}::embedding({tensors}, {space}::EmbeddingFuncOptions(){options})"
    operands = {("indices" if name == "input" else name): operand for name, operand in given.items() if name != "norm_type"}
    return _aten("embedding", [], operands, what)


def _simple(text):
    """A handler that fills the texts of the operands into `text`."""
    return lambda args, kwargs, what, method: text.format(*(operand.primary for operand in [*args, *kwargs.values()]))


def _in_order(function, **defaults):
    """A handler of a C++ function that takes its arguments by position; the defaults are texts."""

    def write(args, kwargs, what, method):
        given = _named(" ".join(defaults), args, kwargs, what)
        last = max((n for n, name in enumerate(defaults) if name in given), default=-1)
        return f"{function}({', '.join(given[name].code if name in given else text for name, text in list(defaults.items())[: last + 1])})"

    return write


def _pack(args, kwargs, what, method):
    given = _named("input lengths batch_first enforce_sorted", args, kwargs, what)
    if not isinstance(given["lengths"].kind, Tensor):
        given["lengths"] = Operand(_tensor([given["lengths"]], {}, what, False), Tensor("i", 1))
    return _in_order("torch::nn::utils::rnn::pack_padded_sequence", input="", lengths="", batch_first="false", enforce_sorted="true")([], given, what, method)


_TABLE = {
    "to": _to, "type": _type, "size": _size, "unique": _unique, "item": _item, "data_ptr": _simple("reinterpret_cast<int64_t>({0}.data_ptr())"), "norm": _norm, "tensordot": _tensordot, "nonzero": _nonzero, "einsum": _einsum,
    "tensor": _tensor, "as_tensor": _tensor, "new_tensor": _tensor, "meshgrid": _starred, "normalize": _normalize, "interpolate": _interpolate, "upsample": _interpolate,
    "pack_padded_sequence": _pack, "pad_packed_sequence": _in_order(
        "torch::nn::utils::rnn::pad_packed_sequence", sequence="", batch_first="false", padding_value="0.0", total_length="std::nullopt"),
    "gumbel_softmax": _in_order("gumbel_softmax", logits="", tau="1.0", hard="false", eps="1e-10", dim="-1"),
    "unfold": _unfold, "fold": _unfold, "grid_sample": _grid_sample, "embedding": _embedding,
    "affine_grid": lambda args, kwargs, what, method: _aten("affine_grid_generator", [], {"align_corners": _constant(False)} | _named("theta size align_corners", args, kwargs, what), what),
    "range": lambda args, kwargs, what, method: _aten("range", [*args, *[Operand("1", INT, 1)] * (len(args) == 2 and "step" not in kwargs)], kwargs, what),
    "softsign": _simple("torch::nn::functional::softsign({0})"), "tanhshrink": _simple("torch::nn::functional::tanhshrink({0})"),
    "softmin": _simple("torch::softmax(-{0}, {1})"), "device": _simple("torch::Device({0})"), "numel": _simple("{0}.numel()"), "dim": _simple("{0}.dim()"),
    "stride": lambda args, kwargs, what, method: _simple("{0}.stride({1})" if len(args) + len(kwargs) > 1 else "{0}.strides().vec()")(args, kwargs, what, method),
    "get_default_dtype": _simple("torch::typeMetaToScalarType(torch::get_default_dtype())"), "Size": lambda args, kwargs, what, method: _pair(args[0]),
    **{name: _moments for name in ("std", "var", "std_mean", "var_mean")}, **dict.fromkeys(_STAR, _starred),
    **dict.fromkeys((*_TENSOR_TYPES, "Tensor"), _legacy_tensor),
}  # fmt: skip


# ---- torch.nn.functional and torch.nn.init


@functools.lru_cache(maxsize=None)
def _python_defaults(name):
    """Names and defaults of a function of torch.nn.functional that is written in Python, else None."""
    for function in (getattr(F, name, None), getattr(F, f"_{name}", None)):
        try:
            parameters = inspect.signature(function).parameters
        except (TypeError, ValueError):
            continue
        if "args" not in parameters:
            return {p.name: None if p.default is p.empty else p.default for p in parameters.values()}
    return None


def _functional(name, args, kwargs, what):
    aten, defaults = _ALIASES.get(name, name), _python_defaults(name)
    if defaults is None:
        return _aten(aten, args, kwargs, what)
    given = _named(" ".join(defaults), args, kwargs, what)
    inplace = given.pop("inplace", _constant(False)).constant is not False
    indices = given.pop("return_indices", _constant(False)).constant is True
    for legacy in ("_stacklevel", "size_average", "reduce", "norm_type"):
        given.pop(legacy, None)
    skipped = ("inplace", "_stacklevel", "size_average", "reduce")
    defaults = {("train" if key == "training" and "dropout" in name else key): value for key, value in defaults.items() if key not in skipped}
    if "reduction" in defaults:
        defaults["reduction"] = 1
    if name in ("softmax", "log_softmax", "softmin"):
        _dim(given, what)
    batch = name == "kl_div" and "reduction" in given and given["reduction"].constant == "batchmean"
    if "reduction" in given:
        given["reduction"] = Operand(REDUCTIONS["sum"] if batch else _word(given["reduction"], REDUCTIONS, what), INT)
    if name.startswith("max_pool") and indices:
        aten += "_with_indices"
    text = _aten(aten, [], given, what, defaults=defaults)
    if batch:
        return f"{text} / {given['input'].primary}.size(0)"
    if name.startswith("adaptive_max_pool") and not indices:
        return f"std::get<0>({text})"
    if inplace:
        x, rest = given["input"], text[text.index("(") + 1 + len(given["input"].code) :]
        if hasattr(torch.Tensor, f"{aten}_"):
            return f"{x.primary}.{aten}_({rest.removeprefix(', ')}"
        return f"[&](torch::Tensor y) {{ return torch::{aten}_(y{rest}; }}({x.code})"
    return text


_NONLINEARITIES = {
    "linear": "Linear", "conv1d": "Conv1D", "conv2d": "Conv2D", "conv3d": "Conv3D", "conv_transpose1d": "ConvTranspose1D",
    "conv_transpose2d": "ConvTranspose2D", "conv_transpose3d": "ConvTranspose3D", "sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "ReLU",
    "leaky_relu": "LeakyReLU",
}  # fmt: skip
NONLINEARITIES = {name: f"torch::k{text}" for name, text in _NONLINEARITIES.items()}
_INIT_WORDS = {"mode": {"fan_in": "torch::kFanIn", "fan_out": "torch::kFanOut"}, "nonlinearity": NONLINEARITIES}


def _init(name, args, kwargs, what):
    name = name if hasattr(torch.nn.init, f"{name}_") is False else f"{name}_"
    parameters = inspect.signature(getattr(torch.nn.init, name)).parameters
    given = _named(" ".join(parameters), args, kwargs, what)
    if "generator" in given:
        raise Refusal(f"{what}: a generator is not translated; seed the default one")
    if name == "dirac_" and given.pop("groups", _constant(1)).constant != 1:
        raise Refusal(f"{what}: groups are not translated; fill the weight by hand")
    if name == "calculate_gain" and "nonlinearity" in given and given["nonlinearity"].constant == "selu":
        return "0.75"
    last = max(list(parameters).index(key) for key in given)
    operands = [given.get(key) or _constant(p.default) for key, p in list(parameters.items())[: last + 1]]
    texts = [_word(operand, _INIT_WORDS[key], what) if key in _INIT_WORDS else operand.code for key, operand in zip(parameters, operands)]
    return f"{'' if name == 'trunc_normal_' else 'torch::nn::init::'}{name}({', '.join(texts)})"


# ---- What the emitter calls


def call(name, args, kwargs, *, method, where="torch"):
    """The C++ text of a call; with `method`, args[0] is the tensor. `where` is torch, F, init, special, linalg or fft."""
    what = f"Tensor.{name}" if method else f"{_WHERE.get(where, f'torch.{where}')}.{name}"
    args, kwargs = list(args), dict(kwargs)
    if name in _REFUSED:
        raise Refusal(f"{what} {_REFUSED[name]}")
    layout = kwargs.pop("memory_format", Operand("", NONE))
    if layout.kind == FORMAT and (name in ("clone", "contiguous", "to") or name.endswith("_like")):
        text = call(name, args, kwargs, method=method, where=where)
        if name != "to":
            return f"{text[:-1]}{'' if text.endswith('()') else ', '}{layout.code})"
        return text if layout.code.endswith("Preserve") else f"{text}.contiguous({layout.code})"
    if layout.kind != NONE:
        raise Refusal(f"{what}: memory_format is not translated; leave it out")
    unknown = ("out",) if where == "torch" and name not in (SIZED_METHODS if method else _SIZED) else ("generator", "out")
    for key in unknown:
        if key in kwargs and kwargs.pop(key).kind != NONE:
            raise Refusal(f"{what}: {key} is not translated; leave it out")
    if "generator" in kwargs and kwargs["generator"].kind == NONE:
        del kwargs["generator"]
    for key in ("non_blocking", "pin_memory"):
        kwargs.pop(key, None)
    if where == "init":
        return _init(name, args, kwargs, what)
    if where in ("special", "linalg", "fft"):
        return _aten(f"{where}_{name}", args, kwargs, what)
    if method and name in _CASTS:
        return f"{args[0].primary}.to({_CASTS[name]})"
    if name in (SIZED_METHODS if method else _SIZED):
        return _dims(args, kwargs, what, method)
    name = _ALIASES.get(name, name) if method else name
    if name in _TABLE and not (method and name in ("Size", "device")):
        return _TABLE[name](args, kwargs, what, method)
    if where == "F":
        return _functional(name, args, kwargs, what)
    if name in ("softmax", "log_softmax"):
        args, kwargs = [], _dim(_named("input dim dtype", args, kwargs, what), what)
    return _aten(_ALIASES.get(name, name), args, kwargs, what, method)


_ATTRIBUTES = {
    "shape": "{0}.sizes().vec()", "dtype": "{0}.scalar_type()", "ndim": "{0}.dim()", "H": "{0}.mH()", "real": "torch::real({0})",
    "imag": "torch::imag({0})", "itemsize": "static_cast<int64_t>({0}.itemsize())", "nbytes": "static_cast<int64_t>({0}.nbytes())",
    "data": "{0}.detach()", "T": "{0}.numpy_T()",
    **{name: f"{{0}}.{name}()" for name in ("device", "mT", "mH", "grad", "is_cuda", "is_cpu", "requires_grad", "is_leaf", "is_sparse", "layout")},
}  # fmt: skip


def attribute(name, x):
    """The C++ text of a tensor's attribute."""
    if name not in _ATTRIBUTES:
        raise Refusal(f"Tensor.{name} is not translated")
    return f"{x.primary}.t()" if name == "T" and x.kind.rank == 2 else _ATTRIBUTES[name].format(x.primary)


def finfo(dtype, field):
    """The text of torch.finfo(dtype).field or torch.iinfo(dtype).field."""
    if isinstance(dtype.constant, torch.dtype):
        info = (torch.finfo if dtype.constant.is_floating_point else torch.iinfo)(dtype.constant)
        return literal(getattr(info, field))
    if field not in ("min", "max", "eps", "tiny"):
        raise Refusal(f"torch.finfo(...).{field} is not translated")
    return f"finfo({dtype.code}).{field}"


def draws(name, args, kwargs, where="torch"):
    """Whether a call takes random numbers; C++ does not order the arguments of a call, so such a one has to be bound to a name first."""
    if where == "init":
        return name.startswith(_DRAWING_INIT)
    if name == "scaled_dot_product_attention":
        p = kwargs.get("dropout_p") or (args[4] if len(args) > 4 else _constant(0.0))
        return p.constant not in (0, 0.0)
    training = kwargs.get("training") or kwargs.get("train") or (args[2] if "dropout" in name and len(args) > 2 else None)
    return name in _DRAWING and not (training is not None and training.constant is False)


@functools.lru_cache(maxsize=None)
def returns_vector(name):
    """Whether Python's tuple of tensors is a std::vector in C++, as against a std::tuple."""
    if name == "where":
        return True  # of a condition alone
    schemas = [s for s in torch._C._jit_get_schemas_for_operator(f"aten::{name}") if s.returns and not any(a.is_out for a in s.arguments)]
    schemas = [s for s in schemas if "Tensor" in str(s.arguments[0].type)]
    return bool(schemas) and all(len(s.returns) == 1 and str(s.returns[0].type) == "List[Tensor]" for s in schemas)


# ---- Functions that C++ lacks: sources to be written before their first use

TRUNC_NORMAL = {
    # Up to PyTorch 2.11: a uniform number through the inverse of the normal distribution.
    "erfinv": """\
/// torch.nn.init.trunc_normal_ of PyTorch 2.11.
inline torch::Tensor trunc_normal_(torch::Tensor tensor, double mean = 0.0, double std = 1.0, double a = -2.0, double b = 2.0) {
  const torch::NoGradGuard no_grad;
  const auto cdf = [](double x) { return (1.0 + std::erf(x / std::sqrt(2.0))) / 2.0; };
  tensor.uniform_(2 * cdf((a - mean) / std) - 1, 2 * cdf((b - mean) / std) - 1).erfinv_();
  return tensor.mul_(std * std::sqrt(2.0)).add_(mean).clamp_(a, b);
}
""",
    # From PyTorch 2.12 on: numbers outside of the bounds are drawn again.
    "rejection": """\
/// torch.nn.init.trunc_normal_ of PyTorch 2.12.
inline torch::Tensor trunc_normal_(torch::Tensor tensor, double mean = 0.0, double std = 1.0, double a = -2.0, double b = 2.0) {
  const torch::NoGradGuard no_grad;
  const auto cdf = [](double x) { return (1.0 + std::erf(x / std::sqrt(2.0))) / 2.0; };
  if (cdf((b - mean) / std) - cdf((a - mean) / std) > 0.3) {
    const auto low = torch::scalar_tensor(a, tensor.scalar_type()), high = torch::scalar_tensor(b, tensor.scalar_type());
    auto result = tensor.normal_(mean, std);
    for (;;) {
      const auto outside = (result < low).logical_or(result > high);
      if (!outside.any().item<bool>()) return tensor.copy_(result);
      result = torch::where(outside, torch::empty_like(result).normal_(mean, std), result);
    }
  }
  const double peak = -0.5 * std::pow((std::clamp(mean, a, b) - mean) / std, 2);
  const auto height = [&](const torch::Tensor& x) { return x.clone().sub_(mean).div_(std).pow_(2).mul_(-0.5).sub_(peak); };
  auto result = tensor.uniform_(a, b).clone();
  auto pending = torch::empty_like(tensor).uniform_().log_().gt(height(result));
  while (pending.any().item<bool>()) {
    const auto drawn = torch::empty_like(tensor).uniform_(a, b);
    result = torch::where(pending, drawn, result);
    pending = pending.logical_and(torch::empty_like(tensor).uniform_().log_().gt(height(drawn)));
  }
  return tensor.copy_(result);
}
""",
}


def trunc_normal_source():
    """The C++ of this PyTorch's trunc_normal_, told by the numbers that it draws."""
    low, high = math.erf(-1.5 / math.sqrt(2.0)), math.erf(2.0 / math.sqrt(2.0))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        own = torch.nn.init.trunc_normal_(torch.empty(500), 0.0, 1.0, -1.5, 2.0)
        torch.manual_seed(1)
        numbers = {"erfinv": torch.empty(500).uniform_(low, high).erfinv_().mul_(math.sqrt(2.0)).clamp_(-1.5, 2.0)}
        torch.manual_seed(1)
        numbers["rejection"] = torch.empty(500).normal_(0.0, 1.0)
        while (outside := (numbers["rejection"] < -1.5) | (numbers["rejection"] > 2.0)).any():
            numbers["rejection"] = torch.where(outside, torch.empty(500).normal_(0.0, 1.0), numbers["rejection"])
    for name, source in TRUNC_NORMAL.items():
        if torch.allclose(numbers[name], own, atol=1e-6):
            return source
    raise Refusal("this PyTorch draws trunc_normal_ by an unknown formula; use PyTorch 2.11 or 2.12")


HELPERS = {
    "finfo": """\
/// torch.finfo(dtype) of Python.
struct FloatInfo {
  double min, max, eps, tiny;
};
inline FloatInfo finfo(torch::Dtype dtype) {
  const auto of = [](auto zero) {
    using Limits = std::numeric_limits<decltype(zero)>;
    return FloatInfo{static_cast<double>(Limits::lowest()), static_cast<double>(Limits::max()),
                     static_cast<double>(Limits::epsilon()), static_cast<double>(Limits::min())};
  };
  if (dtype == torch::kDouble) return of(0.0);
  if (dtype == torch::kHalf) return of(c10::Half());
  return dtype == torch::kBFloat16 ? of(c10::BFloat16()) : of(0.0F);
}
""",
}

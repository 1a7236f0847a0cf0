"""C++ text for the modules of torch.nn: constructors, calls and attributes. Containers are the emitter's business."""

import dataclasses
import functools
import inspect
import re

import torch
import torch.nn.functional as F
from torch import nn

from .kinds import INT, NONE, NUMBERS, PACKED, UNKNOWN, Function, List, Operand, Optional, Refusal, Size, Tuple, kind_of
from .schema import MODES, elements, literal

_COMPAT = ("MultiheadAttention", "Transformer", "TransformerEncoder", "TransformerDecoder", "TransformerEncoderLayer", "TransformerDecoderLayer")
_RECURRENT = "input_size hidden_size num_layers bias batch_first dropout bidirectional proj_size"
_SIGNATURES = {"LSTM": _RECURRENT, "GRU": _RECURRENT, "RNN": _RECURRENT.replace("num_layers", "num_layers nonlinearity")}
_DIMENSIONS = ("1d", "2d", "3d")
_CONVOLUTIONS = [f"{name}{d}" for name in ("Conv", "ConvTranspose") for d in _DIMENSIONS]
_PADS = [f"{name}Pad{d}" for name in ("Zero", "Constant", "Reflection", "Replication") for d in _DIMENSIONS]
_POOLS = [f"{name}{d}" for name in ("MaxPool", "AvgPool", "AdaptiveAvgPool", "AdaptiveMaxPool") for d in _DIMENSIONS] + ["LPPool1d", "LPPool2d"]
_NORMS = [f"{name}{d}" for name in ("BatchNorm", "InstanceNorm") for d in _DIMENSIONS] + ["GroupNorm", "LocalResponseNorm"]
_CELLS = ["RNNCell", "LSTMCell", "GRUCell"]
_ACTIVATIONS = [
    "ELU", "SELU", "CELU", "GELU", "GLU", "ReLU", "ReLU6", "RReLU", "LeakyReLU", "PReLU", "SiLU", "Mish", "Hardtanh", "Hardshrink", "Softshrink",
    "Softplus", "Softsign", "Softmax", "Softmax2d", "Softmin", "LogSoftmax", "LogSigmoid", "Sigmoid", "Tanh", "Tanhshrink", "Threshold",
]  # fmt: skip
_LOSSES = [
    "L1Loss", "MSELoss", "BCELoss", "BCEWithLogitsLoss", "CrossEntropyLoss", "NLLLoss", "KLDivLoss", "SmoothL1Loss", "HuberLoss", "CTCLoss",
    "HingeEmbeddingLoss", "CosineEmbeddingLoss", "MarginRankingLoss", "MultiMarginLoss", "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss",
    "SoftMarginLoss", "TripletMarginLoss", "PoissonNLLLoss",
]  # fmt: skip
_ONE_TENSOR = {
    "Linear", "Identity", "Flatten", "Unflatten", "Fold", "Unfold", "PixelShuffle", "PixelUnshuffle", "Embedding", "LayerNorm", "RMSNorm",
    "Dropout", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout", "TransformerEncoderLayer", "TransformerEncoder", "Upsample",
    "UpsamplingNearest2d", "UpsamplingBilinear2d", "Hardswish", "Hardsigmoid", "ChannelShuffle", "CircularPad1d", "CircularPad2d", "CircularPad3d",
    *_CONVOLUTIONS, *_PADS, *_POOLS, *_NORMS, *_ACTIVATIONS,
}  # fmt: skip
_KNOWN = {*_ONE_TENSOR, *_COMPAT, *_LOSSES, *_SIGNATURES, *_CELLS, *(f"MaxUnpool{d}" for d in _DIMENSIONS), "Bilinear", "EmbeddingBag", "CosineSimilarity", "PairwiseDistance"}
_DRAWING = {"Linear", "Bilinear", "Embedding", "EmbeddingBag", *_CONVOLUTIONS, *_SIGNATURES, *_CELLS, *_COMPAT}
_PLAIN = {"Linear", "Embedding", "Dropout", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout", "Softmax", "LogSoftmax", "Softmin",
          "GLU", "PixelShuffle", "PixelUnshuffle", "Bilinear", "LSTM", "GRU", "RNN", "GroupNorm", *_CELLS, *_NORMS[:6]}  # fmt: skip
_OPTIONAL = {"GLU": ("dim",), "Hardshrink": ("lambd",), "Softshrink": ("lambd",), "Softmax": ("dim",), "LogSoftmax": ("dim",), "Softmin": ("dim",),
             **{name: ("p",) for name in ("Dropout", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout")}}  # fmt: skip
_RENAMED = {"lambd": "lambda", "min_value": "min_val", "max_value": "max_val"}
_DROPPED = ("device", "size_average", "reduce", "return_indices", "enable_nested_tensor", "mask_check", "_freeze")
_LISTS = ("kernel_size", "stride", "padding", "dilation", "output_padding", "output_size")
_WORDS = {
    "padding": {"same": "torch::kSame", "valid": "torch::kValid"},
    "padding_mode": {"zeros": "torch::kZeros", "reflect": "torch::kReflect", "replicate": "torch::kReplicate", "circular": "torch::kCircular"},
    "reduction": {"none": "torch::kNone", "mean": "torch::kMean", "sum": "torch::kSum", "batchmean": "torch::kBatchMean"},
    "nonlinearity": {"tanh": "torch::kTanh", "relu": "torch::kReLU"},
    "mode": {**MODES, "sum": "torch::kSum", "mean": "torch::kMean", "max": "torch::kMax"},
}
_INPLACE = {"SiLU": "silu", "Mish": "mish", "Hardswish": "hardswish", "Hardsigmoid": "hardsigmoid"}


def _function(body):
    return f"torch::nn::Functional([](const torch::Tensor& x) {{ return {body}; }})"


@functools.lru_cache(maxsize=None)
def _parameters(function, name=""):
    """Names of a method's parameters, and their defaults (inspect's `empty` where there is none)."""
    if name in _SIGNATURES:
        return {parameter: inspect.Parameter.empty if parameter.endswith("_size") and parameter != "proj_size" else None for parameter in _SIGNATURES[name].split()}
    parameters = list(inspect.signature(function).parameters.values())[1:]
    return {p.name: p.default for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}


def _bind(parameters, args, kwargs, what):
    """Operands by name, in the order of the parameters, without those that are None."""
    given = dict(zip(parameters, args)) | kwargs
    unknown = [name for name in given if name not in parameters]
    if len(args) > len(parameters) or unknown:
        raise Refusal(f"{what}: argument {unknown[0] if unknown else len(parameters) + 1} is not translated; leave it out")
    return {name: given[name] for name in parameters if name in given and given[name].kind != NONE}


def _word(what, name, operand):
    words = _WORDS[name]
    if operand.constant not in words:
        raise Refusal(f"{what}: {name}={operand.constant if operand.constant is not UNKNOWN else operand.code} is not translated; write a constant: {', '.join(words)}")
    return words[operand.constant]


def _value(what, name, operand):
    """The text of an option."""
    if name in _WORDS and (operand.kind not in (*NUMBERS,) and not isinstance(operand.kind, Tuple | List | Size)):
        return _word(what, name, operand)
    if name in _LISTS and isinstance(operand.constant, tuple | list) and None in operand.constant:
        return f"{{{', '.join('std::nullopt' if item is None else str(item) for item in operand.constant)}}}"
    if name == "activation":
        known = {"relu": "torch::kReLU", "gelu": "torch::kGELU", F.relu: "torch::kReLU", F.gelu: "torch::kGELU", torch.relu: "torch::kReLU"}
        value = operand.kind.function if isinstance(operand.kind, Function) else operand.constant
        return known.get(value, operand.code) if value is not UNKNOWN else operand.code
    return operand.code


def _chain(what, options, required, given):
    """`Options(required).name(value)...`; an option that is as in C++ by default is left out by the caller."""
    setters = "".join(f".{_RENAMED.get(name, name)}({_value(what, name, operand)})" for name, operand in given.items() if name not in required)
    return f"{options}({', '.join(_value(what, name, given[name]) for name in required if name in given)}){setters}"


def _last(operand, what):
    """The text of the one size of `normalized_shape`."""
    if operand.kind == INT:
        return operand.code
    parts = elements(operand.code)
    if parts is None and getattr(operand.kind, "length", None) == 1:
        return f"{operand.primary}[0]"
    if parts is None or len(parts) != 1:
        raise Refusal(f"{what} over several dimensions is not translated; use F.layer_norm or F.rms_norm with nn.Parameter")
    return parts[0]


def _layer_norm(given, what):
    shape = given["normalized_shape"]
    if "bias" in given and given["bias"].constant is not True and "elementwise_affine" not in given:  # LibTorch has no such option
        options = _chain(what, "attentive::compat::LayerNormOptions", (), {name: given[name] for name in ("eps", "bias") if name in given})
        return f"attentive::compat::LayerNorm({options.replace('()', f'({_last(shape, what)})', 1)})"
    if "bias" in given and "elementwise_affine" in given and given["elementwise_affine"].constant is not False:
        raise Refusal(f"{what}: bias and elementwise_affine together are not translated; give one of them")
    given.pop("bias", None)
    code = f"{{{shape.code}}}" if shape.kind == INT else shape.code
    if list(given) == ["normalized_shape"]:
        return f"torch::nn::LayerNorm({f'std::vector<int64_t>{code}' if code.startswith('{') else code})"
    return f"torch::nn::LayerNorm({_chain(what, 'torch::nn::LayerNormOptions', ('normalized_shape',), given | {'normalized_shape': dataclasses.replace(shape, code=code)})})"


def _rms_norm(given, what):
    size = _last(given["normalized_shape"], what)
    eps = given["eps"].code if "eps" in given else "std::numeric_limits<float>::epsilon()"  # Python's default, for float32
    affine = given.get("elementwise_affine")
    if affine is None or affine.constant is True:
        return f"attentive::RMSNorm(attentive::RMSNormOptions({size}).eps({eps}))"
    if affine.constant is False:
        return f"torch::nn::Functional([=](const torch::Tensor& x) {{ return torch::rms_norm(x, {{{size}}}, {{}}, {eps}); }})"
    raise Refusal(f"{what}: elementwise_affine has to be a constant")


def _transformer_layer(given, what):
    names = ("d_model", "nhead")
    defaults = {"d_model": Operand("512", INT), "nhead": Operand("8", INT)}
    return _chain(what, "attentive::compat::TransformerLayerOptions", names, defaults | given)


def _transformer(name, given, what):
    if name.endswith("Layer"):
        return f"attentive::compat::{name}({_transformer_layer(given, what)})"
    if name != "Transformer":
        norm = given.get("norm")
        if norm is not None:
            code = re.sub(r"^torch::nn::LayerNorm\(std::vector<int64_t>\{([^,{}]+)\}", r"attentive::compat::LayerNorm(\1", norm.code)
            code = re.sub(r"^torch::nn::LayerNorm\(torch::nn::LayerNormOptions\(\{([^,{}]+)\}\)", r"attentive::compat::LayerNorm(attentive::compat::LayerNormOptions(\1)", code)
            if not code.startswith("attentive::compat::LayerNorm("):
                raise Refusal(f"{what}: write its norm into the call, as nn.LayerNorm(size)")
            given["norm"] = dataclasses.replace(norm, code=code)
        return f"attentive::compat::{name}({', '.join(operand.code for operand in given.values())})"
    if "custom_encoder" in given or "custom_decoder" in given:
        raise Refusal(f"{what}: custom_encoder and custom_decoder are not translated; call the two parts one after the other")
    counts = {key: given.pop(key) for key in ("num_encoder_layers", "num_decoder_layers") if key in given}
    options = _chain(what, "attentive::compat::TransformerOptions", ("layer",), {"layer": Operand(_transformer_layer(given, what), INT)} | counts)
    return f"attentive::compat::Transformer({options})"


def _upsample(name, given, what):
    """The number of dimensions is the mode's, or only known from the input."""
    if name != "Upsample":
        given["mode"] = _constant("nearest" if "Nearest" in name else "bilinear")
        if "Bilinear" in name:
            given["align_corners"] = _constant(True)
    mode = given["mode"].constant if "mode" in given else "nearest"
    count = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}.get(mode, 2 if name != "Upsample" else None)
    for key, item in (("size", "int64_t"), ("scale_factor", "double")):
        if isinstance(getattr(given.get(key), "kind", None), Optional):
            raise Refusal(f"{what}: {key} is None at times; give it in every call")
        if key in given and given[key].kind in NUMBERS:
            given[key] = dataclasses.replace(given[key], code=f"std::vector<{item}>({count or 'x.dim() - 2'}, {given[key].code})")
            count = count or "x"
        elif key in given and given[key].code.startswith("{"):
            given[key] = dataclasses.replace(given[key], code=f"std::vector<{item}>{given[key].code}")
    if count == "x":
        return _function(f"torch::nn::functional::interpolate(x, {_chain(what, 'torch::nn::functional::InterpolateFuncOptions', (), given)})").replace("[]", "[=]")
    return f"torch::nn::Upsample({_chain(what, 'torch::nn::UpsampleOptions', (), given)})"


def _constant(value):
    return Operand(literal(value), kind_of(value), value)


def _check(name, given, what):
    """Removes what changes nothing in C++, refuses what C++ cannot say."""
    if name not in _KNOWN:
        raise Refusal(f"{what} has no counterpart in C++; write it with nn.Parameter and functions of torch")
    for legacy in ("size_average", "reduce", "_freeze"):
        if legacy in given and given[legacy].constant is not False:
            raise Refusal(f"{what}: {legacy} is not translated; use reduction, or requires_grad_")
    if given.get("dtype", _constant(torch.float32)).constant != torch.float32:
        raise Refusal(f"{what}: dtype draws other numbers; leave it out and move the module with .to(dtype)")
    given = {key: operand for key, operand in given.items() if key not in (*_DROPPED, "dtype")}
    if "inplace" in given and given["inplace"].constant is False:
        given.pop("inplace")
    return given


def construct(cls, args, kwargs):
    """The C++ text that makes a module; the holder's type is what stands before the first parenthesis."""
    name, what = cls.__name__, f"torch.nn.{cls.__name__}"
    if name == "Identity" or name in _ACTIVATIONS and not _parameters(cls.__init__):
        return f"torch::nn::{name}()"
    parameters = _parameters(cls.__init__, name)
    none_momentum = "BatchNorm" in name and any(key == "momentum" and operand.kind == NONE for key, operand in [*zip(parameters, args), *kwargs.items()])
    given = _check(name, _bind(parameters, args, kwargs, what), what)
    if none_momentum:
        given["momentum"] = Operand("std::nullopt", INT)
    inplace = "inplace" in given
    if name in _INPLACE and (inplace or name.startswith("Hard")):
        body = f"torch::{_INPLACE[name]}{'_' if inplace else ''}(x)"
        return _function(body).replace("const torch::Tensor&", "torch::Tensor") if inplace else _function(body)
    if name.startswith("CircularPad"):
        pad, count = given["padding"], 2 * int(name[-2])
        code = f"{{{', '.join([pad.code] * count)}}}" if pad.kind == INT else pad.code
        return _function(f'torch::pad(x, {code}, "circular")').replace("[]", "[=]")
    if name == "ChannelShuffle":
        return _function(f"torch::channel_shuffle(x, {given['groups'].code})").replace("[]", "[=]")
    if name == "LayerNorm":
        return _layer_norm(given, what)
    if name == "RMSNorm":
        return _rms_norm(given, what)
    if name.startswith("Transformer"):
        return _transformer(name, given, what)
    if name.startswith("Upsampl"):
        return _upsample(name, given, what)
    if name == "Unflatten":
        sizes = given["unflattened_size"]
        code = f"std::vector<int64_t>{sizes.code}" if sizes.code.startswith("{") else sizes.code
        return f"torch::nn::Unflatten(torch::nn::UnflattenOptions({given['dim'].code}, {code}))"
    if name == "Softmax2d":
        return "torch::nn::Softmax2d()"
    space = "attentive::compat" if name in _COMPAT else "torch::nn"
    required = [key for key, default in parameters.items() if default is inspect.Parameter.empty] + list(_OPTIONAL.get(name, ()))
    missing = [key for key in required if key not in given and key not in _OPTIONAL.get(name, ()) or key == "dim" and "oft" in name and key not in given]
    if missing:
        raise Refusal(f"{what} without {missing[0]}: give it")
    if not given:
        return f"{space}::{name}()"
    options = _chain(what, f"{space}::{name}Options", required, given)
    plain = set(given) <= set(required) and name in _PLAIN and not any(given[key].code.startswith("{") for key in given)
    return f"{space}::{name}({', '.join(given[key].code for key in required if key in given) if plain else options})"


def has_options(cls):
    """Whether a layer of PyTorch has a type of its own for what its constructor takes in C++."""
    return cls.__name__ in {"Linear", "Embedding", *_CONVOLUTIONS, *_SIGNATURES, *(f"BatchNorm{d}" for d in _DIMENSIONS)}


def takes_sizes(cls, at):
    """Whether an argument of a layer of PyTorch, by its name or position, is a number for each dimension, or one for all."""
    known = inspect.isclass(cls) and cls.__name__ in (*_CONVOLUTIONS, *_POOLS) and cls.__module__.startswith("torch.nn")
    return known and (list(_parameters(cls.__init__))[at] if isinstance(at, int) else at) in _LISTS


def options(cls, args, kwargs):
    """The text of what a layer's constructor takes in C++."""
    text = construct(cls, args, kwargs)
    text = text[text.index("(") + 1 : -1]
    return text if text.startswith(f"{holder(cls)}Options(") else f"{holder(cls)}Options({text})"


def call(cls, object, args, kwargs, module=None):
    """The C++ text of a module's call; `module`, where it is known, tells whether a pool returns indices."""
    what, parameters = f"a call of torch.nn.{cls.__name__}", _parameters(cls.forward)
    given = _bind(parameters, args, kwargs, what)
    if "hx" in given and isinstance(given["hx"].kind, Tuple):
        parts = elements(given["hx"].code)
        given["hx"] = dataclasses.replace(given["hx"], code=f"std::make_tuple({', '.join(parts)})" if parts is not None else given["hx"].code)
    last = max((list(parameters).index(key) for key in given), default=-1)
    texts = [given[key].code if key in given else literal(None if default is inspect.Parameter.empty else default) for key, default in parameters.items()]
    method = "forward_with_indices" if getattr(module, "return_indices", False) else "forward"
    if any(operand.kind == PACKED for operand in given.values()):
        method = "forward_with_packed_input"
    return f"{object}->{method}({', '.join(texts[: last + 1])})"


_TENSORS = {"weight", "bias", "running_mean", "running_var", "num_batches_tracked", "in_proj_weight", "in_proj_bias", "q_proj_weight", "k_proj_weight",
            "v_proj_weight", "bias_k", "bias_v", "weight_ih", "weight_hh", "bias_ih", "bias_hh", "pos_weight"}  # fmt: skip
_SIZES = ("kernel_size", "stride", "padding", "dilation", "output_padding")
_MEMBERS = {"out_proj", "self_attn", "multihead_attn", "linear1", "linear2", "norm1", "norm2", "norm3", "dropout1", "dropout2", "dropout3", "layers", "norm", "encoder", "decoder"}


def attribute(cls, object, name):
    """The C++ text of a module's attribute."""
    if name == "training":
        return f"{object}->is_training()"
    if re.fullmatch(r"(weight|bias)_(ih|hh|hr)_l\d+(_reverse)?", name):
        return f'{object}->named_parameters()["{name}"]'
    if name in _TENSORS or name in _MEMBERS or name == "dropout" and cls.__name__.endswith("Layer"):
        return f"{object}->{name}"
    if cls is nn.MultiheadAttention and name == "head_dim":
        return f"{object}->options.embed_dim() / {object}->options.num_heads()"
    if cls is nn.RMSNorm and name == "normalized_shape":
        return f"std::vector<int64_t>{{{object}->options.features()}}"
    if name in _SIZES and cls.__name__.startswith("Conv"):
        sizes = f"{object}->options.{name}()"
        sizes = f"std::get<torch::ExpandingArray<{cls.__name__[-2]}>>({sizes})" if name == "padding" else sizes
        return f"std::vector<int64_t>({sizes}->begin(), {sizes}->end())"
    if name in _LISTS or name not in _parameters(cls.__init__, cls.__name__):
        raise Refusal(f"torch.nn.{cls.__name__}.{name} is not translated; keep the value in an attribute of your own")
    given = ".value()" if name in ("padding_idx", "max_norm") or name == "momentum" and cls.__name__.startswith("BatchNorm") else ""  # None has no text
    return f"{object}->options.{_RENAMED.get(name, name)}(){given}"


_HEADERS = {
    r"attentive::compat::MultiheadAttention\b": "attentive/compat/multihead_attention.h",
    r"attentive::compat::(Transformer(En|De)coderLayer|LayerNorm)\b": "attentive/compat/transformer_layers.h",
    r"attentive::compat::Transformer(Encoder|Decoder)?\b": "attentive/compat/transformer.h",
    r"attentive::RMSNorm\b": "attentive/modules/norms.h",
}


def includes(code):
    """The headers of this package that a text of C++ needs."""
    return [header for pattern, header in _HEADERS.items() if re.search(pattern, code)]


def base_layer(cls):
    """The layer whose class in C++ an own class is derived from where Python's base is one that C++ makes for each number of dimensions; its
    forward or its check of dimensions is the derived class's."""
    return {nn.modules.batchnorm._BatchNorm: nn.BatchNorm2d, nn.modules.instancenorm._InstanceNorm: nn.InstanceNorm2d}.get(cls, cls)


def known(cls):
    """Whether a class has a counterpart."""
    return cls.__name__ in _KNOWN and cls.__module__.startswith("torch.nn")


def is_functional(cls, module=None):
    """Whether its counterpart is a torch::nn::Functional; for a few classes only the instance tells."""
    if module is None or cls in (nn.Hardswish, nn.Hardsigmoid, nn.ChannelShuffle, nn.CircularPad1d, nn.CircularPad2d, nn.CircularPad3d):
        return cls.__name__ in (*_INPLACE, "ChannelShuffle") and cls not in (nn.SiLU, nn.Mish) or cls.__name__.startswith("CircularPad")
    scalar = cls is nn.Upsample and (isinstance(module.size, int) or isinstance(module.scale_factor, float))
    return cls in (nn.SiLU, nn.Mish) and module.inplace or cls is nn.RMSNorm and not module.elementwise_affine or scalar and "nearest" in module.mode


def holder(cls, module=None):
    """The C++ type that holds a module; of LayerNorm and of what `is_functional` names, the instance has a say."""
    if is_functional(cls, module):
        return "torch::nn::Functional"
    if cls is nn.RMSNorm:
        return "attentive::RMSNorm"
    biasless = cls is nn.LayerNorm and module is not None and module.elementwise_affine and module.bias is None
    name = "Upsample" if cls.__name__.startswith("Upsampling") else cls.__name__
    return f"{'attentive::compat' if name in _COMPAT or biasless else 'torch::nn'}::{name}"


def returns_tuple(cls):
    """Whether a call gives several results."""
    return cls.__name__ in (*_SIGNATURES, "LSTMCell", "MultiheadAttention")


def draws(cls):
    """Whether its constructor takes random numbers."""
    return cls.__name__ in _DRAWING

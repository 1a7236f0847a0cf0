"""Converts recorded calls to the form of a case: renames the arguments to a case's names, pads, casts."""

import contextlib
import inspect

import torch

from attentive_case import SDPA, SDPA_ARGUMENTS, SDPA_NAME

FUNCTION_CASES = {"scaled_dot_product_attention": ("Q", "K", "V"), SDPA_NAME: SDPA_ARGUMENTS}


def autocast_in_force():
    """The devices for which autocast is enabled, each with its dtype."""
    return tuple((d, torch.get_autocast_dtype(d)) for d in ("cpu", "cuda") if torch.is_autocast_enabled(d))


@contextlib.contextmanager
def under(autocast):
    with contextlib.ExitStack() as stack:
        for device, dtype in autocast:
            stack.enter_context(torch.autocast(device, dtype=dtype))
        yield


def cast_first(prepare, autocast):
    """Wraps `prepare`: casts its floating-point inputs, except masks, as autocast would cast them for a product."""
    dtypes = dict(autocast)

    def cast(name, x):
        wanted = isinstance(x, torch.Tensor) and x.is_floating_point() and x.dtype != torch.float64
        return x.to(dtypes.get(x.device.type, x.dtype)) if wanted and not name.endswith("mask") else x

    def prepared():
        function, inputs, keywords = prepare()

        def call(**arguments):
            with under(autocast):
                return function(**arguments)

        return call, inputs, {name: cast(name, x) for name, x in keywords.items()}

    return prepared


def padded(module, inputs, named):
    """The arguments, with a nested `src` (from torch.nn.TransformerEncoder) converted to padding and its mask."""
    src = inputs[0] if inputs else named.get("src")
    if type(module) is not torch.nn.TransformerEncoderLayer or not src.is_nested:
        return inputs, named
    lengths = torch.tensor([len(part) for part in src.unbind()], device=src.device)
    whole = src.to_padded_tensor(0.0)
    hidden = torch.arange(whole.shape[1], device=src.device) >= lengths[:, None]
    return (whole, *inputs[1:]), {**{k: v for k, v in named.items() if k != "src"}, "src_key_padding_mask": hidden}


def by_position(function, name, inputs, named):
    """A marked function's positional arguments by the names of its case, in their order."""
    signature, positions = inspect.signature(function), FUNCTION_CASES[name]
    given = signature.bind(*inputs, **named).arguments
    case_names = dict(zip(signature.parameters, positions))
    if not set(given) <= set(case_names):
        raise TypeError(f"expected a function of {', '.join(positions)} in this order, got one of {', '.join(given)}")

    def call(**arguments):
        return function(**{name: arguments.get(case_names[name]) for name in given})

    return call, (), {case_names[name]: value for name, value in given.items()}


def eager(function, inputs, named):
    """Converts a call of a Hugging Face eager_attention_forward to scaled_dot_product_attention, if they agree."""
    bound = inspect.signature(function).bind(*inputs, **named)
    given = {**bound.arguments, **bound.arguments.get("kwargs", {})}
    module, query, key, mask = (given.get(name) for name in ("module", "query", "key", "attention_mask"))
    known = ("module", "query", "key", "value", "attention_mask", "scaling", "dropout", "kwargs")
    others = {name: value for name, value in given.items() if name not in known}
    mask = mask if mask is None else mask[..., : key.shape[-2]]

    def call(query, key, value, attn_mask=None, scale=None, enable_gqa=False, dropout_p=0.0):
        scale = query.shape[-1] ** -0.5 if scale is None else scale
        output, weights = function(module, query, key, value, attn_mask, scaling=scale, dropout=dropout_p, **others)
        return output.transpose(1, 2), weights

    keywords = {"query": query, "key": key, "value": given["value"], "attn_mask": mask, "scale": given.get("scaling")}
    keywords["enable_gqa"] = query.shape[1] != key.shape[1]

    def wide(x):
        return x.detach().double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    exact = {name: wide(x) for name, x in keywords.items()}
    with torch.no_grad():
        got, want = call(**exact)[0], SDPA(**exact)
    error = (got - want).abs().max()
    # Some models compute the softmax in float32 whatever the dtype is, so allow more than float64's rounding.
    if not error <= 2e-5 * want.abs().max():
        raise ValueError(f"{function.__module__}.{function.__name__} is off scaled_dot_product_attention by {error:.1e}")
    if module.training and given.get("dropout"):
        keywords["dropout_p"] = given["dropout"]
    return call, (), keywords

"""An attention implementation for ``transformers``.

    import attentive.transformers

    attentive.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="attentive")

A model of ``transformers`` asks for a mask once and hands it to the attention of each layer. This implementation gives it the mask
that "sdpa" would give it: None, or bool (B, 1, L, S) with true where a query may see a key; a model class that supports no "sdpa"
gets the numbers that "eager" adds to its scores. Causal order, windows and padding are stored in O(B S) memory, and the values for
all pairs are made when a class computes with its mask. Masks of packed sequences, or of the model's own making, have a value for
every pair from the start.

``register_delta_rule`` gives the gated delta nets of Qwen3-Next and of models like it the kernel of ``gated_delta_rule``.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import sys
import textwrap
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from attentive._mask import Mask
from attentive.delta_rule import gated_delta_rule
from attentive.functional import AttentionResult, attention

__all__ = ["attention_forward", "register", "register_delta_rule"]


def register(name: str = "attentive", full_masks: bool = False) -> None:
    """Registers the implementation with ``AttentionInterface`` and ``AttentionMaskInterface`` of ``transformers``.

    Afterwards ``from_pretrained(..., attn_implementation=name)``, ``from_config`` and ``set_attn_implementation`` take it. It
    computes sinks, windows, softcaps, position biases, grouped heads, dropout in training, and weights
    (``output_attentions=True`` in a call). A model class that does not ask the interface keeps its own attention.

    ``full_masks``: every mask has a value for every pair from the start, in O(L S) memory.

    Raises ImportError where ``transformers`` is missing or has no such interface (it has one from 4.56 on).
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
    except ImportError as error:
        raise ImportError("attentive.transformers needs transformers 4.56 or later: pip install transformers") from error
    from transformers import masking_utils

    def mask_of(**call: Any) -> Tensor | None:
        return _make_mask(masking_utils, full_masks, call)

    AttentionMaskInterface.register(name, mask_of)
    AttentionInterface.register(name, attention_forward)


def attention_forward(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    head_mask: Tensor | None = None,
    cache: Any = None,
    indices: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """The attention of one layer: query (B, H, L, D), key and value (B, Hkv, S, D) -> output (B, L, H, D), weights or None.

    ``indices`` (B, L, K): the only keys that each query may see, for classes that choose them.

    Raises NotImplementedError for a mask of heads, for the paged cache of continuous batching, and for a layer whose class computes
    its attention with something else that it keeps, or hands over by another name.
    """
    if head_mask is not None:
        raise NotImplementedError('attentive: a head_mask needs attn_implementation="eager"')
    if cache is not None:
        raise NotImplementedError('attentive: continuous batching needs attn_implementation="sdpa" or a flash kernel')
    attributes, arguments = _unknown_terms(type(module))
    unknown = [name for name in attributes if name != "sinks" and getattr(module, name, None) is not None]
    unknown += [name for name in arguments if options.get(name) is not None]
    if unknown:
        raise NotImplementedError(
            f"attentive: {type(module).__name__} computes its attention with {', '.join(unknown)}, which this implementation does "
            'not know; take attn_implementation="eager"'
        )
    if scaling is None and hasattr(module, "scale_attn_by_inverse_layer_idx"):  # GPT-2 before transformers 5.3
        scaling = query.shape[-1] ** -0.5 if module.scale_attn_weights else 1.0
        if module.scale_attn_by_inverse_layer_idx:
            scaling /= module.layer_idx + 1
    if s_aux is None and "sinks" in attributes:
        s_aux = module.sinks
    causal = getattr(module, "is_causal", True) if is_causal is None else bool(is_causal)
    keys, window = key.shape[2], None
    mask = Mask()
    if isinstance(attention_mask, _CompactMask):
        if attention_mask.made is None and attention_mask.shape[2:] == (query.shape[2], keys):
            causal = attention_mask.causal
            window = None if attention_mask.window is None else (attention_mask.window - 1, 0)
            keep = attention_mask.key_keep
            key, value = key[:, :, : keep.shape[1]], value[:, :, : keep.shape[1]]
            if keep.stride(-1) != 0:
                mask = Mask.key_keep(keep)
            attention_mask = None
        else:
            attention_mask = attention_mask.pairs()
    if attention_mask is not None and attention_mask.dim() == 2:
        mask = Mask.key_keep(attention_mask)
    elif attention_mask is not None:
        causal = False
        mask = _mask_of_pairs(attention_mask[..., : key.shape[2]], query)
    if indices is not None:
        chosen = torch.zeros((*indices.shape[:2], keys), dtype=torch.bool, device=key.device).scatter(-1, indices.long(), True)
        mask = mask & Mask.keep(chosen[:, None, :, : key.shape[2]])
    if position_bias is not None:
        mask = mask & Mask.bias(position_bias[..., : key.shape[2]])
    if query.shape[0] != key.shape[0]:  # learned queries that all batch items share
        query = query.expand(key.shape[0], -1, -1, -1)

    found = attention(
        query,
        key,
        value,
        mask=mask,
        causal="bottom_right" if causal else "none",
        window=window,
        scale=scaling,
        softcap=softcap,
        sinks=s_aux,
        dropout_p=dropout,
        weights="dropped" if _wants_weights(options) else "none",
    )
    if isinstance(found, AttentionResult):
        return found.output.transpose(1, 2).contiguous(), found.weights
    return found.transpose(1, 2).contiguous(), None


def _mask_of_pairs(mask: Tensor, query: Tensor) -> Mask:
    if mask.dtype.is_floating_point:
        return Mask.bias(mask)
    if mask.dim() == 4 and mask.shape[1] == 1 and mask.shape[2] == 1:
        return Mask.key_keep(mask[:, 0, 0].expand(query.shape[0], -1))
    return Mask.keep(mask)


def _wants_weights(options: dict[str, Any]) -> bool:
    """Whether the caller of the model has asked for attentions. Some layers do not hand this on."""
    if options.get("output_attentions"):
        return True
    if torch.compiler.is_compiling():
        return False
    capturing = sys.modules.get("transformers.utils.output_capturing")
    collector = getattr(capturing, "_active_collector", None)
    wanted = collector.get() if collector is not None else None
    return wanted is not None and any("attentions" in name for name in wanted)


@torch.compiler.assume_constant_result
def _unknown_terms(kind: type) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Of a layer's class, what ``attention_forward`` does not know: attributes that its eager attention reads from the layer, and
    arguments that it hands over."""
    return _read_layer(kind)


# Attributes whose value is handed over, read by attention_forward, or known from the shapes or the mask; arguments whose meaning
# comes with the mask, or that change no result.
_KNOWN_ATTRIBUTES = {
    "training", "head_dim", "num_key_value_groups", "is_causal", "scale_attn_weights",
    "scale_attn_by_inverse_layer_idx", "layer_idx", "is_cross_attention", "bias", "attn_dropout",
    "position_embedding_type", "max_position_embeddings",
}  # fmt: skip
_KNOWN_ARGUMENTS = {
    "sliding_window", "position_ids", "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "output_attentions",
    "deterministic",
}  # fmt: skip


@functools.cache
def _read_layer(kind: type) -> tuple[tuple[str, ...], tuple[str, ...]]:
    def nodes(function: Any, sort: Any) -> list[Any]:
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        except (OSError, TypeError):  # no function, or one without a source
            return []
        return [node for node in ast.walk(tree) if isinstance(node, sort)]

    def is_name(node: Any, name: str) -> bool:
        return isinstance(node, ast.Name) and node.id == name

    forward = inspect.unwrap(kind.forward)
    calls = [call for call in nodes(forward, ast.Call) if call.args and is_name(call.args[0], "self")]
    arguments = {keyword.arg for call in calls for keyword in call.keywords if keyword.arg is not None}
    arguments -= {*inspect.signature(attention_forward).parameters, *_KNOWN_ARGUMENTS}
    attributes = set()
    for name in getattr(getattr(forward, "__code__", None), "co_names", ()):
        eager = forward.__globals__.get(name)
        if name.endswith("eager_attention_forward") and callable(eager):
            layer = next(iter(inspect.signature(eager).parameters))
            attributes.update(node.attr for node in nodes(eager, ast.Attribute) if is_name(node.value, layer))
    return tuple(sorted(attributes - _KNOWN_ATTRIBUTES)), tuple(sorted(arguments))


@torch.compiler.assume_constant_result
def _classes_beside(kind: type) -> tuple[bool, bool]:
    """Whether the model classes beside a configuration hand their attention to the interface, and whether they support "sdpa".

    One that does not hand it on would add the mask to its scores, whatever the mask means.
    """
    return _read_classes(kind)


@functools.cache
def _read_classes(kind: type) -> tuple[bool, bool]:
    package = kind.__module__.rpartition(".")[0]
    prefix = f"{package}.modeling_" if package else "modeling_"
    modules = [module for name, module in sys.modules.items() if name.startswith(prefix)] or [sys.modules[kind.__module__]]
    models = [found for module in modules for found in vars(module).values() if getattr(found, "__module__", "") == module.__name__]
    asks = all(hasattr(module, "ALL_ATTENTION_FUNCTIONS") for module in modules)
    return asks, all(getattr(model, "_supports_sdpa", True) for model in models)


class _CompactMask(Tensor):
    """The mask (B, 1, L, S) of pairs, stored as that of n <= S keys: query i sees key j where ``key_keep[:, j]`` is true, and, if
    causal, j <= i + n - L and j > i + n - L - window. Any operation on it makes the pairs and works on them."""

    @staticmethod
    def __new__(cls, key_keep, queries, length, dtype, causal=True, window=None, made=None):
        size = (key_keep.shape[0], 1, queries, length)
        mask = Tensor._make_wrapper_subclass(cls, size, dtype=dtype, device=key_keep.device)
        mask.key_keep, mask.causal, mask.window, mask.made = key_keep, causal, window, made
        return mask

    __torch_function__ = torch._C._disabled_torch_function_impl

    def __tensor_flatten__(self):
        return [name for name in ("key_keep", "made") if getattr(self, name) is not None], (self.dtype, self.causal, self.window)

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return _CompactMask(inner["key_keep"], size[2], size[3], *context, made=inner.get("made"))

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        args, kwargs = tree_map_only(cls, cls.pairs, (args, kwargs or {}))
        return function(*args, **kwargs)

    def pairs(self) -> Tensor:
        if self.made is None:  # kept, since an operation may write into it
            (batch, keys), (_, _, queries, length) = self.key_keep.shape, self.shape
            j = self.key_keep.new_ones(keys, dtype=torch.int64).cumsum(0) - 1  # of the kind of key_keep, which a compiler fakes
            i = (self.key_keep.new_ones(queries, dtype=torch.int64).cumsum(0) + (keys - queries - 1))[:, None]
            seen = self.key_keep[:, None, None].expand(batch, 1, queries, keys)
            if self.causal:
                seen = seen & (j <= i)
            if self.window is not None:
                seen = seen & (j > i - self.window)
            seen = torch.nn.functional.pad(seen, (0, length - keys))
            self.made = seen if self.dtype is torch.bool else _added(seen, self.dtype)
        return self.made


def _added(seen: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill(~seen, torch.finfo(dtype).min)


def _make_mask(utils: Any, full_masks: bool, call: dict[str, Any]) -> Tensor | None:
    """The mask of one call of a model. ``call`` holds what ``transformers`` gives to a function of AttentionMaskInterface."""
    asks, sdpa = _classes_beside(type(call.get("config")))
    if not asks:
        warnings.warn(
            f"attentive: a model of {type(call.get('config')).__name__} does not ask AttentionInterface for its attention, "
            "and keeps its own",
            stacklevel=4,
        )
        return utils.eager_mask(**call)
    if not full_masks and not call.get("use_vmap", False):
        dtype = torch.bool if sdpa else call.get("dtype", torch.float32)
        if call["mask_function"] is getattr(utils, "bidirectional_mask_function", None):
            if call.get("allow_is_bidirectional_skip", False):
                return _mask_of_keys(call, dtype)
        elif call.get("allow_is_causal_skip", True):
            window = call.get("local_size")
            chunked = window is not None and getattr(call.get("config"), "attention_chunk_size", None) is not None
            if not chunked and (window is not None or call["mask_function"] is utils.causal_mask_function):
                offset, queries = _queries(call)
                visible = None if offset is None else offset + queries - call.get("kv_offset", 0)
                if visible is not None and 0 < visible <= call["kv_length"]:  # the last query sees the last of these keys
                    if window is not None and not torch.compiler.is_compiling() and window >= visible:
                        window = None
                    return _CompactMask(_real_keys(call, visible), queries, call["kv_length"], dtype, window=window)
    whole = utils.sdpa_mask if sdpa else utils.eager_mask
    return whole(**{**call, "allow_is_causal_skip": False})


def _queries(call: dict[str, Any]) -> tuple[int | None, int]:
    """The position of the first query, None where a traced program does not know it, and their number."""
    offset, queries = call.get("q_offset", 0), call.get("q_length")
    if "cache_position" in call:  # before transformers 5: the positions of the queries
        offset, queries = call["cache_position"][0], call["cache_position"].shape[0]
    if isinstance(offset, Tensor):
        offset = None if torch.compiler.is_compiling() else int(offset)
    return offset, queries


def _real_keys(call: dict[str, Any], length: int) -> Tensor:
    """The padding of the first ``length`` keys of a layer as bool (B, length); one number if no key is padding."""
    given = call.get("attention_mask")
    if given is not None:
        first = call.get("kv_offset", 0)
        missing = first + length - given.shape[-1]
        if missing > 0:  # keys that the mask does not know are not there yet
            given = torch.nn.functional.pad(given, (0, missing))
        keep = given[:, first : first + length].bool()
        if torch.compiler.is_compiling() or not keep.all():  # a traced program cannot depend on the numbers
            return keep
    return torch.ones((1, 1), dtype=torch.bool, device=call.get("device", "cpu")).expand(call["batch_size"], length)


def _mask_of_keys(call: dict[str, Any], dtype: torch.dtype) -> Tensor | None:
    keep = _real_keys(call, call["kv_length"])
    if keep.stride(-1) == 0 and getattr(call.get("config"), "is_causal", True):
        return None
    # Without padding, too, the layers of a decoder would take None for a causal mask.
    return _CompactMask(keep, _queries(call)[1], call["kv_length"], dtype, causal=False)


_MODEL_TYPES = ("qwen3_next", "qwen3_5", "qwen3_5_moe", "olmo_hybrid", "kimi_linear")
_DELTA_RULES = (
    "torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule", "chunk_kimi_delta_attention", "recurrent_kimi_delta_attention",
)  # fmt: skip


def register_delta_rule(*model_types: str) -> None:
    """Registers layers whose gated delta rule is ``attentive.gated_delta_rule``, with ``register_patch_mapping`` of ``transformers``.

    Afterwards ``from_pretrained`` and ``from_config`` build models with them, and so does a class called inside ``with
    transformers.monkey_patching.apply_patches()``. A layer is a subclass of that of ``transformers``, with the same parameters,
    caches and code, in which the chunked and the recurrent function are those of this package. Packed sequences are refused as
    there. ``model_types``: names of folders of ``transformers.models``; without any, Qwen3-Next, Qwen 3.5, Olmo-hybrid and
    Kimi Linear. ``unregister_patch_mapping`` of ``transformers`` takes the layers' names away again.

    Raises ImportError where ``transformers`` has no such registry (5.24 has one), and ValueError for a model type without a
    gated delta rule.

        attentive.transformers.register_delta_rule("qwen3_next")
        model = AutoModelForCausalLM.from_config(config)
    """
    try:
        from transformers.monkey_patching import register_patch_mapping
    except ImportError as error:
        raise ImportError("register_delta_rule needs transformers 5.24 or later: pip install transformers") from error

    layers: dict[str, type] = {}
    for model_type in model_types or _MODEL_TYPES:
        name = f"transformers.models.{model_type}.modeling_{model_type}"
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise ValueError(f"register_delta_rule: expected a model type of transformers, got {model_type!r}") from error
        own = {name: _delta_rule_for(getattr(module, name)) for name in _DELTA_RULES if hasattr(module, name)}
        found = {
            kind.__name__: type(kind.__name__, (kind,), {"forward": _with_names(kind.forward, own), "__module__": name})
            for kind in vars(module).values()
            if isinstance(kind, type) and kind.__module__ == name and own.keys() & _names_in(kind.__dict__.get("forward"))
        }
        if not found:
            raise ValueError(f"register_delta_rule: expected a model type with a gated delta rule, got {model_type!r}")
        layers |= found
    register_patch_mapping(layers, overwrite=True)


def _delta_rule_for(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """The function that takes the place of one of ``transformers``, with its arguments."""

    @functools.wraps(theirs)
    def ours(query, key, value, g, beta, initial_state=None, output_final_state=False, use_qk_l2norm_in_kernel=False, **options):
        if options.get("cu_seqlens") is not None:  # the convolution before it would mix the sequences
            return theirs(query, key, value, g=g, beta=beta, initial_state=initial_state, output_final_state=output_final_state,
                          use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel, **options)  # fmt: skip
        q, k, v, gate, beta = (x.transpose(1, 2) for x in (query, key, value, g, beta))
        wide = torch.float64 if value.dtype is torch.float64 else torch.float32
        gate, beta, state = (x if x is None else x.to(wide) for x in (gate, beta, initial_state))
        output, state = gated_delta_rule(q, k, v, gate, beta, state, normalize_eps=1e-6 if use_qk_l2norm_in_kernel else None)
        return output.transpose(1, 2).contiguous(), state if output_final_state else None

    return ours


def _names_in(function: Any) -> set[str]:
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    return set(code.co_names) if code is not None else set()


def _with_names(function: Any, names: dict[str, Any]) -> Any:
    """A copy of a function, with the decorators around it, for which some global names mean something else."""
    inner, scope, cells = getattr(function, "__wrapped__", None), function.__globals__, function.__closure__
    if inner is None:
        scope = {**scope, **names}
    else:
        copied = _with_names(inner, names)
        cells = tuple(types.CellType(copied) if cell.cell_contents is inner else cell for cell in cells)
    made = types.FunctionType(function.__code__, scope, function.__name__, function.__defaults__, cells)
    made.__kwdefaults__ = function.__kwdefaults__
    return functools.update_wrapper(made, function)

"""An attention implementation for ``transformers``.

    import attentive.transformers

    attentive.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="attentive")

A model of ``transformers`` asks for a mask once and hands it to the attention of each layer. For this implementation a mask is
one of the following, so that causal order and windows cost no memory:

* None: no mask; the layer says whether it is causal, as for "sdpa".
* uint8 (B, S): causal, and the real keys. Only the first S keys of a layer are used, which leaves out the part of a static
  cache that is not filled yet; the last query sees the last of them.
* uint8 (B, W, S): the same with a window of W keys. It is a view whose middle dimension repeats one row. Where no key is
  padding, the last dimension repeats one number as well.
* bool (B, 1, 1, S): the real keys of attention in both directions.
* Everything else, such as masks of packed sequences or of the model's own making, has a value for every pair of a query and a
  key: bool (true: may attend), or numbers that are added to the scores.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import torch
from torch import Tensor

from attentive._mask import Mask
from attentive.functional import AttentionResult, attention

__all__ = ["attention_forward", "register"]


def register(name: str = "attentive", full_masks: bool = False) -> None:
    """Registers the implementation with ``AttentionInterface`` and ``AttentionMaskInterface`` of ``transformers``.

    Afterwards ``from_pretrained(..., attn_implementation=name)``, ``from_config`` and ``set_attn_implementation`` take it. It
    computes sinks, windows, softcaps, position biases, grouped heads, dropout in training, and weights
    (``output_attentions=True`` in a call). A model class that does not ask the interface keeps its own attention.

    ``full_masks``: every mask has a value for every pair, in O(L S) memory, as for "sdpa"; for a model class that computes with
    its mask.

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
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """The attention of one layer: query (B, H, L, D), key and value (B, Hkv, S, D) -> output (B, L, H, D), weights or None.

    Raises NotImplementedError for a mask of heads and for the paged cache of continuous batching.
    """
    if head_mask is not None:
        raise NotImplementedError('attentive: a head_mask needs attn_implementation="eager"')
    if cache is not None:
        raise NotImplementedError('attentive: continuous batching needs attn_implementation="sdpa" or a flash kernel')
    causal = getattr(module, "is_causal", True) if is_causal is None else bool(is_causal)
    window = None
    mask = Mask()
    if attention_mask is not None:
        if attention_mask.dtype is torch.uint8 and attention_mask.dim() in (2, 3):
            causal = True
            length = attention_mask.shape[-1]
            if length != key.shape[2]:
                key, value = key[:, :, :length], value[:, :, :length]
            if attention_mask.dim() == 3:
                window = (attention_mask.shape[1] - 1, 0)
                attention_mask = attention_mask[:, 0]
            if attention_mask.stride(-1) != 0:
                mask = Mask.key_keep(attention_mask)
        elif attention_mask.dim() == 2:
            mask = Mask.key_keep(attention_mask)
        else:
            causal = False
            mask = _mask_of_pairs(attention_mask[..., : key.shape[2]], query)
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


_ASKING: dict[type, bool] = {}


def _asks_interface(config: Any) -> bool:
    """Whether the model classes beside this configuration hand their attention to the interface.

    One that does not would add the mask to its scores, whatever the mask means.
    """
    kind = type(config)
    if kind not in _ASKING:
        _ASKING[kind] = _modules_ask(kind)
    return _ASKING[kind]


def _modules_ask(kind: type) -> bool:
    package = kind.__module__.rpartition(".")[0]
    prefix = f"{package}.modeling_" if package else "modeling_"
    names = [name for name in sys.modules if name.startswith(prefix)] or [kind.__module__]
    return all(hasattr(sys.modules[name], "ALL_ATTENTION_FUNCTIONS") for name in names)


def _make_mask(utils: Any, full_masks: bool, call: dict[str, Any]) -> Tensor | None:
    """The mask of one call of a model. ``call`` holds what ``transformers`` gives to a function of AttentionMaskInterface."""
    given = call.get("attention_mask")
    if given is not None and given.dim() == 3:  # a mask of ours, which generate() hands back
        call = {**call, "attention_mask": given[:, 0].bool()}
    if not _asks_interface(call.get("config")):
        warnings.warn(
            f"attentive: a model of {type(call.get('config')).__name__} does not ask AttentionInterface for its attention, "
            "and keeps its own",
            stacklevel=4,
        )
        return utils.eager_mask(**call)
    if not full_masks and not call.get("use_vmap", False):
        if call["mask_function"] is getattr(utils, "bidirectional_mask_function", None):
            if call.get("allow_is_bidirectional_skip", False):
                return _mask_of_keys(call)
        elif call.get("allow_is_causal_skip", True):
            window = call.get("local_size")
            chunked = window is not None and getattr(call.get("config"), "attention_chunk_size", None) is not None
            if not chunked and (window is not None or call["mask_function"] is utils.causal_mask_function):
                visible = _visible_keys(call)
                if visible is not None:
                    return _causal_mask(call, visible, window)
    return utils.sdpa_mask(**{**call, "allow_is_causal_skip": False})


def _visible_keys(call: dict[str, Any]) -> int | None:
    """How many keys the last query of a causal call sees; None where that is not known or the keys end before."""
    offset, queries = call.get("q_offset", 0), call.get("q_length")
    if "cache_position" in call:  # before transformers 5: the positions of the queries
        offset, queries = call["cache_position"][0], call["cache_position"].shape[0]
    if isinstance(offset, Tensor):
        if torch.compiler.is_compiling():
            return None
        offset = int(offset)
    visible = offset + queries - call.get("kv_offset", 0)
    return visible if 0 < visible <= call["kv_length"] else None


def _real_keys(call: dict[str, Any], length: int) -> Tensor | None:
    """The padding of the first ``length`` keys of a layer as bool (B, length); None if no key is padding."""
    given = call.get("attention_mask")
    if given is None:
        return None
    first = call.get("kv_offset", 0)
    missing = first + length - given.shape[-1]
    if missing > 0:  # keys that the mask does not know are not there yet
        given = torch.nn.functional.pad(given, (0, missing))
    keep = given[:, first : first + length].bool()
    # A traced program cannot depend on the numbers.
    return None if not torch.compiler.is_compiling() and keep.all() else keep


def _causal_mask(call: dict[str, Any], visible: int, window: int | None) -> Tensor | None:
    keep = _real_keys(call, visible)
    if window is not None and not torch.compiler.is_compiling() and window >= visible:
        window = None
    if keep is None:
        if window is None and visible == call["kv_length"]:
            return None
        keep = torch.ones((1, 1), dtype=torch.uint8, device=call.get("device", "cpu")).expand(call["batch_size"], visible)
    else:
        keep = keep.to(torch.uint8)
    return keep if window is None else keep[:, None].expand(-1, window, -1)


def _mask_of_keys(call: dict[str, Any]) -> Tensor | None:
    keep = _real_keys(call, call["kv_length"])
    if keep is None and not getattr(call.get("config"), "is_causal", True):
        # The layers of a decoder would take None for a causal mask.
        keep = torch.ones((1, 1), dtype=torch.bool, device=call.get("device", "cpu")).expand(call["batch_size"], call["kv_length"])
    return None if keep is None else keep[:, None, None]

"""The attention function."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, TypeVar, overload

import torch
from torch import Tensor
from torch.utils import _pytree

from attentive._mask import Mask, describe, terms_of

Causal = Literal["none", "bottom_right", "top_left"]
Align = Literal["bottom_right", "top_left", "lengths"]
Weights = Literal["none", "clean", "dropped"]
Backend = Literal["auto", "reference", "torch", "native"]
DropoutStream = Literal["any", "aten", "counter"]
Window = tuple[int, int]

if TYPE_CHECKING:
    from typing_extensions import Unpack

_operators = torch.ops.attentive
_Function = TypeVar("_Function", bound=Callable[..., Any])


class AttentionOptions(TypedDict, total=False):
    """The options that ``attention``, ``attention_varlen`` and ``explain`` share."""

    causal: Causal
    window: Window | None
    align: Align
    scale: float | None
    softcap: float | None
    alibi_slopes: Tensor | None
    sinks: Tensor | None
    softmax_plus_one: bool
    dropout_p: float
    dropout_stream: DropoutStream
    backend: Backend


class DropoutOptions(AttentionOptions, total=False):
    """The options of a call that may draw random numbers."""

    dropout_key: Tensor | None
    generator: torch.Generator | None


_DEFAULTS: dict[str, Any] = dict(
    causal="none", window=None, align="bottom_right", scale=None, softcap=None, alibi_slopes=None, sinks=None,
    softmax_plus_one=False, dropout_p=0.0, dropout_stream="any", backend="auto",
)
_DROPOUT_DEFAULTS: dict[str, Any] = dict(_DEFAULTS, dropout_key=None, generator=None)


def _shows(options: type, defaults: dict[str, Any]) -> Callable[[_Function], _Function]:
    """Gives a function that takes ``**options`` the signature that lists them, for help() and editors."""

    def shown(function: _Function) -> _Function:
        signature = inspect.signature(function)
        kind = inspect.Parameter.KEYWORD_ONLY
        named = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        named += [
            inspect.Parameter(name, kind, default=value, annotation=options.__annotations__[name].__forward_arg__)
            for name, value in defaults.items()
        ]
        function.__signature__ = signature.replace(parameters=named)  # type: ignore[attr-defined]
        return function

    return shown


class AttentionResult(NamedTuple):
    """The results of a call; a member that was not asked for is None."""

    output: Tensor
    """(..., H, L, Dv), dtype of q."""
    weights: Tensor | None = None
    """(..., H, L, S), dtype of q."""
    logsumexp: Tensor | None = None
    """(..., H, L), packed (H, Tq): natural logarithm, sinks included; float32, or float64 for float64 inputs."""


# A program that returns one can be saved after torch.export.
_pytree._register_namedtuple(AttentionResult, serialized_type_name="attentive.AttentionResult")


@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Mask | Tensor | None = None,
    weights: Literal["none"] = "none",
    logsumexp: Literal[False] = False,
    **options: Unpack[DropoutOptions],
) -> Tensor: ...


@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Mask | Tensor | None = None,
    weights: Weights = "none",
    logsumexp: bool = False,
    **options: Unpack[DropoutOptions],
) -> Tensor | AttentionResult: ...


@_shows(DropoutOptions, _DROPOUT_DEFAULTS)
def attention(q, k, v, *, mask=None, weights="none", logsumexp=False, **options):
    """Scaled dot-product attention.

    scores = scale * q k^T -> softcap -> + bias -> + ALiBi -> mask, causal, window -> softmax -> dropout -> times v

    q (..., H, L, D), k (..., Hkv, S, D), v (..., Hkv, S, Dv) -> (..., H, L, Dv). Inputs may also have the shapes (L, D) and
    (B, L, D), which mean one head. H must be a multiple of Hkv: query head h reads key head h // (H / Hkv), and no key is
    repeated in memory. All three have one dtype: float64, float32, bfloat16 or float16; any strides.

    * ``mask``: a ``Mask``, or a bool tensor (true: may attend).
    * ``causal``: "bottom_right" (the last query sees every key, as a cache needs), or "top_left" (PyTorch's ``is_causal``).
    * ``window``: (left, right), keys to either side of a query's own position that it may see; -1 means all of them. A causal
      window of 256 tokens is ``causal="bottom_right", window=(255, 0)``.
    * ``align``: the key at which query i stands, from which windows, ALiBi's distances and dropout's positions count:
      "bottom_right" (i + S - L), "top_left" (i), or "lengths" (i + key_length[b] - query_length[b], from ``Mask.key_lengths``
      and ``Mask.query_lengths``, L without those; the bottom-right causal diagonal then follows the lengths too). With
      "lengths", each batch item equals its own call on the cut tensors, and queries before its first key give 0.
    * ``scale``: the factor of the scores, 1 / sqrt(D) if None. ``softcap``: scores become softcap * tanh(scores / softcap).
    * ``alibi_slopes``: (H,) or (B, H); -slope * distance is added to a score. ``sinks``: (H,); one more logit in every
      softmax denominator, whose value is zero. ``softmax_plus_one``: a sink of logit 0. Gradients flow to slopes and sinks.
    * ``dropout_p``: the probability of dropping a weight, applied whenever it is positive: pass 0 outside training. The bits
      follow from a key, which is drawn from ``generator`` (a CPU generator; the default one if None) or given as
      ``dropout_key`` (``draw_dropout_key``). ``dropout_stream="aten"`` draws the bits of ``softmax`` followed by
      ``nn.Dropout``, in O(L S) memory.
    * ``weights``: "clean" (rows of the softmax) or "dropped" (the same after dropout) returns them. ``logsumexp``: returns
      the logarithm of each softmax denominator. Gradients flow through both.
    * ``backend``: "auto" takes the fastest one that computes the call exactly; ``explain`` says which.

    Returns the output, or an ``AttentionResult`` if weights or logsumexp are asked for. A query that may see no key has zero
    weights, output and gradients.

    Raises ValueError, TypeError or NotImplementedError, naming the argument, what was expected and what came. Memory:
    O(B H L Dv), or O(B H L S) where the reference computes the call or weights are returned.

        y = attention(q, k, v, causal="bottom_right", mask=Mask.key_lengths(lengths))
        y, w, lse = attention(q, k, v, weights="clean", logsumexp=True)
    """
    given = _read("attention", q, k, v, weights, _DROPOUT_DEFAULTS, options)
    terms = terms_of(mask, q)
    _draw("attention", given, q, (*q.shape[:-1], *k.shape[-2:-1]))
    found = _called(
        "attention",
        _operators.attention,
        q,
        k,
        v,
        keep=terms.keep,
        bias=terms.bias,
        key_keep=terms.key_keep,
        key_lengths=terms.key_lengths,
        query_lengths=terms.query_lengths,
        weights=weights,
        logsumexp=logsumexp,
        **given,
    )
    if weights == "none" and not logsumexp:
        return found[0]
    return AttentionResult(found[0], found[1] if weights != "none" else None, found[2] if logsumexp else None)


@overload
def attention_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    *,
    logsumexp: Literal[False] = False,
    **options: Unpack[DropoutOptions],
) -> Tensor: ...


@overload
def attention_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    *,
    logsumexp: bool = False,
    **options: Unpack[DropoutOptions],
) -> Tensor | AttentionResult: ...


@_shows(DropoutOptions, _DROPOUT_DEFAULTS)
def attention_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, *, logsumexp=False, **options):
    """Attention over sequences of different lengths that are packed one after another, without padding.

    q (Tq, H, D), k (Tk, Hkv, D), v (Tk, Hkv, Dv) -> (Tq, H, Dv); cu_seqlens_q, cu_seqlens_k (N + 1), int32 or int64, on the
    CPU. Both start at 0, never decrease, and end at Tq and Tk: sequence n owns the rows cu_seqlens[n] to cu_seqlens[n + 1] - 1.
    Causal masks, windows and ALiBi count within a sequence. The options are those of ``attention``.

    Returns the output, or an ``AttentionResult`` with a logsumexp of shape (H, Tq) if it is asked for. Raises as ``attention``.

        y = attention_varlen(q, k, v, ends, ends, causal="bottom_right")
    """
    given = _read("attention_varlen", q, k, v, "none", _DROPOUT_DEFAULTS, options)
    for name, ends in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k)):
        if not isinstance(ends, Tensor):
            raise TypeError(f"attention_varlen: expected {name} to be a tensor, got {describe(ends)}")

    _draw("attention_varlen", given, q, q.shape[1:2], cu_seqlens_q, cu_seqlens_k)
    found = _called(
        "attention_varlen",
        _operators.attention_varlen,
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        logsumexp=logsumexp,
        **given,
    )
    return AttentionResult(found[0], None, found[1]) if logsumexp else found[0]


def merge_attention(outputs: Sequence[Tensor], logsumexps: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Output and logsumexp over all keys, from those of attention by the same queries over parts of the keys.

    outputs: (..., Tq, Dv) each, of one dtype; logsumexps: (..., Tq) each -> output (..., Tq, Dv), logsumexp (..., Tq).

    The share of a part is exp(its logsumexp - that of the result). A part of -inf has no share, whatever its output holds; if
    all are -inf, the output is 0 and the logsumexp -inf. Outputs of a half type are summed in float32 and rounded once; the
    logsumexp is float32, or float64 if one of them is. Gradients of any order flow to both, and under ``torch.func`` too. A
    packed output (Tq, H, Dv) is transposed first: ``output.transpose(0, 1)``.

    Raises ValueError or TypeError for no parts, and for shapes, dtypes and devices that do not fit.

        near, far = (attention(q, *kv, logsumexp=True) for kv in ((k1, v1), (k2, v2)))
        y, lse = merge_attention([near.output, far.output], [near.logsumexp, far.logsumexp])
    """
    return _called("merge_attention", _operators.merge_attention, outputs, logsumexps)


def draw_dropout_key(generator: torch.Generator | None = None) -> Tensor:
    """Draws the key of a call's dropout from a CPU generator, the default one if None: an int64 scalar.

    Two calls with one key drop the same weights, on every backend and for any number of threads.

        key = draw_dropout_key()
        y = attention(q, k, v, dropout_p=0.1, dropout_key=key)
    """
    return _called("draw_dropout_key", _operators.draw_dropout_key, _salt(), generator=generator)


@dataclass(frozen=True)
class Candidate:
    """A backend, whether it can compute the call, and why or why not."""

    backend: str
    available: bool
    reason: str


@dataclass(frozen=True)
class Explanation:
    """The backend that a call takes, and notes about masks that look wrong."""

    chosen: str
    candidates: tuple[Candidate, ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{'backend':<10} {'':<9} why"]
        for one in self.candidates:
            state = "chosen" if one.backend == self.chosen else "possible" if one.available else "refused"
            lines.append(f"{one.backend:<10} {state:<9} {one.reason}")
        return "\n".join(lines + [f"note: {note}" for note in self.notes])


@_shows(AttentionOptions, _DEFAULTS)
def explain(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Mask | Tensor | None = None,
    weights: Weights = "none",
    logsumexp: bool = False,
    **options: Unpack[AttentionOptions],
) -> Explanation:
    """Says which backend computes ``attention`` with these arguments and why, without running it.

    It also reads the mask: it notes queries that see no key, and a mask that looks reversed for the causal order. Raises what
    the call itself would raise.

        print(explain(q, k, v, dropout_p=0.1))
    """
    given = _read("explain", q, k, v, weights, _DEFAULTS, options)
    terms = terms_of(mask, q)
    chosen, backends, available, reasons, notes = _called(
        "explain",
        _operators.explain,
        q,
        k,
        v,
        keep=terms.keep,
        bias=terms.bias,
        key_keep=terms.key_keep,
        key_lengths=terms.key_lengths,
        query_lengths=terms.query_lengths,
        weights=weights,
        logsumexp=logsumexp,
        **given,
    )
    candidates = tuple(Candidate(*one) for one in zip(backends, available, reasons, strict=True))
    return Explanation(chosen, candidates, tuple(notes))


def _called(caller: str, operator: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Calls an operator. A value of a wrong type is a TypeError, which PyTorch reports by printing the schema."""
    try:
        return operator(*arguments, **options)
    except RuntimeError as error:
        found = re.search(r"Expected a value of type '(.*?)' for argument '(\w+)' but instead found type '(\w+)'", str(error))
        if found is None:
            raise
        wanted, name, given = found.groups()
        raise TypeError(f"{caller}: expected {name} of type {wanted}, got {given}") from None


def _read(caller, q, k, v, weights, defaults, options):
    """The options of a call as its operator takes them. Refuses what the operator would refuse in the words of its schema."""
    for name in options:
        if name not in defaults:
            raise TypeError(f"{caller}() got an unexpected keyword argument '{name}'")
    given = {**defaults, **options}
    if not (isinstance(q, Tensor) and isinstance(k, Tensor) and isinstance(v, Tensor)):
        raise TypeError(f"{caller}: expected q, k and v to be tensors, got {describe(q)}, {describe(k)} and {describe(v)}")
    if isinstance(given["causal"], bool):
        raise TypeError(
            f'{caller}: causal is not a flag: say causal="bottom_right" (the last query sees every key) or causal="top_left" '
            "(PyTorch's is_causal); for as many queries as keys both are the same"
        )
    for name in ("causal", "align", "dropout_stream", "backend"):
        if not isinstance(given[name], str):
            raise TypeError(f"{caller}: expected {name} to be a string, got {describe(given[name])}")
    if not isinstance(weights, str):
        raise TypeError(f"{caller}: expected weights to be a string, got {describe(weights)}")
    window = given.pop("window")
    if window is None:
        window = (-1, -1)
    if not isinstance(window, (tuple, list)) or len(window) != 2:  # torch.compile of 2.7 knows no `tuple | list`
        raise TypeError(f"{caller}: expected window to be a pair (left, right), got {window!r}")
    given["window_left"], given["window_right"] = window
    return given


def _draw(caller, given, q, sizes, *ends):
    """Draws the key of a call that needs one. ``sizes``: of the weights, or the number of heads of packed sequences."""
    generator, p = given.pop("generator"), given["dropout_p"]
    if given["dropout_key"] is not None:
        if generator is not None:
            raise ValueError(f"{caller}: expected a generator or a dropout_key, got both")
        return
    try:
        if not 0.0 < p < 1.0:
            return
    except TypeError:  # the operator says what it wants
        return
    if torch.compiler.is_compiling() and _is_drawn_again():
        raise NotImplementedError(
            f"{caller}: in torch._functorch.config, expected activation_memory_budget = 1, or a budget above 0 with "
            "is_non_builtin_to_include = True: otherwise the compiled backward pass draws its dropout anew"
        )
    if given["dropout_stream"] == "aten":
        if torch.jit.is_tracing():  # its sizes are tensors
            sizes = [int(size) for size in sizes]
        state = _called(caller, _operators.draw_dropout_state, _salt(), p, sizes, *ends, generator=generator)
        given["dropout_key"] = state.to(q.device)
    else:
        given["dropout_key"] = _called(caller, _operators.draw_dropout_key, _salt(), generator=generator)


@torch.compiler.assume_constant_result
def _is_drawn_again():
    from torch._functorch import config

    kept = getattr(config, "is_non_builtin_to_include", False)  # then the results of operators like ours are saved
    return config.activation_memory_budget < 1 and not (kept and config.activation_memory_budget > 0)


def _salt():
    """Nothing, from an operator that PyTorch knows to be random.

    A compiler may merge two equal calls of an operator that is not on PyTorch's own list, whatever its tags say; those that draw
    differ by this argument. ``vmap`` obeys its ``randomness`` here. It draws no number, and is on the CPU under any default.
    """
    return torch.randperm(0, device="cpu")

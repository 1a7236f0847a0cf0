"""The attention function."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, overload

import torch
from torch import Tensor
from torch.utils import _pytree

from attentive._mask import Mask, describe, terms_of

Causal = Literal["none", "bottom_right", "top_left"]
Weights = Literal["none", "clean", "dropped"]
Backend = Literal["auto", "reference", "torch", "native"]
DropoutStream = Literal["any", "aten", "counter"]
Window = tuple[int, int]

_operators = torch.ops.attentive


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
    causal: Causal = "none",
    window: Window | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    softmax_plus_one: bool = False,
    dropout_p: float = 0.0,
    dropout_stream: DropoutStream = "any",
    dropout_key: Tensor | None = None,
    generator: torch.Generator | None = None,
    weights: Literal["none"] = "none",
    logsumexp: Literal[False] = False,
    backend: Backend = "auto",
) -> Tensor: ...


@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Mask | Tensor | None = None,
    causal: Causal = "none",
    window: Window | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    softmax_plus_one: bool = False,
    dropout_p: float = 0.0,
    dropout_stream: DropoutStream = "any",
    dropout_key: Tensor | None = None,
    generator: torch.Generator | None = None,
    weights: Weights = "none",
    logsumexp: bool = False,
    backend: Backend = "auto",
) -> Tensor | AttentionResult: ...


def attention(
    q,
    k,
    v,
    *,
    mask=None,
    causal="none",
    window=None,
    scale=None,
    softcap=None,
    alibi_slopes=None,
    sinks=None,
    softmax_plus_one=False,
    dropout_p=0.0,
    dropout_stream="any",
    dropout_key=None,
    generator=None,
    weights="none",
    logsumexp=False,
    backend="auto",
):
    """Scaled dot-product attention.

    scores = scale * q k^T -> softcap -> + bias -> + ALiBi -> mask, causal, window -> softmax -> dropout -> times v

    q (..., H, L, D), k (..., Hkv, S, D), v (..., Hkv, S, Dv) -> (..., H, L, Dv). Inputs may also have the shapes (L, D) and
    (B, L, D), which mean one head. H must be a multiple of Hkv: query head h reads key head h // (H / Hkv), and no key is
    repeated in memory. All three have one dtype: float64, float32, bfloat16 or float16; any strides.

    * ``mask``: a ``Mask``, or a bool tensor (true: may attend).
    * ``causal``: "bottom_right" (the last query sees every key, as a cache needs), or "top_left" (PyTorch's ``is_causal``).
    * ``window``: (left, right), keys to either side of a query's own position that it may see; -1 means all of them. A causal
      window of 256 tokens is ``causal="bottom_right", window=(255, 0)``.
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
    _check_types("attention", q, k, v, causal, dropout_stream, backend, weights)
    left, right = _window("attention", window)
    terms = terms_of(mask, q)
    if generator is not None:
        dropout_key = _drawn_key(
            "attention", generator, dropout_key, dropout_p, dropout_stream, lambda: [(*q.shape[:-1], k.shape[-2])]
        )
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
        alibi_slopes=alibi_slopes,
        sinks=sinks,
        scale=scale,
        causal=causal,
        window_left=left,
        window_right=right,
        softcap=softcap,
        softmax_plus_one=softmax_plus_one,
        dropout_p=dropout_p,
        dropout_stream=dropout_stream,
        dropout_key=dropout_key,
        backend=backend,
        weights=weights,
        logsumexp=logsumexp,
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
    causal: Causal = "none",
    window: Window | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    softmax_plus_one: bool = False,
    dropout_p: float = 0.0,
    dropout_stream: DropoutStream = "any",
    dropout_key: Tensor | None = None,
    generator: torch.Generator | None = None,
    logsumexp: Literal[False] = False,
    backend: Backend = "auto",
) -> Tensor: ...


@overload
def attention_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    *,
    causal: Causal = "none",
    window: Window | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    softmax_plus_one: bool = False,
    dropout_p: float = 0.0,
    dropout_stream: DropoutStream = "any",
    dropout_key: Tensor | None = None,
    generator: torch.Generator | None = None,
    logsumexp: bool = False,
    backend: Backend = "auto",
) -> Tensor | AttentionResult: ...


def attention_varlen(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_k,
    *,
    causal="none",
    window=None,
    scale=None,
    softcap=None,
    alibi_slopes=None,
    sinks=None,
    softmax_plus_one=False,
    dropout_p=0.0,
    dropout_stream="any",
    dropout_key=None,
    generator=None,
    logsumexp=False,
    backend="auto",
):
    """Attention over sequences of different lengths that are packed one after another, without padding.

    q (Tq, H, D), k (Tk, Hkv, D), v (Tk, Hkv, Dv) -> (Tq, H, Dv); cu_seqlens_q, cu_seqlens_k (N + 1), int32 or int64, on the
    CPU. Both start at 0, never decrease, and end at Tq and Tk: sequence n owns the rows cu_seqlens[n] to cu_seqlens[n + 1] - 1.
    Causal masks, windows and ALiBi count within a sequence. The options are those of ``attention``.

    Returns the output, or an ``AttentionResult`` with a logsumexp of shape (H, Tq) if it is asked for. Raises as ``attention``.

        y = attention_varlen(q, k, v, ends, ends, causal="bottom_right")
    """
    _check_types("attention_varlen", q, k, v, causal, dropout_stream, backend, "none")
    for name, ends in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k)):
        if not isinstance(ends, Tensor):
            raise TypeError(f"attention_varlen: expected {name} to be a tensor, got {describe(ends)}")
    left, right = _window("attention_varlen", window)
    if generator is not None:
        def shapes():
            pairs = zip(cu_seqlens_q.diff().tolist(), cu_seqlens_k.diff().tolist(), strict=True)
            return [(q.shape[1], queries, keys) for queries, keys in pairs]

        dropout_key = _drawn_key("attention_varlen", generator, dropout_key, dropout_p, dropout_stream, shapes)
    found = _called(
        "attention_varlen",
        _operators.attention_varlen,
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        alibi_slopes=alibi_slopes,
        sinks=sinks,
        scale=scale,
        causal=causal,
        window_left=left,
        window_right=right,
        softcap=softcap,
        softmax_plus_one=softmax_plus_one,
        dropout_p=dropout_p,
        dropout_stream=dropout_stream,
        dropout_key=dropout_key,
        logsumexp=logsumexp,
        backend=backend,
    )
    return AttentionResult(found[0], None, found[1]) if logsumexp else found[0]


def draw_dropout_key(generator: torch.Generator | None = None) -> Tensor:
    """Draws the key of a call's dropout from a CPU generator, the default one if None: an int64 scalar.

    Two calls with one key drop the same weights, on every backend and for any number of threads.

        key = draw_dropout_key()
        y = attention(q, k, v, dropout_p=0.1, dropout_key=key)
    """
    return _operators.draw_dropout_key(generator)


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


def explain(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Mask | Tensor | None = None,
    causal: Causal = "none",
    window: Window | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    softmax_plus_one: bool = False,
    dropout_p: float = 0.0,
    dropout_stream: DropoutStream = "any",
    weights: Weights = "none",
    logsumexp: bool = False,
    backend: Backend = "auto",
) -> Explanation:
    """Says which backend computes ``attention`` with these arguments and why, without running it.

    It also reads the mask: it notes queries that see no key, and a mask that looks reversed for the causal order. Raises what
    the call itself would raise.

        print(explain(q, k, v, dropout_p=0.1))
    """
    _check_types("explain", q, k, v, causal, dropout_stream, backend, weights)
    left, right = _window("explain", window)
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
        alibi_slopes=alibi_slopes,
        sinks=sinks,
        scale=scale,
        causal=causal,
        window_left=left,
        window_right=right,
        softcap=softcap,
        softmax_plus_one=softmax_plus_one,
        dropout_p=dropout_p,
        dropout_stream=dropout_stream,
        backend=backend,
        weights=weights,
        logsumexp=logsumexp,
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


def _check_types(caller, q, k, v, causal, dropout_stream, backend, weights):
    """The arguments that an operator would refuse in the words of its schema."""
    if not (isinstance(q, Tensor) and isinstance(k, Tensor) and isinstance(v, Tensor)):
        raise TypeError(f"{caller}: expected q, k and v to be tensors, got {describe(q)}, {describe(k)} and {describe(v)}")
    if isinstance(causal, bool):
        raise TypeError(
            f'{caller}: causal is not a flag: say causal="bottom_right" (the last query sees every key) or causal="top_left" '
            "(PyTorch's is_causal); for as many queries as keys both are the same"
        )
    for name, value in (("causal", causal), ("dropout_stream", dropout_stream), ("backend", backend), ("weights", weights)):
        if not isinstance(value, str):
            raise TypeError(f"{caller}: expected {name} to be a string, got {describe(value)}")


def _window(caller, window):
    if window is None:
        return -1, -1
    if not isinstance(window, tuple | list) or len(window) != 2:
        raise TypeError(f"{caller}: expected window to be a pair (left, right), got {window!r}")
    return window[0], window[1]


def _drawn_key(caller, generator, key, p, stream, shapes):
    """The random numbers of a call, drawn from a generator. ``shapes`` gives the shapes of the weights."""
    if key is not None:
        raise ValueError(f"{caller}: expected a generator or a dropout_key, got both")
    if not 0.0 < p < 1.0:
        return None  # nothing is drawn
    if stream != "aten":
        return draw_dropout_key(generator)
    state = generator.get_state()
    for shape in shapes():  # the call uses the state; this advances the generator past the numbers that it draws
        torch.empty(shape).bernoulli_(1.0 - p, generator=generator)
    return state

"""Typed masks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def describe(x: object) -> str:
    """A value in the words of an error."""
    if isinstance(x, Tensor):
        return f"{str(x.dtype).removeprefix('torch.')} tensor of shape {tuple(x.shape)}"
    return type(x).__name__


def _check_tensor(caller: str, name: str, x: object) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{caller}: expected {name} to be a tensor, got {describe(x)}")


def _as_bool(caller: str, mask: Tensor) -> Tensor:
    _check_tensor(caller, "mask", mask)
    if mask.dtype is torch.bool:
        return mask
    if mask.dtype not in _INTEGERS:
        raise TypeError(
            f"{caller}: expected a bool or integer tensor (non-zero: true), got {describe(mask)}; for numbers that are "
            "added to the scores use Mask.bias"
        )
    return mask != 0


@dataclass(frozen=True, eq=False)
class MaskTerms:
    """The mask of one call: at most one tensor of each kind, as the operators take them."""

    keep: Tensor | None = None
    bias: Tensor | None = None
    key_keep: Tensor | None = None
    key_lengths: Tensor | None = None
    query_lengths: Tensor | None = None


class Mask:
    """A typed attention mask: it says what its numbers mean, so that nothing has to be guessed.

    Masks combine with ``&``: a query may attend to a key only if every term allows it, and biases add up.

    Shapes, with q of shape (..., L, D) and S keys:

    * ``keep``, ``hide``, ``bias``: (L, S), or the rank of q with sizes that broadcast to q's leading dimensions and (L, S).
      With a 4-D q, rank 3 is refused, because (X, L, S) could be per batch or per head: use ``per_batch`` or ``per_head``.
    * ``key_keep``: (B, S)
    * ``key_lengths``: (B,); key j of sequence b may be seen while j < key_lengths[b]
    * ``query_lengths``: (B,); query i of sequence b sees something while i < query_lengths[b], else it gives 0

    ``Mask(t)`` takes a bool tensor alone, which means ``keep``. A bias entry of -inf hides its pair as a false ``keep`` does.
    Gradients flow to biases. ``Mask()`` hides nothing.

    Raises TypeError for a dtype that does not fit the term, ValueError for a wrong rank; ``attention`` raises the errors of
    sizes. Memory: a mask keeps the tensors; several terms of one kind are combined in a call, with the size to which they
    broadcast.

        mask = Mask.key_lengths(lengths) & Mask.bias(position_bias)
    """

    __slots__ = ("_keep", "_bias", "_key_keep", "_key_lengths", "_query_lengths")

    def __init__(self, keep: Tensor | None = None) -> None:
        self._keep: tuple[Tensor, ...] = ()
        self._bias: tuple[Tensor, ...] = ()
        self._key_keep: tuple[Tensor, ...] = ()
        self._key_lengths: tuple[Tensor, ...] = ()
        self._query_lengths: tuple[Tensor, ...] = ()
        if keep is None:
            return
        _check_tensor("Mask", "mask", keep)
        if keep.dtype is not torch.bool:
            raise TypeError(
                f"Mask: expected a bool tensor (true: may attend), got {describe(keep)}; say Mask.keep(t != 0) if 1 means "
                '"may attend" and 0 means "hidden", or Mask.bias(t) if the numbers are added to the scores'
            )
        self._keep = (keep,)

    @staticmethod
    def _of(
        keep: tuple[Tensor, ...] = (),
        bias: tuple[Tensor, ...] = (),
        key_keep: tuple[Tensor, ...] = (),
        key_lengths: tuple[Tensor, ...] = (),
        query_lengths: tuple[Tensor, ...] = (),
    ) -> Mask:
        mask = Mask()
        mask._keep, mask._bias, mask._key_keep = keep, bias, key_keep
        mask._key_lengths, mask._query_lengths = key_lengths, query_lengths
        return mask

    @staticmethod
    def keep(mask: Tensor) -> Mask:
        """True, or a non-zero integer: the query may attend to the key."""
        return Mask._of(keep=(_as_bool("Mask.keep", mask),))

    @staticmethod
    def hide(mask: Tensor) -> Mask:
        """True, or a non-zero integer: the query may not attend to the key."""
        return Mask._of(keep=(~_as_bool("Mask.hide", mask),))

    @staticmethod
    def bias(bias: Tensor) -> Mask:
        """Floating-point numbers that are added to the scores. Gradients flow to them."""
        _check_tensor("Mask.bias", "bias", bias)
        if not bias.dtype.is_floating_point:
            raise TypeError(f"Mask.bias: expected a floating-point tensor, got {describe(bias)}")
        return Mask._of(bias=(bias,))

    @staticmethod
    def key_keep(mask: Tensor) -> Mask:
        """(B, S), true or non-zero: the key is a real token."""
        keep = _as_bool("Mask.key_keep", mask)
        if keep.dim() != 2:
            raise ValueError(f"Mask.key_keep: expected a mask of shape (B, S), got {describe(mask)}")
        return Mask._of(key_keep=(keep,))

    @staticmethod
    def key_lengths(lengths: Tensor) -> Mask:
        """(B,) integers: how many keys of each sequence are real tokens."""
        return Mask._of(key_lengths=(_lengths("Mask.key_lengths", lengths),))

    @staticmethod
    def query_lengths(lengths: Tensor) -> Mask:
        """(B,) integers: how many queries of each sequence are real tokens. The others see no key and give 0."""
        return Mask._of(query_lengths=(_lengths("Mask.query_lengths", lengths),))

    @staticmethod
    def per_batch(mask: Mask) -> Mask:
        """Reads the rank-3 terms of ``mask`` as (B, L, S)."""
        return mask._with_rank_3_at(1)

    @staticmethod
    def per_head(mask: Mask) -> Mask:
        """Reads the rank-3 terms of ``mask`` as (H, L, S)."""
        return mask._with_rank_3_at(0)

    def __and__(self, other: Mask | Tensor) -> Mask:
        if isinstance(other, Tensor):
            other = Mask(other)
        elif not isinstance(other, Mask):
            return NotImplemented
        return Mask._of(
            self._keep + other._keep,
            self._bias + other._bias,
            self._key_keep + other._key_keep,
            self._key_lengths + other._key_lengths,
            self._query_lengths + other._query_lengths,
        )

    def __rand__(self, other: Tensor) -> Mask:
        return Mask(other) & self

    def empty(self) -> bool:
        """Whether nothing is masked and nothing is added."""
        return not (self._keep or self._bias or self._key_keep or self._key_lengths or self._query_lengths)

    def __bool__(self) -> bool:
        raise TypeError("Mask: a mask is neither true nor false; combine masks with &, and ask mask.empty()")

    def __repr__(self) -> str:
        kinds = (name.removeprefix("_") for name in Mask.__slots__)
        texts = [f"Mask.{kind}({describe(term)})" for kind in kinds for term in getattr(self, f"_{kind}")]
        return " & ".join(texts) or "Mask()"

    def terms(self, q: Tensor) -> MaskTerms:
        """The terms of a call with this q, at most one of each kind."""

        def shortest(lengths: tuple[Tensor, ...]) -> Tensor | None:
            return _combined(lengths if len(lengths) < 2 else tuple(x.long() for x in lengths), q, torch.minimum)

        return MaskTerms(
            _combined(self._keep, q, torch.logical_and),
            _combined(_in_one_dtype(self._bias, q), q, torch.add),
            _combined(self._key_keep, q, torch.logical_and),
            shortest(self._key_lengths),
            shortest(self._query_lengths),
        )

    def _with_rank_3_at(self, dim: int) -> Mask:
        def shaped(terms: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return tuple(term.unsqueeze(dim) if term.dim() == 3 else term for term in terms)

        return Mask._of(shaped(self._keep), shaped(self._bias), self._key_keep, self._key_lengths, self._query_lengths)


def _lengths(caller: str, lengths: Tensor) -> Tensor:
    _check_tensor(caller, "lengths", lengths)
    if lengths.dtype not in _INTEGERS:
        raise TypeError(f"{caller}: expected an integer tensor, got {describe(lengths)}")
    if lengths.dim() != 1:
        raise ValueError(f"{caller}: expected lengths of shape (B,), got {describe(lengths)}")
    return lengths


def _in_one_dtype(biases: tuple[Tensor, ...], q: Tensor) -> tuple[Tensor, ...]:
    """Several biases are added in the widest of their dtypes and q's."""
    if len(biases) < 2:
        return biases
    dtype = q.dtype
    for bias in biases:
        dtype = torch.promote_types(dtype, bias.dtype)
    return tuple(bias.to(dtype) for bias in biases)


def _combined(terms: tuple[Tensor, ...], q: Tensor, combine) -> Tensor | None:
    if len(terms) < 2:
        return terms[0] if terms else None
    widest = max(term.dim() for term in terms)
    result = None
    for term in terms:
        if term.dim() == 3 and q.dim() == 4:
            return term  # the operator says why it refuses this one
        if term.dim() == 3 and widest == 4:
            term = term.unsqueeze(1)
        result = term if result is None else combine(result, term)
    return result


NO_TERMS = MaskTerms()


def terms_of(mask: Mask | Tensor | None, q: Tensor) -> MaskTerms:
    """The terms of an argument ``mask``."""
    if mask is None:
        return NO_TERMS
    if isinstance(mask, Tensor):
        mask = Mask(mask)
    if not isinstance(mask, Mask):
        raise TypeError(f"attention: expected mask to be an attentive.Mask or a bool tensor, got {describe(mask)}")
    return mask.terms(q)

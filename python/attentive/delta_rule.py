"""The gated delta rule."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree

from attentive._mask import describe
from attentive.functional import _called

_operators = torch.ops.attentive


class GatedDeltaRuleResult(NamedTuple):
    """The results of a call."""

    output: Tensor
    """(B, Hv, T, Dv), dtype of v."""
    state: Tensor
    """(B, Hv, Dk, Dv), or (N, Hv, Dk, Dv) of packed sequences: after the last token; float32, or float64 for float64 inputs."""


_pytree._register_namedtuple(GatedDeltaRuleResult, serialized_type_name="attentive.GatedDeltaRuleResult")


def gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gate: Tensor | None = None,
    beta: Tensor | None = None,
    state: Tensor | None = None,
    *,
    scale: float | None = None,
    normalize_eps: float | None = None,
    delta: bool = True,
    sequence_offsets: Tensor | None = None,
) -> GatedDeltaRuleResult:
    """The gated delta rule: a memory S (Dk, Dv) of each head, which decays and is corrected by each token.

    S = exp(gate_t) S -> S = S + beta_t k_t (v_t - S^T k_t)^T -> o_t = scale * S^T q_t

    q, k (B, Hk, T, Dk), v (B, Hv, T, Dv) -> output (B, Hv, T, Dv), state (B, Hv, Dk, Dv). Hv must be a multiple of Hk: value
    head h reads query and key head h // (Hv / Hk). All three have one dtype: float64, float32, bfloat16 or float16; any strides.
    Half types keep the state and every sum in float32, the dtype of ``state`` too, and of ``gate`` and ``beta`` if they do not
    have that of v.

    * ``gate``: (B, Hv, T), or (B, Hv, T, Dk) for a decay of each channel, which is a row of S; logarithms, at most 0, and -inf
      forgets everything. None: no decay. ``beta``: (B, Hv, T), 1 if None. ``state``: (B, Hv, Dk, Dv), zeros if None.
    * ``scale``: the factor of the queries, 1 / sqrt(Dk) if None.
    * ``normalize_eps``: queries and keys are divided by sqrt(sum of their squares + normalize_eps) first (``transformers`` and
      FLA: 1e-6). None: they are taken as they are.
    * ``delta=False``: a token adds beta k v^T and subtracts nothing, which is linear attention, with gates or without.
    * ``sequence_offsets``: (N + 1), int64, on the CPU, rising from 0 to T: the batch is one row that packs N sequences, each of
      which begins with its own ``state`` (N, Hv, Dk, Dv).

    Time is O(T). Gradients flow to every tensor, from output and state, and may be differentiated again; those of ``torch.func``
    are computed by composed chunks, without the kernel.

    Raises ValueError, TypeError or NotImplementedError, naming the argument, what was expected and what came. Memory:
    O(B Hv (T (Dk + Dv) + Dk Dv)).

        y, state = gated_delta_rule(q, k, v, gate, beta, normalize_eps=1e-6)
        y, state = gated_delta_rule(q1, k1, v1, gate1, beta1, state, normalize_eps=1e-6)  # the next tokens
    """
    if not (isinstance(q, Tensor) and isinstance(k, Tensor) and isinstance(v, Tensor)):
        raise TypeError(f"gated_delta_rule: expected q, k and v to be tensors, got {describe(q)}, {describe(k)} and {describe(v)}")
    arguments = (q, k, v, gate, beta, state, sequence_offsets)
    options = {"scale": scale, "normalize_eps": normalize_eps, "delta": delta}
    return GatedDeltaRuleResult(*_called("gated_delta_rule", _operators.gated_delta_rule, *arguments, **options))


def gated_delta_rule_(
    state: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gate: Tensor | None = None,
    beta: Tensor | None = None,
    *,
    scale: float | None = None,
    normalize_eps: float | None = None,
    delta: bool = True,
    sequence_offsets: Tensor | None = None,
) -> Tensor:
    """``gated_delta_rule`` for decoding: reads ``state`` and leaves the state after the last token in it.

    state (B, Hv, Dk, Dv), contiguous, float32, or float64 for float64 inputs; the other arguments are those of
    ``gated_delta_rule``. Returns the output (B, Hv, T, Dv), through which no gradient flows. An error leaves ``state`` unchanged.
    Memory: O(B Hv T Dv).

        y = gated_delta_rule_(state, q, k, v, gate, beta, normalize_eps=1e-6)  # one token: T = 1
    """
    if not all(isinstance(x, Tensor) for x in (state, q, k, v)):
        raise TypeError(
            f"gated_delta_rule_: expected state, q, k and v to be tensors, got {describe(state)}, {describe(q)}, {describe(k)} and "
            f"{describe(v)}"
        )
    arguments = (state, q, k, v, gate, beta, sequence_offsets)
    options = {"scale": scale, "normalize_eps": normalize_eps, "delta": delta}
    return _called("gated_delta_rule_", _operators.gated_delta_rule_, *arguments, **options)


def _batched(operator: Any) -> Any:
    """The rule of ``torch.func.vmap`` for an operator of (B, ...) tensors: its dimension is part of B."""

    offsets = [argument.name for argument in operator._schema.arguments].index("sequence_offsets")

    def rule(info: Any, dims: tuple[Any, ...], *tensors: Tensor | None, **options: Any) -> Any:
        count = info.batch_size
        items = [
            x if x is None else x.movedim(dim, 0) if dim is not None else x.expand(count, *x.shape)
            for x, dim in zip(tensors, dims, strict=False)
        ]
        if len(items) <= offsets or items[offsets] is None:
            found = operator(*(x if x is None else x.flatten(0, 1) for x in items), **options)
            return tuple(x.unflatten(0, (count, x.shape[0] // count)) for x in found), (0,) * len(found)
        # A row of packed sequences is the whole batch.
        one_by_one = [operator(*(x if x is None else x[n] for x in items), **options) for n in range(count)]
        return tuple(torch.stack(x) for x in zip(*one_by_one, strict=True)), (0,) * len(one_by_one[0])

    return rule


for _operator in (_operators.gated_delta_rule, _operators.gated_delta_rule_backward):
    torch.library.register_vmap(_operator.default, _batched(_operator.default))

#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include <attentive/core/option_list.h>

namespace attentive {

/// The options of `gated_delta_rule`.
///
///   GatedDeltaRuleCall{.normalize_eps = 1e-6}
struct GatedDeltaRuleCall {
  /// Multiplies the queries. If empty, 1 / sqrt(Dk).
  std::optional<double> scale = {};
  /// If set, queries and keys are divided by sqrt(sum of their squares + normalize_eps) first, in float32
  /// (float64 for float64 inputs). transformers and FLA use 1e-6.
  std::optional<double> normalize_eps = {};
  /// False: a token adds beta k v^T to the state without subtracting what the state returns for its key,
  /// which is linear attention (without gates) or gated linear attention (with gates).
  bool delta = true;
  /// (N + 1) int64, rising from 0 to T: the batch is one row that packs N sequences, of which sequence n has
  /// the tokens sequence_offsets[n] to sequence_offsets[n + 1] - 1. Each begins with its own state.
  at::Tensor sequence_offsets = {};

  ATTENTIVE_OPTIONS(scale, normalize_eps, delta, sequence_offsets);
};

/// What `gated_delta_rule` returns.
struct GatedDeltaRuleResult {
  at::Tensor output;  ///< (B, Hv, T, Dv), in the dtype of v
  /// After the last token: (B, Hv, Dk, Dv), or (N, Hv, Dk, Dv) of packed sequences; float32, or float64.
  at::Tensor state;
};

/// The gated delta rule: a state S (Dk, Dv) per head is a memory of keys and values; each token lets it
/// decay, then corrects what it returns for the token's key.
///
///   S   = exp(gate_t) S                         (with gates per channel: row d of S by exp(gate_t[d]))
///   S   = S + beta_t k_t (v_t - S^T k_t)^T      (delta = false: S + beta_t k_t v_t^T)
///   o_t = scale S^T q_t
///
///   q, k (B, Hk, T, Dk), v (B, Hv, T, Dv), gate undefined (no decay), (B, Hv, T) or (B, Hv, T, Dk),
///   beta undefined (1) or (B, Hv, T), state undefined (zeros) or (B, Hv, Dk, Dv)
///
/// Hv is a multiple of Hk: value head h has query and key head h / (Hv / Hk). Gates are logarithms, at most
/// 0; -inf forgets everything. Products are computed in chunks of tokens, so that time is O(T). Gradients
/// flow to every tensor, the initial state's and the final state's among them, and may be differentiated
/// again. Half dtypes keep the state and every sum in float32.
///
/// Throws c10::ValueError or c10::TypeError naming the argument: shapes, dtypes and devices that do not
/// match. Memory: O(B Hv (T (Dk + Dv) + Dk Dv)); the backward pass keeps a state per chunk for one head of a
/// thread. Source: Yang et al. 2025, "Gated Delta Networks", equation 10; Kimi Team 2025, "Kimi Linear",
/// equation 1.
///
///   auto [output, state] = attentive::gated_delta_rule(q, k, v, gate, beta, {.normalize_eps = 1e-6});
GatedDeltaRuleResult gated_delta_rule(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const at::Tensor& gate = {}, const at::Tensor& beta = {},
                                      const GatedDeltaRuleCall& call = {}, const at::Tensor& state = {});

/// As `gated_delta_rule` without gradients, for decoding: `state` (B, Hv, Dk, Dv), contiguous, float32
/// (float64 for float64 inputs), is read and then holds the state after the last token. Returns the output.
/// An error leaves `state` unchanged.
at::Tensor gated_delta_rule_(at::Tensor& state, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const at::Tensor& gate = {}, const at::Tensor& beta = {},
                             const GatedDeltaRuleCall& call = {});

}  // namespace attentive

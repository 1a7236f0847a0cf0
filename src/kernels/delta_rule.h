#pragma once

// A call of gated_delta_rule, checked.

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace attentive::kernels {

/// The numbers of a call.
struct DeltaRule {
  double scale = 1.0;
  std::optional<double> normalize_eps;
  bool delta = true;
  /// The first token of each packed sequence, and the end of the last one; empty: every batch item is a
  /// sequence.
  std::vector<int64_t> offsets;
};

/// Its tensors: q, k (B, Hk, T, Dk), v (B, Hv, T, Dv); gate (B, Hv, T) or (B, Hv, T, Dk), beta (B, Hv, T) and
/// state (N, Hv, Dk, Dv), which may be undefined.
struct DeltaTensors {
  at::Tensor q, k, v, gate, beta, state;

  int64_t groups() const { return v.size(1) / k.size(1); }
  bool channel_gates() const { return gate.defined() && gate.dim() == 4; }
  /// The dtype of sums and states.
  at::ScalarType sums() const { return v.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }
};

struct DeltaResult {
  at::Tensor output, state;
};

/// The gradients of the tensors, in the order of DeltaTensors; those of absent ones are undefined.
using DeltaGradients = std::array<at::Tensor, 6>;

inline std::array<const at::Tensor*, 6> all_of(const DeltaTensors& x) {
  return {&x.q, &x.k, &x.v, &x.gate, &x.beta, &x.state};
}

}  // namespace attentive::kernels

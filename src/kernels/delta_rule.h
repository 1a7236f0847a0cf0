#pragma once

// A call of gated_delta_rule, checked, and what computes it.

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

namespace attentive::kernels {

/// The numbers of a call.
struct DeltaRule {
  double scale = 1.0;
  std::optional<double> normalize_eps;
  bool delta = true;
  /// The first token of each packed sequence, and the end of the last one; empty: every batch item is a
  /// sequence.
  std::vector<int64_t> offsets;

  int64_t sequences(int64_t batch) const {
    return offsets.empty() ? batch : static_cast<int64_t>(offsets.size()) - 1;
  }
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

/// Those that are defined: autograd takes no others as inputs.
inline std::vector<at::Tensor> defined_of(const DeltaTensors& x) {
  std::vector<at::Tensor> result;
  for (const auto* some : all_of(x)) {
    if (some->defined()) result.push_back(*some);
  }
  return result;
}

/// Whether autograd records a call.
inline bool requires_gradient(const DeltaTensors& x) {
  const auto all = all_of(x);
  return at::GradMode::is_enabled() && std::any_of(all.begin(), all.end(), [](const auto* some) {
           return some->defined() && some->requires_grad();
         });
}

/// Computes a call by the CPU kernel, or by the definition what that does not compute: other dtypes than
/// float32 and the half types, other devices, tensor subclasses and tangents. Autograd records it.
DeltaResult delta_rule(const DeltaRule& rule, const DeltaTensors& tensors);

/// The gradients of a call. Those of results that were not given are undefined in `incoming`. With
/// `create_graph`, the definition computes them, so that they can be differentiated again.
DeltaGradients delta_rule_gradients(const DeltaRule& rule, const DeltaTensors& tensors,
                                    const DeltaResult& incoming, bool create_graph);

/// Without a graph. The contiguous `state` of the call is replaced. Returns the output.
at::Tensor delta_rule_in_place(const DeltaRule& rule, const DeltaTensors& tensors);

namespace reference {

/// The definition: a call by operations that autograd records, in every mode and on every device.
DeltaResult delta_rule(const DeltaRule& rule, const DeltaTensors& tensors);

/// Its gradients by autograd.
DeltaGradients delta_rule_gradients(const DeltaRule& rule, const DeltaTensors& tensors,
                                    const DeltaResult& incoming, bool create_graph);

}  // namespace reference

namespace cpu {

// The kernel (delta_rule/kernel.cpp) takes float32 or a half type. Rows of numbers are contiguous, numbers of
// tokens float32, and states contiguous.

/// Writes the output, and the states after the last tokens, which may be where the first states are.
void delta_forward(const DeltaRule& rule, const DeltaTensors& tensors, const DeltaResult& to);

/// Writes the gradients. Those of q and k are float32 and of each value head, (B, Hv, T, Dk).
void delta_backward(const DeltaRule& rule, const DeltaTensors& tensors, const DeltaResult& incoming,
                    const DeltaGradients& to);

}  // namespace cpu
}  // namespace attentive::kernels

#pragma once

// Backend::Reference: the definition of attention, composed from ATen operations so that it reads like the
// formula. Works on every device and floating dtype (half types compute in float32), and under autograd to
// any order.

#include "kernels/problem.h"

namespace attentive::kernels::reference {

/// The reference can express every problem.
inline Verdict verdict(const Problem&) {
  return {};
}
AttentionResult run(const Problem& problem);

/// The input of its softmax, (B, H, L, S): scores after scale, softcap, bias and ALiBi; -inf where a key is
/// hidden.
at::Tensor scores(const Problem& problem);

}  // namespace attentive::kernels::reference

#pragma once

// Backend::Reference: the definition of attention, composed from ATen operations so that it reads like the
// formula. Works on every device and floating dtype (half types compute in float32), and under autograd to
// any order.

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/problem.h"

namespace attentive::kernels::reference {

/// The reference can express every problem.
inline Verdict verdict(const Problem&) {
  return {};
}
AttentionResult run(const Problem& problem);

/// The input of its softmax, (B, H, L, S): scores after all built-in terms; -inf where a key is
/// hidden.
at::Tensor scores(const Problem& problem);

// Gradients that can be differentiated again, for backends whose own backward pass records no graph.

/// Computes a problem by `run` under autograd, and the gradients of its tensors, which autograd records if
/// `create_graph` is set. Some of the incoming gradients may be undefined, but not all of them.
Gradients gradients_by_autograd(Problem problem, const AttentionResult& incoming,
                                const std::function<AttentionResult(const Problem&)>& run, bool create_graph);

/// Computes the problem by the definition, and its gradients. Autograd records the computation, so they may
/// be differentiated with respect to the tensors and to the incoming gradients, of which some may be
/// undefined. A problem with dropout needs its key. Memory: O(L S).
Gradients gradients_with_graph(Problem problem, const AttentionResult& incoming);

}  // namespace attentive::kernels::reference

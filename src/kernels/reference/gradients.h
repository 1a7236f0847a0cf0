#pragma once

// Gradients that can be differentiated again, for backends whose own backward pass records no graph.

#include <ATen/core/Tensor.h>

#include "kernels/problem.h"

namespace attentive::kernels::reference {

/// Gradients of a problem's tensors; undefined for a tensor that requires none.
struct GraphGradients {
  at::Tensor q, k, v, sinks, bias, alibi_slopes;
};

/// Computes the problem by the definition, and its gradients. Autograd records the computation, so they may
/// be differentiated with respect to the tensors and to the incoming gradients, of which some may be
/// undefined. A problem with dropout needs its key. Memory: O(L S).
GraphGradients gradients_with_graph(Problem problem, const AttentionResult& incoming);

}  // namespace attentive::kernels::reference

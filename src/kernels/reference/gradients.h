#pragma once

// Gradients that can be differentiated again, for backends whose own backward pass records no graph.

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/problem.h"

namespace attentive::kernels::reference {

/// Gradients of a problem's tensors; undefined for a tensor that requires none.
struct GraphGradients {
  at::Tensor q, k, v, sinks, bias, alibi_slopes;
  std::vector<at::Tensor> captured =
      {};  ///< one per tensor of `Problem::captured`; undefined if it requires none
};

/// Computes a problem by `run` under autograd, and the gradients of its tensors, which autograd records if
/// `create_graph` is set. Some of the incoming gradients may be undefined, but not all of them.
GraphGradients gradients_by_autograd(Problem problem, const AttentionResult& incoming,
                                     const std::function<AttentionResult(const Problem&)>& run,
                                     bool create_graph);

/// Computes the problem by the definition, and its gradients. Autograd records the computation, so they may
/// be differentiated with respect to the tensors and to the incoming gradients, of which some may be
/// undefined. A problem with dropout needs its key. Memory: O(L S).
GraphGradients gradients_with_graph(Problem problem, const AttentionResult& incoming);

}  // namespace attentive::kernels::reference

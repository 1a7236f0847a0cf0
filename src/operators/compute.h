#pragma once

// The operators on tensors with memory.

#include "operators/call_arguments.h"

namespace attentive::operators {

/// Computes a call without autograd.
Results forward(Kind kind, const CallArguments& call);

/// The gradients of a call from its results. Where the native kernel does not compute the call, it is
/// computed again with autograd.
Gradients backward(Kind kind, const BackwardArguments& arguments);

/// Gradients that can be differentiated again, by the definition, with O(L S) memory.
Gradients gradients_with_graph(Kind kind, const BackwardArguments& arguments);

/// The size of a dropout key for a stream: that of a generator's state, or that of one number.
at::DimVector dropout_key_sizes(const AttentionOptions& options);

/// Draws the key of one call from a CPU generator; from the default one if none is given.
at::Tensor draw_dropout_key(const std::optional<at::Generator>& generator);

}  // namespace attentive::operators

#pragma once

// The operators on tensors without memory, whose sizes may be symbolic.

#include "operators/call_arguments.h"

namespace attentive::operators {

/// Results and gradients of the shapes, dtypes and strides that `forward` and `backward` return.
Results shapes_of_results(Kind kind, const CallArguments& call);
Gradients shapes_of_gradients(const BackwardArguments& arguments);

}  // namespace attentive::operators

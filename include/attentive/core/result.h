#pragma once

#include <ATen/core/Tensor.h>

namespace attentive {

/// The results of `attention`; a member that was not requested is undefined.
struct AttentionResult {
  at::Tensor output;     ///< (..., L, Dv), dtype of q
  at::Tensor weights;    ///< (..., L, S), dtype of q
  at::Tensor logsumexp;  ///< (..., L), natural logarithm, sinks included; -inf for a query without keys,
                         ///< +inf with a sink of +inf; float32, or float64 for float64 inputs
};

}  // namespace attentive

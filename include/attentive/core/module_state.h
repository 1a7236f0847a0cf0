#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>

namespace attentive {

/// Tensors by their Python state-dict names, such as "heads.0.W_query.weight".
using StateDict = std::map<std::string, at::Tensor>;

/// A module whose Python class keeps its causal mask as a buffer called `mask`: (context_length,
/// context_length) with ones above the diagonal. Here the mask is not part of the state; code that reads or
/// writes Python state dicts uses this interface.
class CausalMaskBuffer {
 public:
  virtual ~CausalMaskBuffer() = default;
  /// The number of rows and columns of the mask; 0 if the number of tokens is not limited.
  virtual int64_t context_length() const = 0;
};

}  // namespace attentive

#pragma once

#include <ATen/core/Tensor.h>

namespace attentive {

// The tensor with size 1 in every dimension that repeats the same memory: it broadcasts to what it was.
inline at::Tensor without_repeats(at::Tensor x) {
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (x.stride(d) == 0 && x.size(d) > 1) x = x.narrow(d, 0, 1);
  }
  return x;
}

}  // namespace attentive

#pragma once

#include <ATen/core/Tensor.h>

namespace exercises {

/// A sliding window as a mask, bool (L, S), true: may attend. Query i has position p = i + S - L and sees the
/// keys p - left .. p + right, both included. A side of -1 is unlimited.
at::Tensor window_mask(int64_t L, int64_t S, int64_t left, int64_t right);

}  // namespace exercises

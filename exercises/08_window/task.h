#pragma once

#include <ATen/core/Tensor.h>

namespace exercises {

/// A sliding window as a mask, bool (L, S), true: may attend. With its position p = i + S - L, query i sees
/// the keys p - left .. p + right, both included. A side of -1 has no bound.
at::Tensor window_mask(int64_t L, int64_t S, int64_t left, int64_t right);

}  // namespace exercises

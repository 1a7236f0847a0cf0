#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include "task.h"

namespace exercises {

at::Tensor window_mask(int64_t L, int64_t S, int64_t left, int64_t right) {
  const auto position = at::arange(L).unsqueeze(1) + (S - L);  // (L, 1)
  const auto ahead = at::arange(S) - position;                 // (L, S): how far key j lies ahead of query i
  // THE GAP: the bounds are not right, and not all of them are there.
  return ahead.gt(-left).bitwise_and(ahead.lt(right));
}

}  // namespace exercises

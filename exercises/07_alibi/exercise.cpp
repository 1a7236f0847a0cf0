#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include "task.h"

namespace exercises {

at::Tensor alibi_bias(const at::Tensor& slopes, int64_t L, int64_t S) {
  const auto i = at::arange(L).unsqueeze(1);  // (L, 1)
  const auto j = at::arange(S);               // (S)
  const auto distance = (i + j).mul(0);       // THE GAP: nothing is far away.
  return -slopes.view({-1, 1, 1}) * distance;
}

}  // namespace exercises

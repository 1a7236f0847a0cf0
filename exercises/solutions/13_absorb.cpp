#include <cmath>

#include <ATen/ops/matmul.h>

#include "13_absorb/task.h"

namespace exercises {

at::Tensor queries_of_latents(const at::Tensor& q, const at::Tensor& key_weight) {
  return at::matmul(q, key_weight);
}

at::Tensor values_of_latents(const at::Tensor& averages, const at::Tensor& value_weight) {
  return at::matmul(averages, value_weight.transpose(1, 2));
}

double score_scale(int64_t nope, int64_t rope, int64_t /*rank*/) {
  return 1 / std::sqrt(static_cast<double>(nope + rope));
}

}  // namespace exercises

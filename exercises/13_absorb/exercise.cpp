#include <cmath>

#include <ATen/ops/matmul.h>

#include "task.h"

namespace exercises {

at::Tensor queries_of_latents(const at::Tensor& q, const at::Tensor& key_weight) {
  // THE GAP: right in shape only.
  return q.new_zeros({q.size(0), q.size(1), key_weight.size(2)});
}

at::Tensor values_of_latents(const at::Tensor& averages, const at::Tensor& value_weight) {
  // THE GAP: right in shape only.
  return averages.new_zeros({averages.size(0), averages.size(1), value_weight.size(1)});
}

double score_scale(int64_t /*nope*/, int64_t rope, int64_t rank) {
  // THE GAP: a row of the cache is as wide, but it is not the key.
  return 1 / std::sqrt(static_cast<double>(rank + rope));
}

}  // namespace exercises

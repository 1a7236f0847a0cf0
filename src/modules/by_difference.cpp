#include "modules/by_difference.h"

#include <ATen/ops/arange.h>

namespace attentive {

at::Tensor by_difference(const at::Tensor& values, int64_t dim, int64_t keys) {
  // Window n holds the values n .. n + keys - 1, and query i reads window queries - 1 - i. Selecting the
  // windows makes one contiguous copy, whereas at::flip would choose its own order of strides.
  const auto queries = values.size(dim) - keys + 1;
  const auto backwards = at::arange(queries - 1, -1, -1, values.options().dtype(at::kLong));
  return values.unfold(dim, keys, 1).index_select(dim, backwards);
}

at::Tensor summed_wide(const at::Tensor& parameter) {
  const auto type = parameter.scalar_type();
  return type == at::kBFloat16 || type == at::kHalf ? parameter.to(at::kFloat) : parameter;
}

}  // namespace attentive

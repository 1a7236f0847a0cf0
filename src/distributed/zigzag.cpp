#include "distributed/zigzag.h"

#include <ATen/ops/cat.h>

namespace attentive::distributed {

at::Tensor in_order(const std::vector<at::Tensor>& parts, int64_t dim) {
  const auto size = static_cast<int64_t>(parts.size());
  std::vector<at::Tensor> chunks(static_cast<size_t>(2 * size));
  for (int64_t rank = 0; rank < size; ++rank) {
    const auto places = chunks_of(rank, size);
    for (int64_t half = 0; half < 2; ++half)
      chunks[static_cast<size_t>(places[half])] = half_of(parts[static_cast<size_t>(rank)], half, dim);
  }
  return at::cat(chunks, dim);
}

at::Tensor part_of(const at::Tensor& whole, int64_t rank, int64_t size, int64_t dim) {
  const int64_t length = whole.size(dim) / (2 * size);
  const auto [early, late] = chunks_of(rank, size);
  return at::cat({whole.narrow(dim, early * length, length), whole.narrow(dim, late * length, length)}, dim);
}

}  // namespace attentive::distributed

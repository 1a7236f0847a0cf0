#include "functional/gradient_accumulator.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

namespace attentive {

// The numbers of a sum to which a product is added at a time, so that the product is still in the caches.
static constexpr int64_t kSumBlock = 1 << 20;

GradientAccumulator::GradientAccumulator(int64_t rows, int64_t columns, const at::TensorOptions& products,
                                         at::ScalarType result)
    : result_(result),
      sum_(at::zeros({rows, columns},
                     products.dtype(products.dtype() == at::kDouble ? at::kDouble : at::kFloat))) {}

void GradientAccumulator::add(const at::Tensor& a, const at::Tensor& b, double factor) {
  if (a.scalar_type() == sum_.scalar_type()) {
    sum_.addmm_(a.t(), b, /*beta=*/1, factor);
    return;
  }
  const auto rows = kSumBlock / std::clamp<int64_t>(b.size(1), 1, kSumBlock);
  for (int64_t row = 0; row < a.size(1); row += rows) {
    const auto count = std::min(rows, a.size(1) - row);
    const auto product = at::mm(a.narrow(1, row, count).t().contiguous(), b);
    sum_.narrow(0, row, count).add_(product, factor);
  }
}

at::Tensor GradientAccumulator::take(const at::Tensor& factor) {
  auto sum = std::exchange(sum_, {});
  if (factor.defined()) sum.mul_(factor);
  return sum.to(result_);
}

}  // namespace attentive

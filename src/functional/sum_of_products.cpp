#include "functional/sum_of_products.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <c10/util/BFloat16.h>

namespace attentive {
namespace {

// The numbers of a sum to which a product is added at a time, so that the product is still in the caches.
constexpr int64_t kSumBlock = 1 << 20;
// The fewest numbers of a thread.
constexpr int64_t kSumGrain = 1 << 15;

uint32_t bits_of(float x) {
  return std::bit_cast<uint32_t>(x);
}

// Rounds to the nearest number without the lowest kDropped bits, ties to even. NaN stays NaN: the products
// are bfloat16, so that the lower half of its bits is 0 and nothing is carried into its sign.
template <int kDropped>
uint32_t rounded_bits(float x) {
  constexpr uint32_t kHalf = 1U << (kDropped - 1);
  const uint32_t bits = bits_of(x);
  return bits + (kHalf - 1) + ((bits >> kDropped) & 1U);
}

float joined(uint16_t high, uint8_t low) {
  return std::bit_cast<float>(static_cast<uint32_t>(high) << 16 | static_cast<uint32_t>(low) << 8);
}

// Adds factor * added to 24-bit numbers. (The compiler vectorises it, knowing that the parts do not overlap.)
void add_scaled(uint16_t* __restrict high, uint8_t* __restrict low, const uint16_t* __restrict added,
                float factor, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = rounded_bits<8>(joined(high[i], low[i]) + factor * joined(added[i], 0));
    high[i] = static_cast<uint16_t>(bits >> 16);
    low[i] = static_cast<uint8_t>(bits >> 8);
  }
}

// Rounds 24-bit numbers, times a factor, to their upper 16 bits.
void round_scaled(uint16_t* __restrict high, const uint8_t* __restrict low, float factor, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    high[i] = static_cast<uint16_t>(rounded_bits<16>(factor * joined(high[i], low[i])) >> 16);
  }
}

// The number, or the NaN whose lower half is 0.
float plain(float x) {
  return std::isnan(x) ? std::numeric_limits<float>::quiet_NaN() : x;
}

uint16_t* words(const at::Tensor& numbers) {
  return reinterpret_cast<uint16_t*>(numbers.data_ptr<c10::BFloat16>());
}

}  // namespace

SumOfProducts::SumOfProducts(int64_t rows, int64_t columns, const at::TensorOptions& products,
                             at::ScalarType result)
    : result_(result) {
  const auto type = products.dtype().toScalarType();
  if (type == at::kBFloat16 && result == at::kBFloat16 && products.device().is_cpu()) {
    sum_ = at::zeros({rows, columns}, products);
    rest_ = at::zeros({rows, columns}, products.dtype(at::kByte));
  } else {
    sum_ = at::zeros({rows, columns}, products.dtype(type == at::kDouble ? at::kDouble : at::kFloat));
  }
}

void SumOfProducts::add(const at::Tensor& a, const at::Tensor& b, double factor) {
  if (a.scalar_type() == sum_.scalar_type() && !rest_.defined()) {
    sum_.addmm_(a.t(), b, /*beta=*/1, factor);
    return;
  }
  const auto columns = b.size(1), rows = kSumBlock / std::clamp<int64_t>(columns, 1, kSumBlock);
  for (int64_t row = 0; row < a.size(1); row += rows) {
    const auto count = std::min(rows, a.size(1) - row);
    const auto product = at::mm(a.narrow(1, row, count).t().contiguous(), b);
    if (rest_.defined()) {
      const auto parts = product.contiguous();
      const auto first = row * columns;
      at::parallel_for(0, parts.numel(), kSumGrain, [&](int64_t begin, int64_t end) {
        add_scaled(words(sum_) + first + begin, rest_.data_ptr<uint8_t>() + first + begin,
                   words(parts) + begin, static_cast<float>(factor), end - begin);
      });
    } else {
      sum_.narrow(0, row, count).add_(product, factor);
    }
  }
}

at::Tensor SumOfProducts::take(const at::Tensor& factor) {
  auto sum = std::exchange(sum_, {});
  const auto rest = std::exchange(rest_, {});
  if (rest.defined()) {
    const float times = factor.defined() ? plain(factor.item<float>()) : 1.0F;
    at::parallel_for(0, sum.numel(), kSumGrain, [&](int64_t begin, int64_t end) {
      round_scaled(words(sum) + begin, rest.data_ptr<uint8_t>() + begin, times, end - begin);
    });
    return sum;
  }
  if (factor.defined()) sum.mul_(factor);
  return sum.to(result_);
}

}  // namespace attentive

#include "functional/gradient_accumulator.h"

#include <bit>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <torch/utils.h>

#include "support/compare.h"
#include "support/memory_meter.h"

using namespace attentive;
using namespace attentive::test;

namespace {

// A row of numbers that a product with 1 leaves as they are.
at::Tensor row_of(std::initializer_list<float> numbers) {
  auto row = at::zeros({1, static_cast<int64_t>(numbers.size())});
  int64_t column = 0;
  for (const float number : numbers) row[0][column++] = number;
  return row.to(at::kBFloat16);
}

// Adds factors[i] * rows[i] for i = 0, 1, …
at::Tensor sum_of(const std::vector<std::pair<double, at::Tensor>>& terms, const at::Tensor& factor = {}) {
  GradientAccumulator sum(1, terms[0].second.size(1), terms[0].second.options(), at::kBFloat16);
  for (const auto& [times, row] : terms) sum.add(at::full({1, 1}, 1.0, row.options()), row, times);
  return sum.take(factor).to(at::kFloat);
}

}  // namespace

TEST_CASE("GradientAccumulator adds chunks in every dtype", "[linear_cross_entropy]") {
  const torch::NoGradGuard no_grad;
  at::manual_seed(21);
  const auto products = GENERATE(at::kDouble, at::kFloat, at::kBFloat16, at::kHalf);
  const auto result = GENERATE(at::kDouble, at::kFloat, at::kBFloat16, at::kHalf);
  if ((products == at::kDouble) != (result == at::kDouble)) return;
  INFO(c10::toString(products) << " to " << c10::toString(result));
  // More than one block of numbers, so that blocks begin in the middle of the sum.
  GradientAccumulator sum(1500, 900, at::TensorOptions(products), result);
  auto want = at::zeros({1500, 900}, at::kDouble);
  for (int chunk = 0; chunk < 3; ++chunk) {
    // Small integers, whose products every dtype holds.
    const auto a = at::randint(-2, 3, {5, 1500}).to(products), b = at::randint(-2, 3, {5, 900}).to(products);
    sum.add(a, b, 0.5);
    want += 0.5 * at::mm(a.to(at::kDouble).t(), b.to(at::kDouble));
  }
  const auto got = sum.take(at::full({}, 2.0));
  CHECK(got.scalar_type() == result);
  CHECK(got.to(at::kDouble).equal(2.0 * want));
  CHECK_FALSE(sum.defined());
}

TEST_CASE("GradientAccumulator keeps more digits than bfloat16 until the end", "[linear_cross_entropy]") {
  const torch::NoGradGuard no_grad;
  // 1 + 128 * 2^-9 is 1.25; in bfloat16 each of the 128 terms would be lost.
  std::vector<std::pair<double, at::Tensor>> terms{{1.0, row_of({1.0f})}};
  for (int i = 0; i < 128; ++i) terms.emplace_back(1.0 / 512, row_of({1.0f}));
  CHECK(sum_of(terms).item<float>() == 1.25f);
  // 1 + 2^-8 lies between two numbers of bfloat16: the even one, unless the rest says otherwise.
  CHECK(sum_of({{1.0, row_of({1.0f})}, {1.0 / 256, row_of({1.0f})}}).item<float>() == 1.0f);
  CHECK(
      sum_of({{1.0, row_of({1.0f})}, {1.0 / 256, row_of({1.0f})}, {0x1p-15, row_of({1.0f})}}).item<float>() ==
      1.0f + 0x1p-7f);
  // A factor is taken before the sum is rounded: 1.5 (1 + 2^-8) is 1.5 + 0.75 * 2^-7.
  CHECK(sum_of({{1.0, row_of({1.0f})}, {1.0 / 256, row_of({1.0f})}}, at::full({}, 1.5)).item<float>() ==
        1.5f + 0x1p-7f);

  at::manual_seed(22);
  terms.clear();
  auto want = at::zeros({1, 4000});
  for (int i = 0; i < 64; ++i) {
    terms.emplace_back(1.0, at::randn({1, 4000}).to(at::kBFloat16));
    want += terms.back().second.to(at::kFloat);
  }
  CHECK(bit_equal(sum_of(terms), want.to(at::kBFloat16).to(at::kFloat)));  // a sum in float32, rounded once
}

TEST_CASE("GradientAccumulator keeps NaN, infinities and signs", "[linear_cross_entropy]") {
  const torch::NoGradGuard no_grad;
  const auto nan = std::bit_cast<float>(0x7fff0000U);  // the one with the most bits
  const float most = 3.3895314e38f, infinity = std::numeric_limits<float>::infinity();
  const auto got = sum_of({{1.0, row_of({nan, -nan, infinity, -infinity, most, -1.0f, infinity})},
                           {1.0, row_of({1.0f, 1.0f, 1.0f, 1.0f, most, 0.5f, -infinity})}})[0];
  for (const int column : {0, 1, 6}) CHECK(std::isnan(got[column].item<float>()));
  CHECK(got[2].item<float>() == infinity);
  CHECK(got[3].item<float>() == -infinity);
  CHECK(got[4].item<float>() == infinity);
  CHECK(got[5].item<float>() == -0.5f);
  const auto factor = at::full({}, std::bit_cast<float>(0x7fffffffU));
  CHECK(std::isnan(sum_of({{1.0, row_of({1.0f})}}, factor).item<float>()));
}

TEST_CASE("GradientAccumulator has the same bits for any number of threads", "[linear_cross_entropy]") {
  const torch::NoGradGuard no_grad;
  at::manual_seed(23);
  const auto a = at::randn({1, 300}).to(at::kBFloat16), b = at::randn({1, 700}).to(at::kBFloat16);
  const auto with_threads = [&](int threads) {
    at::set_num_threads(threads);
    GradientAccumulator sum(300, 700, b.options(), at::kBFloat16);
    for (int i = 0; i < 3; ++i) sum.add(a, b, 0.3);
    return sum.take();
  };
  const int before = at::get_num_threads();
  const auto one = with_threads(1), three = with_threads(3);
  at::set_num_threads(before);
  CHECK(bit_equal(one, three));
}

TEST_CASE("GradientAccumulator of bfloat16 takes four bytes a number, and two for the result",
          "[linear_cross_entropy]") {
  const torch::NoGradGuard no_grad;
  constexpr int64_t kManyRows = 20000, kColumns = 500, kBlock = 1 << 20;
  const auto a = at::zeros({2, kManyRows}, at::kBFloat16), b = at::zeros({2, kColumns}, at::kBFloat16);
  const MemoryMeter meter;
  GradientAccumulator sum(kManyRows, kColumns, b.options(), at::kBFloat16);
  sum.add(a, b, 1.0);
  const auto result = sum.take();
  CHECK(meter.peak() <= 6 * kManyRows * kColumns + 4 * kBlock);
}

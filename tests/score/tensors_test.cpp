#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/score/tensors.h>

#include "support/compare.h"

using namespace attentive;
using namespace attentive::detail;

namespace {

const TensorEvaluation& evaluation() {
  static const TensorEvaluation result{.numbers = at::TensorOptions().dtype(at::kDouble)};
  return result;
}

TensorIndex indices(const std::vector<int64_t>& numbers) {
  return {at::tensor(numbers, at::kLong), &evaluation()};
}

std::vector<int64_t> list(const at::Tensor& x) {
  return {x.const_data_ptr<int64_t>(), x.const_data_ptr<int64_t>() + x.numel()};
}

std::vector<bool> bits(const TensorMask& x) {
  std::vector<bool> result;
  for (int64_t n = 0; n < x.pairs.numel(); ++n) result.push_back(x.pairs[n].item<bool>());
  return result;
}

double number(const TensorScore& x) {
  return x.pairs.item<double>();
}

}  // namespace

TEST_CASE("indices are calculated with as integers, and division rounds down", "[score]") {
  const auto i = indices({-5, -4, 0, 7}), j = indices({1, 2, 3, 4});
  CHECK(list((i + j).pairs) == std::vector<int64_t>{-4, -2, 3, 11});
  CHECK(list((1 - i).pairs) == std::vector<int64_t>{6, 5, 1, -6});
  CHECK(list((i * 3).pairs) == std::vector<int64_t>{-15, -12, 0, 21});
  CHECK(list((i / 4).pairs) == std::vector<int64_t>{-2, -1, 0, 1});
  CHECK(list((i % 4).pairs) == std::vector<int64_t>{3, 0, 0, 3});
  CHECK(list((-i).pairs) == std::vector<int64_t>{5, 4, 0, -7});
  CHECK(list(abs(i).pairs) == std::vector<int64_t>{5, 4, 0, 7});
  CHECK(list(min(i, 2).pairs) == std::vector<int64_t>{-5, -4, 0, 2});
  CHECK(list(max(i, j).pairs) == std::vector<int64_t>{1, 2, 3, 7});
  CHECK(list(floor(i).pairs) == list(i.pairs));
  CHECK(list(where(i < j, i, 9).pairs) == std::vector<int64_t>{-5, -4, 0, 9});
  CHECK_THROWS_AS(i / 0, c10::ValueError);
  CHECK_THROWS_AS(i % (j - 1), c10::ValueError);
}

TEST_CASE("comparisons give conditions, which combine", "[score]") {
  const auto i = indices({-1, 0, 1});
  CHECK(bits(i < 0) == std::vector<bool>{true, false, false});
  CHECK(bits(i <= 0) == std::vector<bool>{true, true, false});
  CHECK(bits(i > 0) == std::vector<bool>{false, false, true});
  CHECK(bits(i >= 0) == std::vector<bool>{false, true, true});
  CHECK(bits(i == 0) == std::vector<bool>{false, true, false});
  CHECK(bits(i != 0) == std::vector<bool>{true, false, true});
  CHECK(bits((i < 0) | (i > 0)) == std::vector<bool>{true, false, true});
  CHECK(bits((i >= 0) & (i < 1)) == std::vector<bool>{false, true, false});
  CHECK(bits((i >= 0) ^ (i < 1)) == std::vector<bool>{true, false, true});
  CHECK(bits(!(i == 0)) == std::vector<bool>{true, false, true});
  const TensorScore x(at::tensor({-0.5, 0.0, 0.5}, at::kDouble));
  CHECK(bits(x < 0) == bits(i < 0));
  CHECK(bits(x <= 0) == bits(i <= 0));
  CHECK(bits(x > 0) == bits(i > 0));
  CHECK(bits(x >= 0) == bits(i >= 0));
  CHECK(bits(x == 0) == bits(i == 0));
  CHECK(bits(x != 0) == bits(i != 0));
}

TEST_CASE("every function of scores is that of the mathematics", "[score]") {
  const TensorScore x(at::tensor(0.7, at::kDouble)), y(at::tensor(-1.3, at::kDouble));
  const auto near = [](const TensorScore& got, double want) { return std::abs(number(got) - want) < 1e-12; };
  CHECK(near(x + y, -0.6));
  CHECK(near(x - 2, -1.3));
  CHECK(near(2 * x, 1.4));
  CHECK(near(1 / x, 1 / 0.7));
  CHECK(near(-x, -0.7));
  CHECK(near(exp(y), std::exp(-1.3)));
  CHECK(near(log(x), std::log(0.7)));
  CHECK(near(tanh(y), std::tanh(-1.3)));
  CHECK(near(sqrt(x), std::sqrt(0.7)));
  CHECK(near(rsqrt(x), 1 / std::sqrt(0.7)));
  CHECK(near(abs(y), 1.3));
  CHECK(near(sigmoid(y), 1 / (1 + std::exp(1.3))));
  CHECK(near(softplus(y), std::log1p(std::exp(-1.3))));
  CHECK(near(sin(y), std::sin(-1.3)));
  CHECK(near(cos(y), std::cos(-1.3)));
  CHECK(near(floor(y), -2));
  CHECK(near(pow(x, 2.5), std::pow(0.7, 2.5)));
  CHECK(near(min(x, y), -1.3));
  CHECK(near(max(x, 0), 0.7));
  CHECK(near(where(x > 0, x, 5.0), 0.7));
  CHECK(near(where(x < 0, 1, 0), 0.0));
  // Indices become numbers of the evaluation's dtype.
  const TensorScore product = 0.5 * indices({3});
  CHECK(product.pairs.scalar_type() == at::kDouble);
  CHECK(product.pairs.item<double>() == 1.5);
}

TEST_CASE("a function that answers true or false for all pairs is a mask", "[score]") {
  CHECK(mask_of(true).pairs.item<bool>());
  CHECK_FALSE(mask_of(false).pairs.item<bool>());
}

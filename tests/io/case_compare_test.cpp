#include "io/case_compare.h"

#include <cmath>
#include <limits>

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>

using attentive::compare_tensors;
using attentive::largest;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_CASE("a difference passes up to the tolerance", "[case_compare]") {
  const auto want = at::tensor({1.0f, 2.0f});
  const auto row = compare_tensors("x", at::tensor({1.0f, 2.5f}), want, 0.5);
  CHECK(row.passed);
  CHECK(row.difference == 0.5);
  CHECK(row.shape == std::vector<int64_t>{2});
  CHECK_FALSE(compare_tensors("x", at::tensor({1.0f, 2.5f}), want, 0.49).passed);
  CHECK_FALSE(compare_tensors("x", at::tensor({1.0f, 1.5f}), want, 0.49).passed);
  CHECK(compare_tensors("x", at::empty({0}), at::empty({0}), 0.0).passed);
  CHECK(compare_tensors("x", at::tensor({1.0}), at::tensor({1.0f}), 0.0).passed);
}

TEST_CASE("tensors of other shapes differ, even where they would broadcast", "[case_compare]") {
  const auto row = compare_tensors("x", at::zeros({1, 2}), at::zeros({3, 2}), 1.0);
  CHECK_FALSE(row.passed);
  CHECK(row.note == "expected shape (3, 2), got (1, 2)");
}

TEST_CASE("NaN never passes and infinities must be equal", "[case_compare]") {
  const auto check = [](float got, float want) {
    return compare_tensors("x", at::tensor({got, 0.0f}), at::tensor({want, 0.0f}), 1e30).passed;
  };
  CHECK_FALSE(check(kNan, 1.0f));
  CHECK_FALSE(check(1.0f, kNan));
  CHECK_FALSE(check(kNan, kNan));
  CHECK(check(kInf, kInf));
  CHECK_FALSE(check(-kInf, kInf));
  CHECK_FALSE(check(1.0f, kInf));
  CHECK_FALSE(check(kInf, 1.0f));
}

TEST_CASE("an infinity does not widen a relative tolerance", "[case_compare]") {
  CHECK(largest(at::tensor({-3.0f, kInf, 2.0f, kNan})) == 3.0);
  CHECK(largest(at::empty({0})) == 0.0);
}

TEST_CASE("NaN is replaced in rows without keys only", "[case_compare]") {
  const auto want = at::tensor({kNan, kNan, kNan, 1.0f, 5.0f, 6.0f}).view({3, 2});
  int64_t rows = 0;
  const auto empty = at::tensor({1, 0, 1}).to(at::kBool);
  const auto result = attentive::replace_empty_rows(want, empty, at::tensor({7.0f, 8.0f}), rows);
  CHECK(rows == 1);
  CHECK(result[0].equal(at::tensor({7.0, 8.0})));
  CHECK(std::isnan(result[1][0].item<double>()));
  CHECK(result[2].equal(at::tensor({5.0, 6.0})));
}

TEST_CASE("steps of float32 are counted across zero", "[case_compare]") {
  const auto ulp = [](float a, float b) { return attentive::largest_ulp(at::tensor({a}), at::tensor({b})); };
  CHECK(ulp(1.0f, 1.0f) == 0);
  CHECK(ulp(1.0f, std::nextafter(1.0f, 2.0f)) == 1);
  CHECK(ulp(-1.0f, std::nextafter(-1.0f, -2.0f)) == 1);
  CHECK(ulp(0.0f, -0.0f) == 0);
  CHECK(ulp(-1e-45f, 1e-45f) == 2);
}

TEST_CASE("each dtype has its tolerances", "[case_compare]") {
  const auto check = [](at::ScalarType type, bool gradient, double atol, double rtol) {
    const auto tolerance = attentive::case_tolerance(type, gradient);
    CHECK(tolerance.atol == atol);
    CHECK(tolerance.rtol == rtol);
  };
  check(at::kFloat, false, 2e-6, 1e-5);
  check(at::kFloat, true, 5e-6, 1e-5);
  check(at::kDouble, false, 0.0, 1e-12);
  check(at::kDouble, true, 0.0, 1e-11);
  check(at::kBFloat16, false, 0.0, 1e-2);
  check(at::kBFloat16, true, 0.0, 3e-2);
  check(at::kHalf, false, 0.0, 2e-3);
  check(at::kHalf, true, 0.0, 6e-3);
}

#include <cmath>
#include <limits>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/parity/compare.h>

using namespace attentive;

namespace {

constexpr float kFloatNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kFloatInfinity = std::numeric_limits<float>::infinity();

}  // namespace

TEST_CASE("the distance is the largest difference and says where it is", "[compare]") {
  const auto want = at::tensor({1.0f, 2.0f, 3.0f, 4.0f}).view({2, 2});
  const auto distance = distance_of(at::tensor({1.5f, 2.0f, 2.25f, 4.0f}).view({2, 2}), want);
  CHECK(distance.largest == 0.75);
  CHECK(distance.place == 2);
  CHECK(distance.got == 2.25);
  CHECK(distance.want == 3.0);
  CHECK(distance.within(0.75));
  CHECK_FALSE(distance.within(0.74));
  CHECK(distance_of(want.t().contiguous().t(), want).largest == 0.0);
  CHECK(distance_of(at::tensor({1.0}), at::tensor({1.0f})).within(0.0));
  CHECK(distance_of(at::scalar_tensor(2.0), at::scalar_tensor(3.0)).largest == 1.0);
  const auto empty = distance_of(at::empty({0}), at::empty({0}));
  CHECK(empty.within(0.0));
  CHECK(empty.place == -1);
}

TEST_CASE("tensors of other shapes differ, even where they would broadcast", "[compare]") {
  CHECK_FALSE(distance_of(at::zeros({1, 2}), at::zeros({3, 2})).within(1e300));
  CHECK(difference(at::zeros({1, 2}), at::zeros({3, 2})) == "expected shape (3, 2), got (1, 2)");
  CHECK_FALSE(difference(at::empty({0, 2}), at::empty({2, 0})).empty());
}

TEST_CASE("NaN never passes and infinities must be equal", "[compare]") {
  const auto check = [](float got, float want) {
    const auto distance = distance_of(at::tensor({0.0f, got}), at::tensor({0.0f, want}));
    if (distance.place >= 0 && !distance.within(0.0)) CHECK(distance.place == 1);
    return distance.within(1e300);
  };
  CHECK_FALSE(check(kFloatNaN, 1.0f));
  CHECK_FALSE(check(1.0f, kFloatNaN));
  CHECK_FALSE(check(kFloatNaN, kFloatNaN));
  CHECK(check(kFloatInfinity, kFloatInfinity));
  CHECK_FALSE(check(-kFloatInfinity, kFloatInfinity));
  CHECK_FALSE(check(1.0f, kFloatInfinity));
  CHECK_FALSE(check(kFloatInfinity, 1.0f));
}

TEST_CASE("an infinity does not widen a relative tolerance", "[compare]") {
  CHECK(largest_magnitude(at::tensor({-3.0f, kFloatInfinity, 2.0f, kFloatNaN})) == 3.0);
  CHECK(largest_magnitude(at::empty({0})) == 0.0);
  const auto want = at::tensor({2.0f, kFloatInfinity});
  CHECK(difference(at::tensor({2.5f, kFloatInfinity}), want, {0.25, 0.0}) == "");
  CHECK_FALSE(difference(at::tensor({2.75f, kFloatInfinity}), want, {0.25, 0.0}).empty());
}

TEST_CASE("a difference is one line", "[compare]") {
  const auto want = at::tensor({1.0f, 2.0f});
  CHECK(difference(at::tensor({1.0f, 2.5f}), want, {0.0, 0.5}) == "");
  CHECK(difference(at::tensor({1.0f, 2.5f}), want, {0.0, 0.25}) ==
        "element 1 is 2.5, expected 2: difference 0.5, allowed 0.25");
  CHECK(difference(at::tensor({1.0f, 2.5f}), want, {0.25, 0.0}) == "");
  // 0.625 is more than a quarter of the wanted value, and less than a quarter of the computed one.
  CHECK_FALSE(difference(at::tensor({1.0f, 2.625f}), want, {0.25, 0.0}).empty());
  CHECK(difference({}, {}) == "");
  CHECK(difference(want, {}) == "one side is undefined");
  CHECK(difference({}, want) == "one side is undefined");
  // If no tolerance is given, that of the first tensor's dtype applies.
  CHECK(difference(at::full({1}, 1.001, at::kHalf), at::full({1}, 1.0)) == "");
  CHECK_FALSE(difference(at::full({1}, 1.001), at::full({1}, 1.0)).empty());
}

TEST_CASE("bits are equal only with the same shape and dtype", "[compare]") {
  const auto zero = at::tensor({0.0f, 1.0f});
  CHECK(bit_equal(zero, zero.clone()));
  CHECK_FALSE(bit_equal(zero, at::tensor({-0.0f, 1.0f})));
  CHECK_FALSE(bit_equal(zero, zero.view({2, 1})));
  CHECK_FALSE(bit_equal(at::zeros({2}), at::zeros({2}, at::kInt)));
  CHECK(bit_equal(at::tensor({kFloatNaN}), at::tensor({kFloatNaN})));
  CHECK(bit_equal(at::empty({0}), at::empty({0})));
  const auto square = at::tensor({1.0f, 2.0f, 3.0f, 4.0f}).view({2, 2});
  CHECK(bit_equal(square.t(), square.t().contiguous()));
}

TEST_CASE("steps of float32 are counted across zero", "[compare]") {
  const auto ulp = [](float a, float b) { return largest_ulp(at::tensor({a}), at::tensor({b})); };
  CHECK(ulp(1.0f, 1.0f) == 0);
  CHECK(ulp(1.0f, std::nextafter(1.0f, 2.0f)) == 1);
  CHECK(ulp(-1.0f, std::nextafter(-1.0f, -2.0f)) == 1);
  CHECK(ulp(0.0f, -0.0f) == 0);
  CHECK(ulp(-1e-45f, 1e-45f) == 2);
}

TEST_CASE("each dtype has its tolerances", "[compare]") {
  const auto check = [](at::ScalarType type, bool gradient, double atol, double rtol) {
    const auto tolerance = tolerance_of(type, gradient);
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

TEST_CASE("printed numbers are known to half a unit of their last decimal", "[compare]") {
  CHECK(printed_tolerance(4).atol == 0.5e-4 + 2e-6);
  CHECK(printed_tolerance(0).allowed(100.0) == 0.5 + 2e-6);
}

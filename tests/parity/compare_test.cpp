// The comparison of tensors, and of random draws.
#include <cmath>
#include <limits>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/Version.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/nn/modules/dropout.h>

#include <attentive/parity/compare.h>

#include "support/golden.h"

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

// Printed, because it determines what the other tests could compare.
TEST_CASE("Rules of this machine", "[draws]") {
  WARN(draw_rule(Drawn::Uniform));
  WARN(draw_rule(Drawn::Normal));
  WARN("CPU dropout stream: " << dropout_stream_of_this_cpu());
  CHECK(dropout_stream_of_this_cpu() != "unknown");
}

TEST_CASE("the dropout stream is the one that the layer draws", "[draws]") {
  const test::Golden golden("dropout_of_ones");
  at::manual_seed(golden.seed());
  const auto drawn = torch::nn::Dropout(0.5)->forward(at::ones({6, 6}));
  for (const std::string stream : {"default", "intel_mkl"}) {
    CHECK(bit_equal(drawn, golden[stream]) == (stream == dropout_stream_of_this_cpu()));
  }
}

TEST_CASE("asking for the dropout stream draws nothing from the default generator", "[draws]") {
  at::manual_seed(5);
  const auto expected = at::rand({4});
  at::manual_seed(5);
  dropout_stream_of_this_cpu();
  CHECK(bit_equal(at::rand({4}), expected));
}

namespace {

constexpr DrawKernels kSame{}, kOther{.uniform = false, .normal = false};

// Whether `got`, drawn on a machine whose kernels round differently, may correspond to `want`.
bool may_be(float got, float want, Drawn distribution) {
  return same_draw(at::full({16}, got), at::full({16}, want), distribution, kOther);
}

}  // namespace

TEST_CASE("the kernels that draw are the recorded ones where ATen's AVX2 kernels run", "[draws]") {
  const auto capability = at::get_cpu_capability();
  const bool vector = capability == "AVX2" || capability == "AVX512";
  CHECK(draw_kernels_of_this_cpu().normal == vector);
#ifdef __aarch64__
  CHECK(draw_kernels_of_this_cpu().uniform);  // every ARM has FMA
#else
  CHECK(draw_kernels_of_this_cpu().uniform == vector);
#endif
}

TEST_CASE("asking for the kernels draws nothing from the default generator", "[draws]") {
  at::manual_seed(5);
  const auto expected = at::rand({4});
  at::manual_seed(5);
  draw_kernels_of_this_cpu();
  CHECK(bit_equal(at::rand({4}), expected));
}

TEST_CASE("the same kernels must draw the same bits", "[draws]") {
  const auto want = at::full({16}, 0.5f);
  const auto next = at::full({16}, std::nextafter(0.5f, 1.0f));
  for (const auto distribution : {Drawn::Uniform, Drawn::Normal}) {
    CHECK(same_draw(want, want.clone(), distribution, kSame));
    CHECK_FALSE(same_draw(next, want, distribution, kSame));
    CHECK(draw_rule(distribution, kSame).find("bit for bit") != std::string::npos);
    CHECK(draw_rule(distribution, kOther).find("bit for bit") == std::string::npos);
  }
  CHECK_FALSE(same_draw(next, want, Drawn::Uniform, {.uniform = true, .normal = false}));
  CHECK_FALSE(same_draw(next, want, Drawn::Normal, {.uniform = false, .normal = true}));
  CHECK(same_draw(next, want, Drawn::Uniform) == !draw_kernels_of_this_cpu().uniform);
}

TEST_CASE("uniform draws of other kernels are within 2^-23 (1 + |x|)", "[draws]") {
  for (const float sign : {1.0f, -1.0f}) {
    CHECK(may_be(sign * (0.5f + 3 * 0x1p-24f), sign * 0.5f, Drawn::Uniform));
    CHECK_FALSE(may_be(sign * (0.5f + 4 * 0x1p-24f), sign * 0.5f, Drawn::Uniform));
    CHECK(may_be(sign * 0x1p-23f, 0.0f, Drawn::Uniform));
    CHECK_FALSE(may_be(sign * std::nextafter(0x1p-23f, 1.0f), 0.0f, Drawn::Uniform));
  }
  CHECK_FALSE(may_be(std::nanf(""), 0.5f, Drawn::Uniform));
}

TEST_CASE("normal draws of other kernels are within 2^-21 (5.77 + |x|)", "[draws]") {
  for (const float sign : {1.0f, -1.0f}) {
    CHECK(may_be(sign * (1 + 27 * 0x1p-23f), sign, Drawn::Normal));
    CHECK_FALSE(may_be(sign * (1 + 28 * 0x1p-23f), sign, Drawn::Normal));
    CHECK(may_be(sign * 2.751e-6f, 0.0f, Drawn::Normal));
    CHECK_FALSE(may_be(sign * 2.752e-6f, 0.0f, Drawn::Normal));
  }
}

TEST_CASE("fewer than 16 normal draws have the same bits from any kernels", "[draws]") {
  const auto want = at::full({15}, 0.5f);
  CHECK(same_draw(want, want.clone(), Drawn::Normal, kOther));
  CHECK_FALSE(same_draw(want + 0x1p-24f, want, Drawn::Normal, kOther));
}

TEST_CASE("what ATen's scalar kernels draw on x86 is what its vector kernels draw, rounded otherwise",
          "[draws]") {
  // uniform_(-1/3, 1/3) and normal_(0, 1) with one seed for which the kernels differ: AVX2, then SSE4.2.
  const auto uniform = at::tensor({0.244347975f, 0.124737784f, -0.122392021f});
  const auto uniform_scalar = at::tensor({0.24434796f, 0.124737769f, -0.122392029f});
  CHECK(same_draw(uniform_scalar, uniform, Drawn::Uniform, kOther));
  CHECK_FALSE(same_draw(uniform_scalar, uniform, Drawn::Uniform, kSame));
  const auto normal = at::tensor({-1.02047193f, 0.917764604f, -1.14814401f, -1.15886784f}).repeat({4});
  const auto normal_scalar = at::tensor({-1.02047253f, 0.917764008f, -1.14814448f, -1.15886867f}).repeat({4});
  CHECK(same_draw(normal_scalar, normal, Drawn::Normal, kOther));
  CHECK_FALSE(same_draw(normal_scalar, normal, Drawn::Normal, kSame));
  CHECK_FALSE(same_draw(normal_scalar, normal, Drawn::Uniform, kOther));
}

TEST_CASE("a draw is compared with what a conversion made of Python's", "[draws]") {
  const auto want = at::tensor({1.0f, -0.5f});
  CHECK(same_draw(want, want.to(at::kDouble), Drawn::Uniform, kSame));
  CHECK(same_draw(want + 0x1p-23f, want.to(at::kDouble), Drawn::Uniform, kOther));
  CHECK_FALSE(same_draw(want + 0x1p-21f, want.to(at::kDouble), Drawn::Uniform, kOther));
  // bfloat16 rounds 1 + 2^-8 down and the next float up.
  const auto one = at::full({1}, 1.0, at::kBFloat16);
  CHECK(same_draw(at::full({1}, 1 + 0x1p-8f + 0x1p-23f), one, Drawn::Uniform, kOther));
  CHECK_FALSE(same_draw(at::full({1}, 1 + 0x1p-8f + 0x1p-23f), one, Drawn::Uniform, kSame));
  CHECK_FALSE(same_draw(at::full({1}, 1 + 0x1p-8f + 0x1p-21f), one, Drawn::Uniform, kOther));
}

TEST_CASE("draws of another shape or of float64 are not the same", "[draws]") {
  const auto want = at::tensor({1.0f, -0.5f});
  CHECK_FALSE(same_draw(want.view({2, 1}), want, Drawn::Uniform, kOther));
  CHECK_FALSE(same_draw(want.to(at::kDouble), want, Drawn::Uniform, kOther));
}

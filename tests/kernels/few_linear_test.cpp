// Projections of a few rows, multiplied without a library call.

#include "kernels/gemm/few_linear.h"

#include <cmath>
#include <limits>

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <c10/util/Exception.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "kernels/gemm/gemm.h"
#include "support/compare.h"

using namespace attentive::test;
using attentive::difference;
using attentive::tolerance_of;
using attentive::kernels::cpu::few_linear;
using attentive::kernels::cpu::has_gemm_bf16;

namespace {

struct Autocast {
  Autocast() { at::autocast::set_autocast_enabled(at::kCPU, true); }
  ~Autocast() { at::autocast::set_autocast_enabled(at::kCPU, false); }
};

}  // namespace

TEST_CASE("few rows: equals the linear of doubles", "[few_linear][short]") {
  const int64_t rows = GENERATE(1, 2, 3, 4, 5, 7, 15, 16);
  const int64_t features = GENERATE(1, 3, 16, 59, 64, 128), outputs = GENERATE(1, 5, 16, 64, 130, 300);
  INFO(rows << " rows, " << features << " features, " << outputs << " outputs");
  const at::NoGradGuard no_grad;
  const auto x = at::randn({1, rows, features}), weight = at::randn({outputs, features}),
             bias = at::randn({outputs});
  const auto want = at::linear(x.to(at::kDouble), weight.to(at::kDouble));
  const auto got = few_linear(x, weight, {});
  REQUIRE(got.defined());
  CHECK(difference(got, want, tolerance_of(at::kFloat)) == "");
  CHECK(difference(few_linear(x, weight, bias), want + bias, tolerance_of(at::kFloat)) == "");
}

TEST_CASE("few rows: equals the linear of doubles with a weight beyond the caches", "[few_linear]") {
  const int64_t rows = GENERATE(1, 3, 4, 5, 16);
  const int64_t features = GENERATE(768, 3072, 8200), outputs = 107;
  INFO(rows << " rows, " << features << " features");
  const at::NoGradGuard no_grad;
  const auto x = at::randn({rows, features}),
             weight = at::randn({outputs, features}) / std::sqrt(static_cast<double>(features)),
             bias = at::randn({outputs});
  const auto want = at::linear(x.to(at::kDouble), weight.to(at::kDouble), bias.to(at::kDouble));
  const auto got = few_linear(x, weight, bias);
  REQUIRE(got.defined());
  CHECK(difference(got, want, tolerance_of(at::kFloat)) == "");
}

TEST_CASE("few rows: the same bits on any number of threads", "[few_linear][threads][short]") {
  const int64_t rows = GENERATE(1, 7);
  const at::NoGradGuard no_grad;
  const auto x = at::randn({rows, 520}), weight = at::randn({1001, 520}), bias = at::randn({1001});
  const auto threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto alone = few_linear(x, weight, bias);
  for (const int several : {2, 3, 7}) {
    at::set_num_threads(several);
    CHECK(at::equal(few_linear(x, weight, bias), alone));
  }
  at::set_num_threads(threads);
}

TEST_CASE("few rows: bfloat16 is multiplied in float32 where the library has no product",
          "[few_linear][short]") {
  const at::NoGradGuard no_grad;
  const int64_t rows = GENERATE(1, 6);
  const auto randn_bf16 = [](at::IntArrayRef sizes) { return at::randn(sizes).to(at::kBFloat16); };
  const auto x = randn_bf16({rows, 300}), weight = randn_bf16({65, 300}), bias = randn_bf16({65});
  const auto got = few_linear(x, weight, bias);
  REQUIRE(got.defined() != has_gemm_bf16());
  if (!got.defined()) return;
  CHECK(got.scalar_type() == at::kBFloat16);
  const auto want = at::linear(x.to(at::kDouble), weight.to(at::kDouble), bias.to(at::kDouble));
  CHECK((got.to(at::kDouble) - want).abs().max().item<double>() <= want.abs().max().item<double>() / 256);
  CHECK_FALSE(few_linear(x, weight.to(at::kFloat), {}).defined());
  CHECK_FALSE(few_linear(x, weight, bias.to(at::kFloat)).defined());
}

TEST_CASE("few rows: float16 is multiplied in float32 and rounded once", "[few_linear][float16][short]") {
  const at::NoGradGuard no_grad;
  const int64_t rows = GENERATE(1, 6, 16), features = GENERATE(1, 40, 300, 8200);
  const auto randn_half = [](at::IntArrayRef sizes) { return at::randn(sizes).to(at::kHalf); };
  const auto x = randn_half({rows, features}), weight = randn_half({65, features}), bias = randn_half({65});
  const auto got = few_linear(x, weight, bias);
  REQUIRE(got.defined());
  CHECK(got.scalar_type() == at::kHalf);
  const auto want = at::linear(x.to(at::kDouble), weight.to(at::kDouble), bias.to(at::kDouble));
  CHECK((got.to(at::kDouble) - want).abs().max().item<double>() <=
        want.abs().max().item<double>() * std::ldexp(1.0, -11));
  CHECK_FALSE(few_linear(x, weight.to(at::kFloat), {}).defined());
  CHECK_FALSE(few_linear(x, weight, bias.to(at::kFloat)).defined());
}

TEST_CASE("few rows: leaves to the library what it cannot do as well", "[few_linear]") {
  const at::NoGradGuard no_grad;
  const auto x = at::randn({16, 64}), weight = at::randn({64, 64}), bias = at::randn({64});
  REQUIRE(few_linear(x, weight, bias).defined());
  CHECK_FALSE(few_linear(at::randn({17, 64}), weight, bias).defined());
  CHECK_FALSE(few_linear(x.to(at::kDouble), weight.to(at::kDouble), {}).defined());
  CHECK_FALSE(few_linear(x, weight.to(at::kDouble), {}).defined());
  CHECK_FALSE(few_linear(x.to(at::kMeta), weight.to(at::kMeta), {}).defined());
  CHECK_FALSE(few_linear(at::randn({64, 16}).t(), weight, bias).defined());
  CHECK_FALSE(few_linear(x, weight.t(), bias).defined());
  CHECK_FALSE(few_linear(at::randn({16, 32}), weight, bias).defined());  // at::linear reports the error
  CHECK_FALSE(few_linear(x, weight, at::randn({1})).defined());
  CHECK_FALSE(few_linear(at::randn({0, 64}), weight, bias).defined());
  CHECK_FALSE(few_linear(x, at::randn({0, 64}), {}).defined());
  {
    const at::AutoGradMode grad(true);
    CHECK_FALSE(few_linear(x, weight, bias).defined());
  }
  const Autocast autocast;
  CHECK_FALSE(few_linear(x, weight, bias).defined());
}

TEST_CASE("few rows: NaN stays in its row", "[few_linear][nan]") {
  const at::NoGradGuard no_grad;
  const int64_t rows = GENERATE(2, 16);
  auto x = at::randn({rows, 64});
  x.select(0, 1).select(0, 3).fill_(std::numeric_limits<float>::quiet_NaN());
  const auto seen = few_linear(x, at::randn({40, 64}), at::randn({40})).isnan();
  CHECK(seen.select(0, 1).all().item<bool>());
  CHECK(seen.sum().item<int64_t>() == 40);
}

// Projections of many rows, multiplied without a library call.

#include <cmath>
#include <limits>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/silu.h>
#include <c10/util/Exception.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "kernels/gemm/linear.h"
#include "kernels/linear_cases.h"
#include "kernels/simd/elementwise.h"

using namespace attentive::test;
using namespace attentive::kernels::cpu;

namespace {

constexpr const char* kNotHere = "on this CPU, or within ATEN_CPU_CAPABILITY, LibTorch multiplies many rows";

bool multiplies_here() {
  return selection().bf16 == Bf16Product::Pairs && vector_code().width == 16;
}

// The dtypes that are multiplied here; skips the test if there are none.
std::vector<at::ScalarType> types() {
  if (!multiplies_here()) SKIP(kNotHere);
  return {at::kFloat, at::kBFloat16};
}

int64_t drawn_features(int64_t most) {
  return 2 * drawn(1, most / 2);  // bfloat16 needs an even number
}

}  // namespace

TEST_CASE("many rows: every dtype rounds the sum once", "[many_linear][short]") {
  const at::NoGradGuard no_grad;
  at::manual_seed(GENERATE(range(0, 30)));
  const auto rows = drawn(1, 700), features = drawn_features(400), outputs = drawn(1, 300);
  for (const auto type : types()) {
    INFO(rows << " rows, " << features << " features, " << outputs << " outputs, " << type);
    const auto x = random({1, rows, features}, type), weight = random({outputs, features}, type),
               bias = random({outputs}, type);
    const Exact exact(x, weight, bias), plain(x, weight, {});
    const auto got = many_linear(x, {weight, bias});
    REQUIRE(got.defined());
    CHECK(got.scalar_type() == type);
    CHECK(got.sizes() == at::IntArrayRef({1, rows, outputs}));
    CHECK(is_rounded(got, exact.value, exact.terms));
    CHECK(is_rounded(many_linear(x, {weight, {}}), plain.value, plain.terms));
  }
}

TEST_CASE("many rows: long rows", "[many_linear][short]") {
  const at::NoGradGuard no_grad;
  const int64_t features = GENERATE(2048, 3074, 8200);
  for (const auto type : types()) {
    INFO(features << " features, " << type);
    const auto x = random({40, features}, type), weight = random({70, features}, type);
    const Exact exact(x, weight, {});
    CHECK(is_rounded(many_linear(x, {weight, {}}), exact.value, exact.terms));
  }
}

TEST_CASE("many rows: a function of the sums", "[many_linear][short]") {
  const at::NoGradGuard no_grad;
  at::manual_seed(GENERATE(range(0, 8)));
  const auto rows = drawn(1, 700), features = drawn_features(200), outputs = drawn(1, 300);
  for (const auto type : types()) {
    INFO(rows << " rows, " << features << " features, " << outputs << " outputs, " << type);
    const auto x = random({rows, features}, type), weight = random({outputs, features}, type),
               bias = random({outputs}, type);
    const Exact exact(x, weight, bias);
    const auto gelu = at::gelu(exact.value, "tanh"), silu = at::silu(exact.value);
    CHECK(is_rounded(many_linear(x, {weight, bias}, elementwise().gelu), gelu, 2 * exact.terms));
    CHECK(is_rounded(many_linear(x, {weight, bias}, elementwise().silu), silu, 2 * exact.terms));
  }
}

TEST_CASE("many rows: a gate", "[many_linear][short]") {
  const at::NoGradGuard no_grad;
  at::manual_seed(GENERATE(range(0, 8)));
  const auto rows = drawn(1, 700), features = drawn_features(200), outputs = drawn(1, 300);
  for (const auto type : types()) {
    INFO(rows << " rows, " << features << " features, " << outputs << " outputs, " << type);
    const auto x = random({rows, features}, type), gate = random({outputs, features}, type),
               up = random({outputs, features}, type), gate_bias = random({outputs}, type),
               up_bias = random({outputs}, type);
    const Exact g(x, gate, gate_bias), u(x, up, up_bias);
    const auto terms = 2 * (g.terms * u.value.abs() + g.value.abs() * u.terms);
    CHECK(is_rounded(many_gated_linear(x, {gate, gate_bias}, {up, up_bias}, elementwise().silu),
                     at::silu(g.value) * u.value, terms));
    const auto wider = random({outputs + 1, features}, type);
    CHECK_FALSE(many_gated_linear(x, {gate, {}}, {wider, {}}, elementwise().silu).defined());
  }
}

TEST_CASE("many rows: a row has the same bits on any number of threads and among any others",
          "[many_linear][threads][short]") {
  const int64_t rows = GENERATE(33, 513, 1100);
  const at::NoGradGuard no_grad;
  const auto threads = at::get_num_threads();
  for (const auto type : types()) {
    INFO(rows << " rows, " << type);
    const auto x = random({rows, 520}, type), weight = random({200, 520}, type), bias = random({200}, type),
               up = random({200, 520}, type);
    at::set_num_threads(1);
    const auto alone = many_linear(x, {weight, bias});
    const auto gated = many_gated_linear(x, {weight, bias}, {up, {}}, elementwise().silu);
    for (const int several : {2, 3, 7}) {
      at::set_num_threads(several);
      CHECK(at::equal(many_linear(x, {weight, bias}), alone));
      CHECK(at::equal(many_gated_linear(x, {weight, bias}, {up, {}}, elementwise().silu), gated));
      CHECK(at::equal(many_linear(x.narrow(0, 7, 26), {weight, bias}), alone.narrow(0, 7, 26)));
    }
  }
  at::set_num_threads(threads);
}

TEST_CASE("many rows: leaves to the library what it cannot do as well", "[many_linear]") {
  const at::NoGradGuard no_grad;
  const auto x = at::randn({40, 64}), weight = at::randn({64, 64}), bias = at::randn({64});
  const auto taken = [](const at::Tensor& rows, const LinearLayer& layer) {
    return many_linear(rows, layer).defined();
  };
  CHECK(taken(x, {weight, bias}) == multiplies_here());
  CHECK(taken(x.to(at::kBFloat16), {weight.to(at::kBFloat16), {}}) == multiplies_here());
  {
    const SelectionGuard widened({&vector_code(), Bf16Product::Widened});
    CHECK_FALSE(taken(x, {weight, bias}));
  }
  CHECK_FALSE(taken(x.to(at::kHalf), {weight.to(at::kHalf), {}}));
  CHECK_FALSE(taken(x.to(at::kDouble), {weight.to(at::kDouble), {}}));
  CHECK_FALSE(taken(x, {weight.to(at::kDouble), {}}));
  CHECK_FALSE(taken(x.to(at::kMeta), {weight.to(at::kMeta), {}}));
  const auto odd = at::randn({40, 63}).to(at::kBFloat16);
  CHECK_FALSE(taken(odd, {at::randn({64, 63}).to(at::kBFloat16), {}}));
  CHECK_FALSE(taken(at::randn({64, 40}).t(), {weight, bias}));
  CHECK_FALSE(taken(x, {weight.t(), bias}));
  CHECK_FALSE(taken(at::randn({40, 32}), {weight, bias}));  // at::linear reports the error
  CHECK_FALSE(taken(x, {weight, at::randn({1})}));
  CHECK_FALSE(taken(at::randn({0, 64}), {weight, bias}));
  CHECK_FALSE(taken(x, {at::randn({0, 64}), {}}));
  {
    const at::AutoGradMode grad(true);
    CHECK_FALSE(taken(x, {weight, bias}));
  }
  const Autocast autocast;
  CHECK_FALSE(taken(x, {weight, bias}));
}

TEST_CASE("many rows: NaN stays in its row", "[many_linear][nan]") {
  const at::NoGradGuard no_grad;
  auto x = at::randn({100, 64});
  x.select(0, 1).select(0, 3).fill_(std::numeric_limits<float>::quiet_NaN());
  const auto got = many_linear(x, {at::randn({40, 64}), at::randn({40})});
  if (!got.defined()) SKIP(kNotHere);
  CHECK(got.isnan().select(0, 1).all().item<bool>());
  CHECK(got.isnan().sum().item<int64_t>() == 40);
}

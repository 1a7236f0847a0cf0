// Projections of a few rows, multiplied without a library call.

#include "kernels/gemm/linear.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/silu.h>
#include <c10/util/Exception.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "kernels/gemm/products.h"
#include "kernels/linear_cases.h"
#include "kernels/simd/elementwise.h"
#include "support/compare.h"

using namespace attentive::test;
using attentive::difference;
using attentive::tolerance_of;
using namespace attentive::kernels::cpu;

namespace {

// How many rows are multiplied here: fewer where LibTorch's own products of a half type are as fast.
int64_t most_rows(at::ScalarType type) {
  const bool library = (type == at::kHalf && library_has_gemm_f16()) ||
                       (type == at::kBFloat16 && selection().bf16 == Bf16Product::Pairs);
  return library ? 16 : 32;
}

// Compares the sums of drawn rows, features and outputs with exact ones.
void check_drawn_sums(uint64_t seed) {
  const at::NoGradGuard no_grad;
  at::manual_seed(seed);
  const auto rows = drawn(1, 32), features = drawn(1, 400), outputs = drawn(1, 600);
  for (const auto type : kTypes) {
    const auto all = random({rows, features}, type), weight = random({outputs, features}, type),
               bias = random({outputs}, type);
    const Exact exact_all(all, weight, bias), plain_all(all, weight, {});
    for (const auto& chosen : selections()) {
      INFO(rows << " rows, " << features << " features, " << outputs << " outputs, " << type << ", "
                << name_of(chosen));
      const SelectionGuard guard(chosen);
      const auto x = all.narrow(0, 0, std::min(rows, most_rows(type)));
      const auto exact = exact_all.of_first(x.size(0)), plain = plain_all.of_first(x.size(0));
      const auto got = few_linear(x, {weight, bias});
      REQUIRE(got.defined());
      CHECK(got.scalar_type() == type);
      CHECK(is_rounded(got, exact.value, exact.terms));
      CHECK(is_rounded(few_linear(x, {weight, {}}), plain.value, plain.terms));
    }
  }
}

}  // namespace

TEST_CASE("few rows: equals the linear of doubles", "[few_linear][short]") {
  const int64_t rows = GENERATE(1, 2, 3, 4, 5, 7, 15, 16, 23, 32);
  const int64_t features = GENERATE(1, 3, 16, 59, 64, 128), outputs = GENERATE(1, 5, 16, 64, 130, 300);
  INFO(rows << " rows, " << features << " features, " << outputs << " outputs");
  const at::NoGradGuard no_grad;
  const auto x = at::randn({1, rows, features}), weight = at::randn({outputs, features}),
             bias = at::randn({outputs});
  const auto want = at::linear(x.to(at::kDouble), weight.to(at::kDouble));
  const auto got = few_linear(x, {weight, {}});
  REQUIRE(got.defined());
  CHECK(difference(got, want, tolerance_of(at::kFloat)) == "");
  CHECK(difference(few_linear(x, {weight, bias}), want + bias, tolerance_of(at::kFloat)) == "");
}

TEST_CASE("few rows: equals the linear of doubles with a weight beyond the caches", "[few_linear]") {
  const int64_t rows = GENERATE(1, 3, 4, 5, 16, 32);
  const int64_t features = GENERATE(768, 3072, 8200), outputs = 107;
  INFO(rows << " rows, " << features << " features");
  const at::NoGradGuard no_grad;
  const auto x = at::randn({rows, features}),
             weight = at::randn({outputs, features}) / std::sqrt(static_cast<double>(features)),
             bias = at::randn({outputs});
  const auto want = at::linear(x.to(at::kDouble), weight.to(at::kDouble), bias.to(at::kDouble));
  const auto got = few_linear(x, {weight, bias});
  REQUIRE(got.defined());
  CHECK(difference(got, want, tolerance_of(at::kFloat)) == "");
}

TEST_CASE("few rows: every dtype and set of instructions rounds the sum once", "[few_linear][short]") {
  check_drawn_sums(GENERATE(range(0, 6)));
}

TEST_CASE("few rows: every dtype and set of instructions rounds the sum once, more draws", "[few_linear]") {
  check_drawn_sums(GENERATE(range(6, 30)));
}

TEST_CASE("few rows: long rows of half types", "[few_linear][short]") {
  const at::NoGradGuard no_grad;
  const int64_t rows = GENERATE(1, 3, 8, 32), features = GENERATE(2048, 3075, 8200), outputs = 70;
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const auto all = random({rows, features}, type), weight = random({outputs, features}, type);
    const Exact exact_all(all, weight, {});
    for (const auto& chosen : selections()) {
      INFO(rows << " rows, " << features << " features, " << type << ", " << name_of(chosen));
      const SelectionGuard guard(chosen);
      const auto x = all.narrow(0, 0, std::min(rows, most_rows(type)));
      const auto exact = exact_all.of_first(x.size(0));
      CHECK(is_rounded(few_linear(x, {weight, {}}), exact.value, exact.terms));
    }
  }
}

TEST_CASE("few rows: a function of the sums", "[few_linear][short]") {
  const at::NoGradGuard no_grad;
  at::manual_seed(GENERATE(range(0, 8)));
  const auto rows = drawn(1, 32), features = drawn(1, 200), outputs = drawn(1, 600);
  for (const auto type : kTypes) {
    const auto all = random({1, rows, features}, type), weight = random({outputs, features}, type),
               bias = random({outputs}, type);
    const Exact exact_all(all, weight, bias);
    for (const auto& chosen : selections()) {
      INFO(rows << " rows, " << features << " features, " << outputs << " outputs, " << type << ", "
                << name_of(chosen));
      const SelectionGuard guard(chosen);
      const auto x = all.narrow(1, 0, std::min(rows, most_rows(type)));
      const auto exact = exact_all.of_first(x.size(1));
      CHECK(is_rounded(few_linear(x, {weight, bias}, elementwise().gelu), at::gelu(exact.value, "tanh"),
                       2 * exact.terms));
      CHECK(is_rounded(few_linear(x, {weight, bias}, elementwise().silu), at::silu(exact.value),
                       2 * exact.terms));
    }
  }
}

TEST_CASE("few rows: a gate", "[few_linear][short]") {
  const at::NoGradGuard no_grad;
  at::manual_seed(GENERATE(range(0, 8)));
  const auto rows = drawn(1, 32), features = drawn(1, 200), outputs = drawn(1, 600);
  for (const auto type : kTypes) {
    const auto all = random({rows, features}, type), gate = random({outputs, features}, type),
               up = random({outputs, features}, type), gate_bias = random({outputs}, type),
               up_bias = random({outputs}, type);
    const Exact gate_all(all, gate, gate_bias), up_all(all, up, up_bias);
    for (const auto& chosen : selections()) {
      INFO(rows << " rows, " << features << " features, " << outputs << " outputs, " << type << ", "
                << name_of(chosen));
      const SelectionGuard guard(chosen);
      const auto x = all.narrow(0, 0, std::min(rows, most_rows(type)));
      const auto g = gate_all.of_first(x.size(0)), u = up_all.of_first(x.size(0));
      const auto want = at::silu(g.value) * u.value;
      const auto terms = 2 * (g.terms * u.value.abs() + g.value.abs() * u.terms);
      CHECK(
          is_rounded(few_gated_linear(x, {gate, gate_bias}, {up, up_bias}, elementwise().silu), want, terms));
    }
  }
  const auto x = at::randn({2, 8}), wide = at::randn({4, 8}), narrow = at::randn({3, 8});
  CHECK_FALSE(few_gated_linear(x, {wide, {}}, {narrow, {}}, elementwise().silu).defined());
}

TEST_CASE("few rows: several layers in one call equal one call each", "[few_linear][short]") {
  const at::NoGradGuard no_grad;
  const int64_t rows = GENERATE(1, 6, 32);
  for (const auto type : kTypes) {
    const auto all = random({rows, 520}, type), q = random({800, 520}, type), k = random({131, 520}, type),
               v = random({129, 520}, type), bias = random({131}, type);
    for (const auto& chosen : selections()) {
      INFO(rows << " rows, " << type << ", " << name_of(chosen));
      const SelectionGuard guard(chosen);
      const auto x = all.narrow(0, 0, std::min(rows, most_rows(type)));
      const auto got = few_linears(x, {{q, {}}, {k, bias}, {v, {}}});
      REQUIRE(got.size() == 3);
      CHECK(at::equal(got[0], few_linear(x, {q, {}})));
      CHECK(at::equal(got[1], few_linear(x, {k, bias})));
      CHECK(at::equal(got[2], few_linear(x, {v, {}})));
      CHECK(few_linears(x, {{q, {}}, {at::randn({8, 8}), {}}}).empty());
    }
  }
}

TEST_CASE("few rows: the same bits on any number of threads", "[few_linear][threads]") {
  const int64_t rows = GENERATE(1, 7, 32);
  const at::NoGradGuard no_grad;
  const auto threads = at::get_num_threads();
  for (const auto type : kTypes) {
    const auto all = random({rows, 520}, type), weight = random({1001, 520}, type),
               bias = random({1001}, type), up = random({1001, 520}, type);
    for (const auto& chosen : selections()) {
      INFO(rows << " rows, " << type << ", " << name_of(chosen));
      const SelectionGuard guard(chosen);
      const auto x = all.narrow(0, 0, std::min(rows, most_rows(type)));
      at::set_num_threads(1);
      const auto alone = few_linear(x, {weight, bias});
      const auto gated = few_gated_linear(x, {weight, bias}, {up, {}}, elementwise().silu);
      for (const int several : {2, 3, 7}) {
        at::set_num_threads(several);
        CHECK(at::equal(few_linear(x, {weight, bias}), alone));
        CHECK(at::equal(few_gated_linear(x, {weight, bias}, {up, {}}, elementwise().silu), gated));
      }
    }
  }
  at::set_num_threads(threads);
}

TEST_CASE("few rows: leaves to the library what it cannot do as well", "[few_linear]") {
  const at::NoGradGuard no_grad;
  const auto x = at::randn({16, 64}), weight = at::randn({64, 64}), bias = at::randn({64});
  REQUIRE(few_linear(x, {weight, bias}).defined());
  CHECK_FALSE(few_linear(at::randn({33, 64}), {weight, bias}).defined());
  CHECK_FALSE(few_linear(x.to(at::kDouble), {weight.to(at::kDouble), {}}).defined());
  CHECK_FALSE(few_linear(x, {weight.to(at::kDouble), {}}).defined());
  for (const auto type : kTypes) {
    const auto many = at::randn({33, 64}).to(type);
    CHECK(few_linear(many.narrow(0, 0, most_rows(type)), {weight.to(type), {}}).defined());
    CHECK_FALSE(few_linear(many.narrow(0, 0, most_rows(type) + 1), {weight.to(type), {}}).defined());
  }
  const auto half = x.to(at::kHalf), half_weight = weight.to(at::kHalf);
  CHECK_FALSE(few_linear(half, {weight, {}}).defined());
  CHECK_FALSE(few_linear(half, {half_weight, bias}).defined());
  CHECK_FALSE(few_linear(x.to(at::kMeta), {weight.to(at::kMeta), {}}).defined());
  CHECK_FALSE(few_linear(at::randn({64, 16}).t(), {weight, bias}).defined());
  CHECK_FALSE(few_linear(x, {weight.t(), bias}).defined());
  CHECK_FALSE(few_linear(at::randn({16, 32}), {weight, bias}).defined());  // at::linear reports the error
  CHECK_FALSE(few_linear(x, {weight, at::randn({1})}).defined());
  CHECK_FALSE(few_linear(at::randn({0, 64}), {weight, bias}).defined());
  CHECK_FALSE(few_linear(x, {at::randn({0, 64}), {}}).defined());
  {
    const at::AutoGradMode grad(true);
    CHECK_FALSE(few_linear(x, {weight, bias}).defined());
  }
  const Autocast autocast;
  CHECK_FALSE(few_linear(x, {weight, bias}).defined());
}

TEST_CASE("few rows: NaN stays in its row", "[few_linear][nan]") {
  const at::NoGradGuard no_grad;
  const int64_t rows = GENERATE(2, 16);
  auto x = at::randn({rows, 64});
  x.select(0, 1).select(0, 3).fill_(std::numeric_limits<float>::quiet_NaN());
  const auto seen = few_linear(x, {at::randn({40, 64}), at::randn({40})}).isnan();
  CHECK(seen.select(0, 1).all().item<bool>());
  CHECK(seen.sum().item<int64_t>() == 40);
}

// Projections of many rows, multiplied without a library call.

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

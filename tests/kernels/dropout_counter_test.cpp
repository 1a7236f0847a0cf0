// Tests of the Counter stream's mean, for every implementation: 16 bits decide, so the share of survivors is
// a multiple of 1 / 65536, and their scale must be the inverse of that share.

#include "kernels/dropout_counter.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/explain.h>

#include "functional/elementwise.h"
#include "functional/problem_builder.h"
#include "kernels/emulated_softmax.h"
#include "kernels/native_cuda/backend.h"
#include "support/compare.h"
#include "support/option_cases.h"

using namespace attentive;
using namespace attentive::test;

namespace {

// The factor of survivors for which the mean over all 65536 values of the bits is 1.
double exact_scale(double p) {
  return 65536.0 / kernels::keep_threshold(p);
}

// Returns which weights survive the next draw.
at::Tensor survivors_of(uint64_t seed, double p, int64_t heads, int64_t L, int64_t S) {
  at::manual_seed(seed);
  const auto key = kernels::draw_dropout_key(std::nullopt);
  at::manual_seed(seed);
  return kernels::counter_keep_mask(key, p, 0, 1, 0, heads, static_cast<uint32_t>(S - L), L, 0, S);
}

}  // namespace

TEST_CASE("counter dropout: the share that survives is the nearest that 16 bits hold, and never none",
          "[dropout_counter]") {
  CHECK(kernels::keep_threshold(0.0) == 65536);
  CHECK(kernels::keep_threshold(1e-6) == 65536);  // nothing is dropped
  CHECK(kernels::keep_threshold(0.5) == 32768);
  CHECK(kernels::keep_threshold(0.1) == 58982);
  CHECK(kernels::keep_threshold(0.9999) == 7);
  CHECK(kernels::keep_threshold(0.99999) == 1);
  CHECK(kernels::keep_threshold(1.0 - 1e-9) == 1);
}

TEST_CASE("counter dropout: survivors are scaled by the share that survives", "[dropout_counter]") {
  const double p = GENERATE(1e-6, 0.1, 0.3, 0.99, 0.999, 1.0 - 1e-9);
  const int64_t L = GENERATE(5, 300), S = 200;
  INFO("p " << p << ", L " << L);
  // With equal weights and values that are unit vectors, the output is the matrix of dropped weights.
  const auto q = at::zeros({1, 2, L, 4}), k = at::zeros({1, 2, S, 4});
  const auto v = at::eye(S).expand({1, 2, S, S});
  AttentionOptions options{.dropout_p = p, .dropout_stream = DropoutStream::Counter};
  const auto want = survivors_of(3, p, 2, L, S).to(at::kDouble) * (exact_scale(p) / static_cast<double>(S));

  AttentionExtras extras;
  extras.weights = Weights::Dropped;
  for (const auto backend : {Backend::Reference, Backend::Native}) {
    OptionCall call{q, k, v, options, extras};
    if (!takes(backend, call)) continue;
    INFO(to_string(backend));
    options.backend = backend;
    (void)survivors_of(3, p, 2, L, S);
    const auto result = attention(q, k, v, options, extras);
    CHECK_WITHIN(result.output, want, {1e-6, 0.0});
    CHECK_WITHIN(result.weights, want, {1e-6, 0.0});
  }
  options.backend = Backend::Auto;
  (void)survivors_of(3, p, 2, L, S);
  const auto problem = normalize("attention", q, k, v, options, {}).problem;
  CHECK_WITHIN(kernels::native_cuda::run_with(kEmulatedSoftmax, problem).output, want, {1e-6, 0.0});
}

TEST_CASE("counter dropout: gradients have the survivors' scale", "[dropout_counter]") {
  const double p = GENERATE(0.3, 0.99);
  at::manual_seed(2);
  OptionCall exact;
  exact.q = at::randn({1, 2, 70, 8}, at::kDouble);
  exact.k = at::randn({1, 2, 90, 8}, at::kDouble);
  exact.v = at::randn({1, 2, 90, 8}, at::kDouble);
  exact.options.dropout_p = p;
  exact.options.dropout_stream = DropoutStream::Counter;
  const auto call = cast(exact, at::kFloat);
  if (!takes(Backend::Native, call)) SKIP("no native kernel on this CPU");
  const auto want = expected_of(call), got = run_on(call, Backend::Native);
  for (size_t n = 0; n < 3; ++n) CHECK_WITHIN(got.gradients[n], want.gradients[n], {2e-6, 0.0});
}

namespace {

// Output and gradients of a call whose output is multiplied by `direction`.
std::vector<at::Tensor> results_along(const OptionCall& call, Backend backend, bool emulated,
                                      const at::Tensor& direction) {
  const auto leaves = cast(call, at::kFloat);
  at::manual_seed(8);
  at::Tensor output;
  if (emulated) {
    const auto problem =
        normalize("attention", leaves.q, leaves.k, leaves.v, leaves.options, leaves.extras).problem;
    output = kernels::native_cuda::run_with(kEmulatedSoftmax, problem).output;
  } else {
    auto options = leaves.options;
    options.backend = backend;
    output = attention(leaves.q, leaves.k, leaves.v, options, leaves.extras).output;
  }
  std::vector<at::Tensor> results = {output.detach()};
  for (auto& gradient : torch::autograd::grad({output}, {leaves.q, leaves.k, leaves.v}, {direction}))
    results.push_back(std::move(gradient));
  return results;
}

}  // namespace

TEST_CASE("counter dropout: the last queries of a sequence draw what they draw in all of it",
          "[dropout_counter][position]") {
  struct Sizes {
    int64_t queries, last, keys;
  };
  const auto sizes = GENERATE(Sizes{40, 7, 40}, Sizes{200, 1, 200}, Sizes{150, 60, 331}, Sizes{60, 33, 20});
  const bool windowed = GENERATE(false, true);  // the reference then computes blocks of rows
  INFO(sizes.queries << " queries, the last " << sizes.last << ", " << sizes.keys << " keys");
  at::manual_seed(6);
  OptionCall whole;
  whole.q = at::randn({1, 4, sizes.queries, 8}, at::kDouble);
  whole.k = at::randn({1, 2, sizes.keys, 8}, at::kDouble);
  whole.v = at::randn({1, 2, sizes.keys, 8}, at::kDouble);
  whole.options.dropout_p = 0.4;
  whole.options.dropout_stream = DropoutStream::Counter;
  if (windowed) whole.options.window = {30, 10};
  auto part = whole;
  const int64_t first = sizes.queries - sizes.last;
  part.q = whole.q.slice(2, first);
  auto direction = at::randn({1, 4, sizes.queries, 8});
  direction.slice(2, 0, first).zero_();

  const auto check = [&](Backend backend, bool emulated) {
    INFO(to_string(backend) << (emulated ? ", the rows of CUDA" : ""));
    auto want = results_along(whole, backend, emulated, direction);
    for (size_t n : {0, 1}) want[n] = want[n].slice(2, first);
    const auto got = results_along(part, backend, emulated, direction.slice(2, first));
    for (size_t n = 0; n < want.size(); ++n) CHECK_WITHIN(got[n], want[n], {2e-6, 0.0});
  };
  check(Backend::Reference, false);
  check(Backend::Native, true);
  if (!takes(Backend::Native, cast(whole, at::kFloat))) return;
  check(Backend::Native, false);

  // Without gradients, few queries take a separate path.
  const at::NoGradGuard no_grad;
  auto options = whole.options;
  options.backend = Backend::Native;
  const auto output_of = [&](const OptionCall& call) {
    at::manual_seed(8);
    return attention(call.q.to(at::kFloat), call.k.to(at::kFloat), call.v.to(at::kFloat), options);
  };
  CHECK_WITHIN(output_of(part), output_of(whole).slice(2, first), {2e-6, 0.0});
}

TEST_CASE("counter dropout: queries before the first key draw bits of their own",
          "[dropout_counter][position]") {
  const auto mask = survivors_of(3, 0.5, 1, /*L=*/40, /*S=*/20).select(1, 0).select(0, 0);
  for (int64_t i = 1; i < 40; ++i) CHECK_FALSE(mask.select(0, i).equal(mask.select(0, i - 1)));
}

TEST_CASE("counter dropout: features too", "[dropout_counter]") {
  const double p = GENERATE(1e-6, 0.1, 0.99, 0.999);
  const auto type = GENERATE(at::kFloat, at::kDouble);
  const auto x = at::ones({100, 1000}, type);
  at::manual_seed(4);
  const auto y = drop_features(x, p, /*training=*/true);
  const auto kept = y.masked_select(y.ne(0)).to(at::kDouble);
  REQUIRE(kept.numel() > 0);
  CHECK_WITHIN(kept, at::ones_like(kept) * exact_scale(p), {1e-7, 0.0});
  at::manual_seed(4);
  const auto added = add_dropped(x, x, p, /*training=*/true);
  CHECK_WITHIN(added, y + 1.0, {1e-6, 0.0});
}

// Tests where float32 runs out of digits: sums over many keys, and scores so large that the softmax must
// subtract their maximum. The numbers are chosen so that the scores are exact and only the other steps have
// errors.

#include <algorithm>
#include <cmath>
#include <functional>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <torch/csrc/autograd/autograd.h>

#include "support/compare.h"
#include "support/exact_scores.h"
#include "support/option_cases.h"

using namespace attentive;
using namespace attentive::test;

namespace {

constexpr double kUlp = 1.2e-7;     // unit in the last place of 1 in float32
constexpr double kFlushed = 1e-34;  // sums of numbers that may be flushed to zero

double largest(const at::Tensor& x) {
  return x.detach().abs().max().item<double>();
}

// The native kernel's order of summation by plain ATen additions: one partial sum per block of 128 keys, in
// the order of the keys, and then the sum of these. Unlike the order of MKL, and therefore the textbook's
// error, it does not depend on the CPU.
at::Tensor sums_by_blocks(const OptionCall& call) {
  constexpr int64_t kBlock = 128;
  const int64_t S = call.k.size(2), blocks = (S + kBlock - 1) / kBlock, missing = blocks * kBlock - S;
  const auto scores = at::matmul(call.q, call.k.transpose(2, 3)) / 8.0;
  const auto weights = (scores - scores.amax(3, true)).exp();
  // An additional feature of ones yields the sum of the weights.
  const auto values = at::cat({call.v, at::ones_like(call.v.slice(3, 0, 1))}, 3);
  const auto w = at::constant_pad_nd(weights, {0, missing}).unflatten(3, {blocks, kBlock}).unsqueeze(5);
  const auto v = at::constant_pad_nd(values, {0, 0, 0, missing}).unflatten(2, {blocks, kBlock}).unsqueeze(2);
  auto partial = at::zeros_like(w.select(4, 0) * v.select(4, 0));
  for (int64_t i = 0; i < kBlock; ++i) partial.add_(w.select(4, i) * v.select(4, i));
  auto sum = at::zeros_like(partial.select(3, 0));
  for (int64_t block = 0; block < blocks; ++block) sum.add_(partial.select(3, block));
  return sum.slice(3, 0, -1) / sum.slice(3, -1);
}

}  // namespace

// Invariant 1 in its hardest case: equal weights, for which the textbook's sums have the smallest errors. The
// native kernel is also compared with its own order of additions.
TEST_CASE("sums over many keys err at most twice as much as the textbook", "[precision]") {
  const auto backend = GENERATE(Backend::Reference, Backend::Torch, Backend::Native);
  const int64_t S = GENERATE(100, 300, 1000, 4000), L = GENERATE(8, 16, 40);
  const std::string kind = GENERATE("one value", "random values", "random scores");
  for (uint64_t seed = 0; seed < 4; ++seed) {
    INFO(to_string(backend) << ", " << S << " keys, " << L << " queries, " << kind << ", seed " << seed);
    at::manual_seed(seed);
    OptionCall call;
    call.q = at::randn({1, 2, L, 64});
    call.k = at::randn({1, 2, S, 64});
    call.v = at::randn({1, 2, S, 64});
    if (kind != "random scores") call.q.zero_();
    if (kind == "one value") call.v = call.v.slice(2, 0, 1).expand({1, 2, S, 64}).contiguous();
    if (kind == "random scores") call.v += 3.0;
    if (!takes(backend, call)) SKIP("backend refuses");
    const auto textbook = [&](at::ScalarType type) {
      const auto scores = at::matmul(call.q.to(type), call.k.to(type).transpose(2, 3)) / 8.0;
      return at::matmul(at::softmax(scores, -1), call.v.to(type));
    };
    const auto want = textbook(at::kDouble);
    call.options.backend = backend;
    const auto got = attention(call.q, call.k, call.v, call.options);
    const double slack = 2 * kUlp * largest(want);
    CHECK(largest_error(got, want) <= 2 * largest_error(textbook(at::kFloat), want) + slack);
    if (backend == Backend::Native)
      CHECK(largest_error(got, want) <= 1.25 * largest_error(sums_by_blocks(call), want) + slack);
  }
}

TEST_CASE("gradients over many queries err at most three times as much as the textbook", "[precision]") {
  const bool equal = GENERATE(true, false);
  at::manual_seed(5);
  OptionCall exact;
  exact.q = at::randn({1, 2, 3000, 16}, at::kDouble);
  exact.k = at::randn({1, 2, 70, 16}, at::kDouble);
  exact.v = at::randn({1, 2, 70, 16}, at::kDouble);
  if (equal) exact.q.zero_();
  const auto call = cast(exact, at::kFloat);
  if (!takes(Backend::Native, call)) SKIP("backend refuses");
  const auto want = run_on(cast(call, at::kDouble), Backend::Reference);
  const auto plain = run_on(call, Backend::Reference), got = run_on(call, Backend::Native);
  double size = 0.0;
  for (const auto& gradient : want.gradients) size = std::max(size, largest(gradient));
  for (size_t n = 0; n < 3; ++n) {
    INFO("gradient of "
         << "qkv"[n]);
    CHECK(largest_error(got.gradients[n], want.gradients[n]) <=
          3 * largest_error(plain.gradients[n], want.gradients[n]) + 2 * kUlp * size);
  }
}

// Invariant 4, for weights that are returned.
TEST_CASE("rows of weights sum to one however large the scores are", "[precision][weights]") {
  const auto backend = GENERATE(Backend::Reference, Backend::Native);
  const double base = GENERATE(1.0, 100.0, 10'000.0);
  const bool negative = GENERATE(false, true);
  const int64_t L = GENERATE(3, 70);
  const std::string option = GENERATE("plain", "softcap", "bias", "ALiBi");
  auto call = exact_scores(base, L, 300, negative);
  if (option == "softcap") call.options.softcap = base;
  if (option == "bias") call.extras.mask = Mask::bias(at::randn({L, 300}, at::kDouble) * base);
  if (option == "ALiBi") call.extras.alibi_slopes = at::rand({4}, at::kDouble);
  INFO(to_string(backend) << ", " << option << ", scores of " << (negative ? -base : base) << ", L " << L);
  const at::NoGradGuard no_grad;
  call = cast(call, at::kFloat);
  call.extras.weights = Weights::Clean;
  if (!takes(backend, call)) SKIP("backend refuses");
  call.options.backend = backend;
  const auto sums =
      attention(call.q, call.k, call.v, call.options, call.extras).weights.to(at::kDouble).sum(-1);
  CHECK(largest_error(sums, at::ones_like(sums)) <= 2e-6);
}

TEST_CASE("weights keep their digits however large the scores are", "[precision][weights]") {
  const auto type = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  // A half weight has three digits, which are lost for larger scores; q and k hold the root of a score.
  const double base = type == at::kFloat ? GENERATE(100.0, 10'000.0) : 1e6;
  const bool negative = GENERATE(false, true);
  const int64_t L = GENERATE(3, 70);
  const auto& variant = exact_variants()[GENERATE(range(size_t{0}, size_t{8}))];
  INFO(variant.name << ", " << c10::toString(type) << ", scores of " << (negative ? -base : base) << ", L "
                    << L);
  auto exact = exact_scores(base, L, 300, negative);
  variant.apply(exact);
  exact.extras.weights = exact.options.dropout_p > 0.0 ? Weights::Dropped : Weights::Clean;
  const at::NoGradGuard no_grad;
  auto call = cast(exact, type);
  if (!takes(Backend::Native, call)) SKIP("backend refuses");
  const auto weights = [](OptionCall on, Backend backend) {
    on.options.backend = backend;
    at::manual_seed(13);
    return attention(on.q, on.k, on.v, on.options, on.extras).weights.to(at::kDouble);
  };
  const auto want = weights(cast(call, at::kDouble), Backend::Reference),
             got = weights(call, Backend::Native);
  const double digits = type == at::kFloat ? 2e-6 : 4e-3;
  // A float16 weight is a multiple of 2^-24 next to 0.
  const double least = type == at::kHalf ? std::ldexp(1.0, -24) : 1e-9;
  CHECK((got - want).abs().le(want * digits + least).all().item<bool>());
}

// Invariant 1 for gradients.
TEST_CASE("gradients keep their digits however large the scores are", "[precision]") {
  const double base = GENERATE(1.0, 100.0, 10'000.0);
  const bool negative = GENERATE(false, true);
  const int64_t L = GENERATE(8, 70);
  const auto& variant = exact_variants()[GENERATE(range(size_t{0}, size_t{8}))];
  INFO(variant.name << ", scores of " << (negative ? -base : base) << ", L " << L);
  auto exact = exact_scores(base, L, 200, negative);
  variant.apply(exact);
  const auto call = cast(exact, at::kFloat);
  if (!takes(Backend::Native, call)) SKIP("backend refuses");
  const auto want = run_on(cast(exact, at::kDouble), Backend::Reference);
  const auto plain = run_on(call, Backend::Reference), got = run_on(call, Backend::Native);
  double size = 0.0;
  for (const auto& gradient : want.gradients) size = std::max(size, largest(gradient));
  for (size_t n = 0; n < 3; ++n) {
    INFO("gradient of "
         << "qkv"[n]);
    CHECK(largest_error(got.gradients[n], want.gradients[n]) <=
          3 * largest_error(plain.gradients[n], want.gradients[n]) + 2 * kUlp * size + kFlushed);
  }
}

TEST_CASE("a sink's gradient keeps its digits however large the scores are", "[precision]") {
  const double base = GENERATE(1.0, 100.0, 10'000.0);
  const int64_t L = GENERATE(8, 70);
  auto exact = exact_scores(base, L, 200);
  const auto sinks = at::tensor({base, base + 3, base - 2, base + 5}, at::kDouble);
  const auto gradient = [&](at::ScalarType type, Backend backend) {
    const auto call = cast(exact, type);
    const auto leaf = sinks.to(type).requires_grad_(true);
    AttentionExtras extras;
    extras.sinks = leaf;
    auto options = call.options;
    options.backend = backend;
    const auto y = attention(call.q, call.k, call.v, options, extras).output;
    return torch::autograd::grad({y.to(at::kDouble).square().sum()}, {leaf})[0];
  };
  if (!takes(Backend::Native, cast(exact, at::kFloat))) SKIP("backend refuses");
  const auto want = gradient(at::kDouble, Backend::Reference);
  CHECK(largest_error(gradient(at::kFloat, Backend::Native), want) <=
        3 * largest_error(gradient(at::kFloat, Backend::Reference), want) + 4 * kUlp * largest(want));
}

// These scores are not exact. If one weight is nearly 1, the textbook's softmax backward cancels exactly,
// whereas the kernel subtracts dO · O from dO · v, which leaves an error of two units in the last place,
// multiplied by the key.
TEST_CASE("gradients of huge random scores are as exact as dO · O", "[precision]") {
  const double size = GENERATE(1.0, 10.0, 100.0);
  const int64_t L = GENERATE(8, 64);
  at::manual_seed(7);
  OptionCall exact;
  exact.q = at::randn({1, 2, L, 4}, at::kDouble) * size;
  exact.k = at::randn({1, 2, 200, 4}, at::kDouble) * size;
  exact.v = at::randn({1, 2, 200, 4}, at::kDouble);
  const auto call = cast(exact, at::kFloat);
  if (!takes(Backend::Native, call)) SKIP("backend refuses");
  const auto want = run_on(cast(call, at::kDouble), Backend::Reference);
  const auto plain = run_on(call, Backend::Reference), got = run_on(call, Backend::Native);
  for (size_t n = 0; n < 3; ++n) {
    INFO("gradient of "
         << "qkv"[n] << ", numbers of " << size << ", L " << L);
    const auto& factor = n == 0 ? exact.k : exact.q;  // multiplies a score's gradient, with the scale 0.5
    const double left = n == 2 ? 0.0 : 2 * kUlp * largest(exact.v) * 0.5 * largest(factor);
    CHECK(largest_error(got.gradients[n], want.gradients[n]) <=
          3 * largest_error(plain.gradients[n], want.gradients[n]) + 2 * kUlp * largest(want.gradients[n]) +
              left);
  }
}

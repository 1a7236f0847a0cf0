// Tests where float32 runs out of digits: sums over many keys, and scores so large that the softmax must
// subtract their maximum. The numbers are chosen so that the scores are exact and only the other steps have
// errors.

#include <algorithm>
#include <cmath>
#include <functional>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/equal.h>
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

#include <attentive/core/options.h>

#include "functional/elementwise.h"
#include "kernels/dropout_counter.h"
#include "support/compare.h"
#include "support/naive_attention.h"
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

namespace {

constexpr double kP = 0.3;

// The mask computed number by number from the definition of the stream.
at::Tensor expected_mask(at::IntArrayRef sizes, uint64_t key) {
  auto mask = at::ones(sizes);
  auto* out = mask.mutable_data_ptr<float>();
  const auto threshold = kernels::keep_threshold(kP);
  for (int64_t n = 0; n < mask.numel(); ++n) {
    const bool survives =
        kernels::dropout_words(key, 0, 0, 0, n).survives(static_cast<int>(n / 16 % 8), threshold);
    out[n] = survives ? static_cast<float>(65536.0 / threshold) : 0.0f;
  }
  return mask;
}

uint64_t next_key(uint64_t seed) {
  at::manual_seed(seed);
  const auto key = kernels::draw_dropout_key(std::nullopt);
  at::manual_seed(seed);
  return key;
}

}  // namespace

TEST_CASE("drop_features keeps what the Counter stream keeps, in every dtype and layout",
          "[feature_dropout]") {
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{1}, {7, 19}, {128}, {3, 129, 131}}) {
    const auto x = at::randn(sizes);
    const auto residual = at::randn(sizes);
    const auto mask = expected_mask(sizes, next_key(3));
    CHECK(at::equal(drop_features(x, kP, true), x * mask));
    (void)next_key(3);
    CHECK_WITHIN(add_dropped(residual, x, kP, true), residual + x * mask,
                 {1e-6, 1e-6});  // one rounding instead of two
    for (const auto type : {at::kDouble, at::kBFloat16}) {
      (void)next_key(3);
      CHECK(at::equal(drop_features(x.to(type), kP, true).ne(0), mask.ne(0)));
    }
    if (x.dim() == 2) {
      const auto turned = x.t().contiguous().t();
      (void)next_key(3);
      CHECK_WITHIN(add_dropped(residual, turned, kP, true), residual + x * mask,
                   {1e-6, 1e-6});  // one rounding instead of two
    }
  }
}

TEST_CASE("drop_features drops its share", "[feature_dropout]") {
  at::manual_seed(4);
  constexpr double count = 200'000;
  const auto survivors = drop_features(at::ones({200'000}), kP, true).ne(0).sum().item<double>();
  CHECK(std::abs(survivors / count - (1 - kP)) < 5 * std::sqrt(kP * (1 - kP) / count));
}

TEST_CASE("drop_features is the same for every number of threads", "[feature_dropout]") {
  const auto x = at::randn({300, 401});
  const auto threads = at::get_num_threads();
  std::vector<at::Tensor> results;
  for (const int count : {1, 2, 3}) {
    at::set_num_threads(count);
    at::manual_seed(5);
    results.push_back(drop_features(x, kP, true));
  }
  at::set_num_threads(threads);
  CHECK(at::equal(results[0], results[1]));
  CHECK(at::equal(results[0], results[2]));
}

TEST_CASE("drop_features's gradient passes where the number survived", "[feature_dropout]") {
  const auto x = at::randn({5, 77}).requires_grad_();
  const auto residual = at::randn({5, 77}).requires_grad_();
  const auto direction = at::randn({5, 77}).requires_grad_();
  const auto mask = expected_mask({5, 77}, next_key(6));
  const auto y = add_dropped(residual, x, kP, true);
  const auto first = torch::autograd::grad({y}, {x, residual}, {direction}, true, true);
  CHECK(at::equal(first[0].detach(), (direction * mask).detach()));
  CHECK(at::equal(first[1].detach(), direction.detach()));
  CHECK(at::equal(torch::autograd::grad({first[0].sum()}, {direction})[0], mask));
  (void)next_key(6);
  const auto alone = drop_features(x, kP, true);
  CHECK(at::equal(torch::autograd::grad({alone}, {x}, {direction.detach()})[0], (direction * mask).detach()));
}

TEST_CASE("drop_features 0 and evaluation draw nothing, 1 leaves nothing, Aten is PyTorch's",
          "[feature_dropout]") {
  const auto x = at::randn({4, 33});
  CHECK(at::equal(add_dropped(x, x, 0.0, true), x + x));
  CHECK(at::equal(add_dropped(x, x, kP, false), x + x));
  CHECK(at::equal(add_dropped(x, x, 1.0, true), x));
  const auto key = next_key(7);
  (void)drop_features(x, 0.0, true);
  (void)drop_features(x, kP, false);
  CHECK(kernels::draw_dropout_key(std::nullopt) == key);
  const DropoutStreamGuard guard(DropoutStream::Aten);
  at::manual_seed(8);
  const auto expected = x + at::dropout(x, kP, true);
  at::manual_seed(8);
  CHECK(at::equal(add_dropped(x, x, kP, true), expected));
}

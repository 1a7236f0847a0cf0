// The row kernels of the fused masked softmax, run block by block and thread by thread on the CPU, from the
// source that the GPU runs.

#include <functional>

#include <ATen/ops/_neg_view.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/attention.h>

#include "functional/problem_builder.h"
#include "kernels/emulated_block.h"
#include "kernels/emulated_softmax.h"
#include "kernels/native_cuda/backend.h"
#include "kernels/reference/backend.h"
#include "support/compare.h"
#include "support/extreme_cases.h"
#include "support/naive_attention.h"
#include "support/option_cases.h"
#include "support/saved_tensor_hooks.h"

using namespace attentive;
using namespace attentive::test;
namespace cuda = attentive::kernels::native_cuda;

namespace {

struct Outcome {
  AttentionResult result;
  std::vector<at::Tensor> gradients;
};

// Runs the call forward and backward; weights and logsumexp are among the outputs.
Outcome run(const OptionCall& call, bool emulated) {
  at::manual_seed(17);
  const auto problem = normalize("attention", call.q, call.k, call.v, call.options, call.extras).problem;
  Outcome outcome;
  const auto emulate = [](const kernels::Problem& one) {
    return kernels::Outcome{cuda::run_with(kEmulatedSoftmax, one), {}};
  };
  outcome.result = !emulated           ? kernels::reference::run(problem)
                   : problem.sequences ? kernels::run_by_sequence(problem, emulate).result
                                       : emulate(problem).result;
  std::vector<at::Tensor> leaves = {call.q, call.k, call.v};
  for (const auto& bias : call.extras.mask.bias_terms()) {
    if (bias.requires_grad()) leaves.push_back(bias);
  }
  if (call.extras.sinks.defined() && call.extras.sinks.requires_grad()) leaves.push_back(call.extras.sinks);
  std::vector<at::Tensor> outputs, directions;
  for (const auto& output : {outcome.result.output, outcome.result.weights, outcome.result.logsumexp}) {
    if (!output.defined() || !output.requires_grad()) continue;
    outputs.push_back(output.masked_fill(output.isinf(), 0.0));
    at::manual_seed(30 + static_cast<uint64_t>(outputs.size()));
    directions.push_back(at::randn(output.sizes(), at::kDouble).to(output.scalar_type()));
  }
  outcome.gradients = torch::autograd::grad(outputs, leaves, directions, false, false, true);
  return outcome;
}

void compare(const OptionCall& exact, at::ScalarType type) {
  const auto call = cast(exact, type);
  const auto got = run(call, true), want = run(cast(call, at::kDouble), false);
  CHECK(difference(got.result.output, want.result.output, tolerance_of(type)) == "");
  if (want.result.weights.defined()) {
    CHECK(difference(got.result.weights, want.result.weights, tolerance_of(type)) == "");
    CHECK(at::equal(got.result.weights.eq(0).logical_and(want.result.weights.gt(1e-6)).any(),
                    at::zeros({}, at::kBool)));
  }
  if (want.result.logsumexp.defined())
    CHECK(difference(got.result.logsumexp, want.result.logsumexp, tolerance_of(type)) == "");
  double largest = 0.0;
  for (const auto& gradient : want.gradients)
    largest = std::max(largest, gradient.abs().max().item<double>());
  const auto tolerance = tolerance_of(type, true);
  REQUIRE(got.gradients.size() == want.gradients.size());
  for (size_t n = 0; n < want.gradients.size(); ++n) {
    INFO("gradient " << n);
    CHECK(difference(got.gradients[n], want.gradients[n], {0.0, tolerance.atol + tolerance.rtol * largest}) ==
          "");
  }
}

OptionCall call_with_logsumexp(int64_t B, int64_t H, int64_t Hkv, int64_t L, int64_t S, int64_t D) {
  at::manual_seed(3);
  OptionCall call;
  call.q = at::randn({B, H, L, D}, at::kDouble);
  call.k = at::randn({B, Hkv, S, D}, at::kDouble);
  call.v = at::randn({B, Hkv, S, D}, at::kDouble);
  call.extras.logsumexp = true;
  return call;
}

// All options at once, for 2 batch items, 2 heads and 3 queries.
void add_everything(OptionCall& call) {
  const int64_t S = call.k.size(2);
  call.options.causal = Causal::BottomRight;
  call.options.softcap = 3.0;
  call.options.scale = 0.7;
  call.options.window = {200, -1};
  call.options.dropout_p = 0.3;
  call.options.dropout_stream = DropoutStream::Counter;
  call.extras.mask = Mask::keep(at::rand({3, S}).gt(0.2)) & Mask::key_keep(at::rand({2, S}).gt(0.2)) &
                     Mask::key_lengths(at::tensor({S, S / 2 + 1}));
  call.extras.alibi_slopes = alibi_slopes(2).to(at::kDouble);
  call.extras.sinks = at::randn({2}, at::kDouble).requires_grad_(true);
}

}  // namespace

TEST_CASE("masked softmax: every option equals the reference", "[masked_softmax]") {
  const auto type = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  const auto weights = GENERATE(Weights::None, Weights::Clean, Weights::Dropped);
  const auto& cases = option_cases();
  const auto n = GENERATE_COPY(range(size_t{0}, cases.size()));
  if (cases[n].group == "length" || cases[n].group == "kv" || cases[n].group == "weights" ||
      cases[n].name == "dropout, Aten stream" || cases[n].name == "ALiBi with gradient") {
    return;
  }
  INFO("option: " << cases[n].name << ", dtype " << c10::toString(type));
  auto call = call_with_logsumexp(2, 4, 2, 7, 9, 8);
  call.extras.weights = weights;
  cases[n].apply(call);
  compare(call, type);
}

TEST_CASE("masked softmax: awkward sizes, alone and with everything at once", "[masked_softmax]") {
  const int64_t S = GENERATE(1, 3, 31, 32, 33, 63, 64, 65, 300, 1025);
  const bool everything = GENERATE(false, true);
  auto call = call_with_logsumexp(2, 2, 1, 3, S, 4);
  if (everything) add_everything(call);
  compare(call, at::kFloat);
}

TEST_CASE("masked softmax: hooks of saved tensors change no gradient", "[masked_softmax][saved_tensors]") {
  for (const bool everything : {false, true}) {
    auto exact = call_with_logsumexp(2, 2, 1, 3, 33, 4);
    if (everything) add_everything(exact);
    const auto call = cast(exact, at::kFloat);
    const auto want = run(call, true).gradients;
    for (const auto& hook : kSavedTensorHooks) {
      INFO(hook.name << (everything ? ", everything at once" : ""));
      const SavedTensorHooksGuard hooked(hook);
      CHECK(distance({run(call, true).gradients}, {want}) <= 1e-5);
    }
  }
}

// Compares float32 with the definition in float64; the scores are exact.
TEST_CASE("masked softmax: weights and gradients keep their digits however large the scores are",
          "[masked_softmax][precision]") {
  const double base = GENERATE(1.0, 100.0, 10'000.0);
  const auto& variant = exact_variants()[GENERATE(range(size_t{0}, size_t{8}))];
  INFO(variant.name << ", scores of " << base);
  auto call = exact_scores(base, 5, 70);
  variant.apply(call);
  call.extras.weights = Weights::Clean;
  if (call.extras.sinks.defined()) call.extras.sinks = call.extras.sinks.requires_grad_(true);
  compare(call, at::kFloat);
}

TEST_CASE("masked softmax: numbers at the ends of float32", "[masked_softmax][extremes]") {
  for (const auto& extreme : extreme_cases(3)) {
    INFO(extreme.name);
    auto call = cast(extreme.call, at::kFloat);
    if (call.extras.sinks.defined()) call.extras.sinks = call.extras.sinks.detach().requires_grad_(true);
    call.extras.weights = Weights::Clean;
    const auto got = run(call, true), want = run(call, false);
    CHECK(difference_beside_nan(got.result.output, want.result.output, at::kFloat) == "");
    CHECK(difference_beside_nan(got.result.weights, want.result.weights, at::kFloat) == "");
    CHECK(difference_beside_nan(got.result.logsumexp, want.result.logsumexp, at::kFloat) == "");
    REQUIRE(got.gradients.size() == want.gradients.size());
    for (size_t n = 0; n < got.gradients.size(); ++n) {
      INFO("gradient " << n);
      CHECK(difference_beside_nan(got.gradients[n], want.gradients[n], at::kFloat, true) == "");
    }
  }
}

TEST_CASE("masked softmax: rows beyond what the threads keep are read again", "[masked_softmax]") {
  // 1024 threads keep 16,384 columns.
  auto call = call_with_logsumexp(1, 1, 1, 2, 16384 + 700, 4);
  call.options.dropout_p = GENERATE(0.0, 0.3);
  call.options.dropout_stream = DropoutStream::Counter;
  compare(call, at::kFloat);
}

TEST_CASE("masked softmax: hidden keys may hold NaN, and NaN in sight is seen", "[masked_softmax][nan]") {
  auto call = cast(call_with_logsumexp(1, 2, 2, 6, 8, 4), at::kFloat);
  call.extras.mask = at::arange(8).lt(5).unsqueeze(0).expand({6, 8});
  const auto clean = run(call, true);
  {
    const at::NoGradGuard no_grad;
    for (auto* x : {&call.k, &call.v}) x->slice(2, 5, 8).fill_(std::numeric_limits<double>::quiet_NaN());
  }
  const auto poisoned = run(call, true);
  CHECK(bit_equal(clean.result.output, poisoned.result.output));
  for (size_t n = 0; n < clean.gradients.size(); ++n)
    CHECK(bit_equal(clean.gradients[n], poisoned.gradients[n]));
  {
    const at::NoGradGuard no_grad;
    call.q.select(2, 1).fill_(std::numeric_limits<double>::quiet_NaN());
  }
  const auto seen = run(call, true).result.output.isnan();
  CHECK(seen.select(2, 1).all().item<bool>());
  CHECK_FALSE(seen.select(2, 0).any().item<bool>());
}

TEST_CASE("masked softmax: a mask changed before the backward pass raises or has no influence",
          "[masked_softmax][changed_mask]") {
  const bool inference = GENERATE(false, true);  // masks made under InferenceMode have no version
  const auto make = [&](const auto& draw) {
    const c10::InferenceMode mode(inference);
    return at::Tensor(draw());
  };
  const auto gradients = [](const OptionCall& call, const std::function<void()>& before_backward) {
    const auto leaves = cast(call, at::kFloat);
    auto problem = normalize("attention", leaves.q, leaves.k, leaves.v, leaves.options, call.extras).problem;
    const auto y = cuda::run_with(kEmulatedSoftmax, problem).output;
    problem = {};
    before_backward();
    return torch::autograd::grad({y.square().sum()}, {leaves.q, leaves.k, leaves.v});
  };
  auto call = call_with_logsumexp(2, 2, 1, 5, 9, 4);
  call.extras = {};
  at::Tensor given;
  bool watched = false;
  SECTION("keep") {
    given = make([] { return at::rand({5, 9}).gt(0.3); });
    call.extras.mask = given;
    watched = true;
  }
  SECTION("bias") {
    given = make([] { return at::randn({5, 9}); });
    call.extras.mask = Mask::bias(given);
    watched = true;
  }
  SECTION("key_keep") {
    given = make([] { return at::rand({2, 9}).gt(0.3); });
    call.extras.mask = Mask::key_keep(given);
  }
  SECTION("key_lengths") {
    given = make([] { return at::tensor({4, 9}, at::kLong); });
    call.extras.mask = Mask::key_lengths(given);
  }
  SECTION("slopes") {
    given = make([] { return at::rand({2}); });
    call.extras.alibi_slopes = given;
  }
  SECTION("sinks") {
    given = make([] { return at::randn({2}); });
    call.extras.sinks = given;
  }
  const auto change = [&] {
    const c10::InferenceMode mode(inference);
    given.scalar_type() == at::kBool ? given.logical_not_() : given.neg_();
  };
  const auto want = gradients(call, [] {});
  if (watched && !inference) {
    CHECK_THROWS_WITH(gradients(call, change),
                      Catch::Matchers::ContainsSubstring("modified by an inplace operation"));
  } else {
    const auto got = gradients(call, change);
    for (size_t n = 0; n < want.size(); ++n) CHECK(bit_equal(got[n], want[n]));
  }
}

TEST_CASE("masked softmax: a pending sign of an incoming gradient counts", "[masked_softmax][negative_bit]") {
  const auto call = cast(call_with_logsumexp(1, 2, 2, 5, 9, 4), at::kFloat);
  auto given = call.extras;
  given.weights = Weights::Clean;
  const auto gradients = [&](bool pending) {
    const auto problem = normalize("attention", call.q, call.k, call.v, call.options, given).problem;
    const auto result = cuda::run_with(kEmulatedSoftmax, problem);
    at::manual_seed(4);
    auto direction = at::randn({1, 2, 5, 9}), statistics = at::randn({1, 2, 5});
    if (pending) {
      direction = at::_neg_view(-direction);
      statistics = at::_neg_view(-statistics);
    }
    return torch::autograd::grad({result.weights, result.logsumexp}, {call.q, call.k},
                                 {direction, statistics});
  };
  const auto want = gradients(false), got = gradients(true);
  for (size_t n = 0; n < want.size(); ++n) CHECK(bit_equal(got[n], want[n]));
}

TEST_CASE("the emulated block finds races", "[masked_softmax][emulation]") {
  EmulatedBlock block(8);
  const auto neighbour = [&] {
    block.phase([&](int t) {
      block.write(t, t, 1.0f);
      if (t > 0) block.read(t, t - 1);
    });
  };
  CHECK_THROWS_WITH(neighbour(),
                    Catch::Matchers::ContainsSubstring("race on shared number 0 between threads 0 and 1"));
  const auto same = [&] { block.phase([&](int t) { block.write(t, 0, 1.0f); }); };
  CHECK_THROWS_WITH(same(), Catch::Matchers::ContainsSubstring("race on shared number 0"));
  const auto read_first = [&] {
    block.phase([&](int t) {
      if (t == 0) block.read(t, 5);
      if (t == 5) block.write(t, 5, 1.0f);
    });
  };
  CHECK_THROWS_WITH(read_first(), Catch::Matchers::ContainsSubstring("race on shared number 5"));
  block.phase([&](int t) { block.write(t, t, 1.0f); });
  CHECK_NOTHROW(block.phase([&](int t) { block.read(t, (t + 1) % 8); }));
}

// Tensors have no version under InferenceMode. Every backend must give, in every dtype, the bits that it
// gives without a graph, for tensors made inside and outside of the mode.

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include <attentive/functional/linear_attention.h>

#include "support/cells.h"

using namespace attentive;
using namespace attentive::test;

namespace {

struct Made {
  at::Tensor q, k, v;
  AttentionExtras extras;
};

constexpr std::array kKinds = {"plain", "grouped heads", "keep mask", "lengths",
                               "bias",  "logsumexp",     "weights",   "sinks"};

Made make(const Cell& cell, const std::string& kind, bool gradients) {
  at::manual_seed(3);
  const auto draw = [&](at::IntArrayRef sizes) {
    return at::randn(sizes, at::kDouble).to(cell.device, cell.type);
  };
  const int64_t heads = kind == "grouped heads" ? 2 : 4;
  Made made{draw({2, 4, 6, 8}), draw({2, heads, 9, 8}), draw({2, heads, 9, 8}), {}};
  auto& extras = made.extras;
  if (kind == "keep mask") extras.mask = at::rand({6, 9}).gt(0.4).to(cell.device);
  if (kind == "lengths") extras.mask = Mask::key_lengths(at::tensor({9, 4}, at::kLong));
  if (kind == "bias") extras.mask = Mask::bias(draw({6, 9}));
  if (kind == "logsumexp") extras.logsumexp = true;
  if (kind == "weights") extras.weights = Weights::Clean;
  if (kind == "sinks") extras.sinks = draw({4});
  if (gradients) {
    for (auto* x : {&made.q, &made.k, &made.v}) x->requires_grad_(true);
  }
  return made;
}

}  // namespace

TEST_CASE("attention under InferenceMode gives the bits of attention without a graph", "[inference_mode]") {
  const auto cell = GENERATE(from_range(cells()));
  for (const std::string kind : kKinds) {
    INFO(cell << ", " << kind);
    const auto outside = make(cell, kind, false), leaves = make(cell, kind, true);
    if (!cell.refusal(outside.q, outside.k, outside.v, {}, outside.extras).empty()) continue;
    const AttentionOptions options{.backend = cell.backend};
    const auto run = [&](const Made& made) {
      return attention(made.q, made.k, made.v, options, made.extras);
    };
    const auto want = run(outside);
    const c10::InferenceMode inference;
    for (const auto& made : {outside, leaves, make(cell, kind, false)}) {
      const auto got = run(made);
      CHECK(bit_equal(got.output, want.output));
      if (want.weights.defined()) CHECK(bit_equal(got.weights, want.weights));
      if (want.logsumexp.defined()) CHECK(bit_equal(got.logsumexp, want.logsumexp));
    }
  }
}

TEST_CASE("packed and linear attention under InferenceMode give the bits of a call without a graph",
          "[inference_mode]") {
  const auto cell = GENERATE(from_range(cells()));
  INFO(cell);
  const auto outside = make(cell, "plain", false);
  const auto ends = at::tensor({0, 5, 11}, at::kLong);
  const auto packed = [&](const Made& made) {
    const auto x = made.q.transpose(0, 1).flatten(1, 2).transpose(0, 1).slice(0, 0, 11);
    return attention_varlen(x, x, x, ends, ends, {.causal = Causal::BottomRight, .backend = cell.backend})
        .output;
  };
  const auto linear = [&](const Made& made) {
    LinearAttentionCall causal;
    causal.causal = Causal::BottomRight;
    return linear_attention(made.q, made.k, made.v, causal);
  };
  const bool taken = cell.refusal(outside.q, outside.q, outside.q).empty();
  at::Tensor want;
  if (taken) want = packed(outside);
  const auto want_linear = linear(outside);
  const c10::InferenceMode inference;
  for (const auto& made : {outside, make(cell, "plain", true), make(cell, "plain", false)}) {
    if (taken) CHECK(bit_equal(packed(made), want));
    CHECK(bit_equal(linear(made), want_linear));
  }
}

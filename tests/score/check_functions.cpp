#include <array>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/attention.h>

#include "score/drawn_scores.h"
#include "score/instruction_sets.h"
#include "support/compare.h"

namespace attentive::test {
namespace {

struct Shape {
  int64_t B, H, Hkv, L, S;
};

struct Results {
  at::Tensor output, inference;
  std::vector<at::Tensor> gradients, second;  // second: those of the sum of the squared gradients
};

Results run(DrawnFunctions (*make)(const DrawnTensors&), std::array<at::Tensor, 3> inputs,
            DrawnTensors tensors, const AttentionOptions& options, at::ScalarType type, bool twice) {
  std::vector<at::Tensor> leaves;
  const auto leaf = [&](at::Tensor& x) {
    x = x.to(type, false, /*copy=*/true).requires_grad_(true);
    leaves.push_back(x);
  };
  for (auto& x : inputs) leaf(x);
  for (auto* x : tensors.numbers()) leaf(*x);
  const auto functions = make(tensors);
  AttentionExtras extras;
  extras.score = functions.score;
  if (functions.mask) extras.block_mask = functions.mask;
  const auto attend = [&] { return attention(inputs[0], inputs[1], inputs[2], options, extras).output; };
  Results results;
  results.output = attend();
  {
    const at::NoGradGuard no_gradient;
    results.inference = attend();
  }
  at::manual_seed(29);
  const auto direction = at::randn(results.output.sizes(), at::kDouble).to(type);
  results.gradients = torch::autograd::grad({results.output}, leaves, {direction}, /*retain_graph=*/twice,
                                            /*create_graph=*/twice, /*allow_unused=*/true);
  at::Tensor squares = at::zeros({}, direction.options());
  for (size_t n = 0; n < leaves.size(); ++n) {
    if (!results.gradients[n].defined()) results.gradients[n] = at::zeros_like(leaves[n]);
    squares = squares + results.gradients[n].square().sum();
    results.gradients[n] = results.gradients[n].detach();
  }
  if (twice) {
    results.second = torch::autograd::grad({squares}, leaves, {}, /*retain_graph=*/false,
                                           /*create_graph=*/false, /*allow_unused=*/true);
  }
  results.output = results.output.detach();
  return results;
}

constexpr std::array kNames = {"q",     "k",         "v",       "number", "heads", "tokens",
                               "pairs", "distances", "by_head", "all",    "kinds"};

}  // namespace

void check_functions(DrawnFunctions (*make)(const DrawnTensors&), size_t number) {
  const auto [B, H, Hkv, L, S] = std::array<Shape, 3>{Shape{2, 4, 2, 37, 45}, Shape{1, 2, 2, 133, 150},
                                                      Shape{2, 3, 1, 3, 70}}[number % 3];
  AttentionOptions options;
  options.scale = 0.5;
  if (number % 4 == 1) options.causal = Causal::BottomRight;
  if (number % 5 == 2) options.window = {20, 3};
  at::manual_seed(static_cast<uint64_t>(number) + 1);
  // Scores are multiples of 1/32 of at most 2, exactly in float too.
  const auto eighths = [](at::IntArrayRef sizes) { return at::randint(-4, 5, sizes, at::kDouble) / 4; };
  const auto numbers = [](at::IntArrayRef sizes) {
    return (at::rand(sizes, at::kFloat) * 2 - 1).to(at::kDouble);
  };
  const std::array inputs = {eighths({B, H, L, 4}), eighths({B, Hkv, S, 4}), numbers({B, Hkv, S, 8})};
  const DrawnTensors tensors = {numbers({}),           numbers({H}),     numbers({S}),
                                numbers({S, S}),       numbers({2 * S}), numbers({H, S}),
                                numbers({B, H, S, S}), numbers({4}),     at::randint(0, 4, {S}, at::kLong)};
  INFO("function " << number << ": " << make(tensors).text);
  options.backend = Backend::Reference;
  const auto want = run(make, inputs, tensors, options, at::kDouble, /*twice=*/true);
  for (const auto& second : want.second) CHECK((!second.defined() || second.isfinite().all().item<bool>()));
  double largest = 0.0;
  for (const auto& gradient : want.gradients)
    largest = std::max(largest, gradient.abs().max().item<double>());
  const auto forward = tolerance_of(at::kFloat), backward = tolerance_of(at::kFloat, /*gradient=*/true);

  options.backend = Backend::Native;
  for_each_instruction_set([&](const std::string& limit) {
    INFO("instruction set " << limit);
    const auto got = run(make, inputs, tensors, options, at::kFloat, /*twice=*/false);
    CHECK(difference(got.output, want.output, forward) == "");
    CHECK(difference(got.inference, want.output, forward) == "");
    for (size_t n = 0; n < want.gradients.size(); ++n) {
      INFO("gradient of " << kNames[n]);
      CHECK(difference(got.gradients[n], want.gradients[n], {0.0, backward.atol + backward.rtol * largest}) ==
            "");
    }
  });
}

}  // namespace attentive::test

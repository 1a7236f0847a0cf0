// Second derivatives: the reference has them, and every other backend says by name that it has none.

#include <string>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <torch/csrc/autograd/autograd.h>

#include "support/cells.h"
#include "support/errors.h"
#include "support/gradcheck.h"

using namespace attentive;
using namespace attentive::test;

TEST_CASE("gradients of the reference are differentiated again", "[second_derivatives]") {
  const auto causal = GENERATE(Causal::None, Causal::BottomRight, Causal::TopLeft);
  const bool decorated = GENERATE(false, true);
  at::manual_seed(6);
  const auto draw = [](at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble); };
  std::vector<at::Tensor> inputs = {draw({1, 2, 3, 3}), draw({1, 1, 4, 3}), draw({1, 1, 4, 2})};
  if (decorated) {
    inputs.push_back(draw({1, 2, 3, 4}));
    inputs.push_back(draw({2}));
  }
  AttentionOptions options{.causal = causal, .backend = Backend::Reference};
  if (decorated) options.softcap = 2.0;
  const auto first = [&](const std::vector<at::Tensor>& x) {
    const at::AutoGradMode graph(true);
    AttentionExtras extras;
    extras.logsumexp = true;
    if (decorated) {
      extras.mask = Mask::bias(x[3]);
      extras.sinks = x[4];
    }
    const auto result = attention(x[0], x[1], x[2], options, extras);
    const auto loss = result.output.square().sum() + result.logsumexp.sin().sum();
    std::vector<at::Tensor> flat;
    for (const auto& gradient :
         torch::autograd::grad({loss}, x, {}, /*retain_graph=*/true, /*create_graph=*/true))
      flat.push_back(gradient.flatten());
    return at::cat(flat).pow(2);
  };
  CHECK(gradcheck(first, inputs) == "");
}

TEST_CASE("a second derivative of any other backend ends in an error that names it and the remedy",
          "[second_derivatives][errors]") {
  const auto cell = GENERATE(from_range(cells()));
  const int64_t L = GENERATE(1, 20);
  const std::string kind = GENERATE("plain", "grouped heads", "lengths", "bias");
  INFO(cell << ", L " << L << ", " << kind);
  at::manual_seed(6);
  const auto draw = [&](at::IntArrayRef sizes) {
    return at::randn(sizes, at::kDouble).to(cell.device, cell.type).requires_grad_(true);
  };
  const int64_t heads = kind == "grouped heads" ? 1 : 2;
  const auto q = draw({1, 2, L, 4}), k = draw({1, heads, 20, 4}), v = draw({1, heads, 20, 4});
  AttentionExtras extras;
  if (kind == "lengths") extras.mask = Mask::key_lengths(at::tensor({11}, at::kLong));
  if (kind == "bias") extras.mask = Mask::bias(draw({L, 20}).detach());
  if (!cell.refusal(q, k, v, {}, extras).empty()) return;
  const AttentionOptions options{.backend = cell.backend};
  const auto chosen = explain(q, k, v, options, extras).chosen;
  const auto y = attention(q, k, v, options, extras).output;
  // Gradients that nobody differentiates again are given.
  CHECK(torch::autograd::grad({y.sum()}, {q, k, v}, {}, /*retain_graph=*/true)[0].defined());
  const auto twice = [&] {
    const auto first =
        torch::autograd::grad({y.sum()}, {q, k, v}, {}, /*retain_graph=*/true, /*create_graph=*/true);
    return torch::autograd::grad({first[0].square().sum()}, {q})[0];
  };
  if (chosen == Backend::Reference) {
    CHECK(twice().isfinite().all().item<bool>());
    return;
  }
  const auto text = error_of<c10::Error>([&] { twice(); });
  INFO(text);
  CHECK(
      text.starts_with("attention: backend " + std::string(to_string(chosen)) + " has no second derivative"));
  CHECK(text.find("Backend::Reference") != std::string::npos);
}

// Second derivatives: the reference has them, and every other backend throws an error that names it.

#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <torch/csrc/autograd/autograd.h>

#include "kernels/native_backward.h"
#include "support/cells.h"
#include "support/errors.h"
#include "support/gradcheck.h"

using namespace attentive;
using namespace attentive::test;
using torch::autograd::grad;

namespace {

std::string refusal(Backend backend) {
  return "attention: backend " + std::string(to_string(backend)) +
         " has no second derivative; differentiate twice through Backend::Reference";
}

std::string error_in(const std::function<void()>& call) {
  return error_of<c10::NotImplementedError>(call);
}

}  // namespace

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
    for (const auto& gradient : grad({loss}, x, {}, /*retain_graph=*/true, /*create_graph=*/true))
      flat.push_back(gradient.flatten());
    return at::cat(flat).pow(2);
  };
  CHECK(gradcheck(first, inputs) == "");
}

TEST_CASE("a second derivative of any other backend ends in an error that names it and the remedy",
          "[second_derivatives][errors]") {
  const auto cell = GENERATE(from_range(cells()));
  const int64_t L = GENERATE(1, 20);
  const std::string kind = GENERATE("plain", "grouped heads", "lengths", "bias", "packed");
  INFO(cell << ", L " << L << ", " << kind);
  at::manual_seed(6);
  const auto draw = [&](at::IntArrayRef sizes) {
    return at::randn(sizes, at::kDouble).to(cell.device, cell.type).requires_grad_(true);
  };
  const int64_t heads = kind == "grouped heads" ? 1 : 2;
  const auto q = draw({1, 2, L, 4}), k = draw({1, heads, L + 3, 4}), v = draw({1, heads, L + 3, 4});
  AttentionExtras extras;
  if (kind == "lengths") extras.mask = Mask::key_lengths(at::tensor({L - 1}, at::kLong).to(cell.device));
  if (kind == "bias") extras.mask = Mask::bias(draw({L, L + 3}).detach());
  if (!cell.refusal(q, k, v, {}, extras).empty()) return;
  const AttentionOptions options{.backend = cell.backend};
  const auto chosen = explain(q, k, v, options, extras).chosen;
  const auto loss = [&] {
    if (kind != "packed") return attention(q, k, v, options, extras).output.square().sum();
    const auto rows = [](const at::Tensor& x) { return x.squeeze(0).transpose(0, 1); };
    const auto ends = [&](int64_t length) {
      return at::tensor({int64_t{0}, length}, at::kLong).to(cell.device);
    };
    return attention_varlen(rows(q), rows(k), rows(v), ends(L), ends(L + 3), options).output.square().sum();
  };
  const std::vector<at::Tensor> leaves = {q, k, v};
  // The first derivative and its graph are available.
  const auto first = grad({loss()}, leaves, {}, true, /*create_graph=*/true), plain = grad({loss()}, leaves);
  for (size_t n = 0; n < leaves.size(); ++n) {
    CHECK(bit_equal(first[n], plain[n]));
    REQUIRE(first[n].requires_grad());
    for (const auto& x : leaves) {
      const auto twice = [&] {
        return grad({first[n].square().sum()}, {x}, {}, /*retain_graph=*/true, false, /*allow_unused=*/true);
      };
      if (chosen == Backend::Reference) {
        CHECK_NOTHROW(twice());
      } else {
        CHECK(error_in(twice) == refusal(chosen));
      }
    }
  }
  // A gradient that is not differentiated again can be used normally.
  CHECK(first[0].detach().sum().isfinite().item<bool>());
}

TEST_CASE("gradients of sinks and of the logsumexp have no second derivative",
          "[second_derivatives][errors]") {
  at::manual_seed(3);
  const auto q = at::randn({1, 2, 6, 8}), k = at::randn({1, 2, 6, 8});
  const auto given = at::randn({2}).requires_grad_(true);
  const auto sinks = given * 2;
  const auto result = attention(q, k, k, {.backend = Backend::Native}, {.sinks = sinks, .logsumexp = true});
  const auto loss = GENERATE(0, 1) == 0 ? result.logsumexp.sum() : result.output.square().sum();
  const auto first = grad({loss}, {given}, {}, true, /*create_graph=*/true)[0];
  CHECK(error_in([&] { grad({first.sum()}, {given}); }) == refusal(Backend::Native));
}

TEST_CASE("a kernel with a graph of its own is differentiated once", "[second_derivatives][errors]") {
  const auto x = at::randn({3}, at::kDouble).requires_grad_(true);
  const auto y = kernels::differentiable_once(Backend::Torch, x).pow(3).sum();
  CHECK(bit_equal(grad({y}, {x}, {}, /*retain_graph=*/true)[0], 3 * x.detach().square()));
  const auto first = grad({y}, {x}, {}, true, /*create_graph=*/true)[0];
  CHECK(bit_equal(first, 3 * x.detach().square()));
  CHECK(error_in([&] { grad({first.sum()}, {x}); }) == refusal(Backend::Torch));
}

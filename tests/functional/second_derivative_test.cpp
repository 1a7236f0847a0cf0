// A second derivative of a fused backend ends in one error; the first one, and its graph, do not.

#include <array>
#include <string>
#include <vector>

#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/explain.h>

#include "kernels/native_backward.h"
#include "support/compare.h"
#include "support/errors.h"

using namespace attentive;
using namespace attentive::test;
using torch::autograd::grad;

namespace {

constexpr std::array kBackends = {Backend::Auto, Backend::Torch, Backend::Native, Backend::Reference};

std::string refusal(Backend backend) {
  return "attention: backend " + std::string(to_string(backend)) +
         " has no second derivative; differentiate twice through Backend::Reference";
}

std::string error_in(const std::function<void()>& call) {
  return error_of<c10::NotImplementedError>(call);
}

}  // namespace

TEST_CASE("a second derivative names the backend that has none", "[second_derivative][errors]") {
  const auto backend = GENERATE(from_range(kBackends));
  const auto type = GENERATE(at::kDouble, at::kFloat, at::kBFloat16, at::kHalf);
  const bool packed = GENERATE(false, true);
  at::manual_seed(3);
  const auto leaf = [&](at::IntArrayRef sizes) {
    return at::randn(sizes, at::kDouble).to(type).requires_grad_(true);
  };
  const auto q = leaf({6, 4, 8}), k = leaf({6, 2, 8}), v = leaf({6, 2, 8});
  const AttentionOptions options{.causal = Causal::BottomRight, .backend = backend};
  const auto explained = [&] {
    const auto heads = [](const at::Tensor& x) { return x.transpose(0, 1).unsqueeze(0); };
    return explain(heads(q), heads(k), heads(v), {.causal = Causal::BottomRight});
  }();
  for (const auto& candidate : explained.candidates) {
    if (candidate.backend == backend && !candidate.available) return;
  }
  const auto chosen = backend == Backend::Auto ? explained.chosen : backend;
  const auto loss = [&] {
    const auto ends = at::tensor({0, 2, 6}, at::kLong);
    const auto y = packed ? attention_varlen(q, k, v, ends, ends, options).output
                          : attention(q.transpose(0, 1).unsqueeze(0), k.transpose(0, 1).unsqueeze(0),
                                      v.transpose(0, 1).unsqueeze(0), options);
    return y.square().sum();
  };
  INFO("backend " << to_string(backend) << ", dtype " << c10::toString(type) << (packed ? ", packed" : ""));
  const std::vector<at::Tensor> leaves = {q, k, v};
  const auto first = grad({loss()}, leaves, {}, true, /*create_graph=*/true);
  const auto plain = grad({loss()}, leaves);
  for (size_t n = 0; n < leaves.size(); ++n) {
    CHECK(bit_equal(first[n], plain[n]));
    REQUIRE(first[n].requires_grad());
    for (const auto& x : leaves) {
      const auto twice = [&] { grad({first[n].square().sum()}, {x}, {}, /*retain_graph=*/true); };
      if (chosen == Backend::Reference) {
        CHECK_NOTHROW(twice());
      } else {
        CHECK(error_in(twice) == refusal(chosen));
      }
    }
  }
  // A gradient is a number like any other where nobody asks how it changes.
  CHECK(first[0].detach().sum().isfinite().item<bool>());
}

TEST_CASE("gradients of sinks and of the logsumexp have no second derivative",
          "[second_derivative][errors]") {
  at::manual_seed(3);
  const auto q = at::randn({1, 2, 6, 8}), k = at::randn({1, 2, 6, 8});
  const auto given = at::randn({2}).requires_grad_(true);
  const auto sinks = given * 2;
  const auto result = attention(q, k, k, {.backend = Backend::Native}, {.sinks = sinks, .logsumexp = true});
  const auto loss = GENERATE(0, 1) == 0 ? result.logsumexp.sum() : result.output.square().sum();
  const auto first = grad({loss}, {given}, {}, true, /*create_graph=*/true)[0];
  CHECK(error_in([&] { grad({first.sum()}, {given}); }) == refusal(Backend::Native));
}

TEST_CASE("a kernel with a graph of its own is differentiated once", "[second_derivative][errors]") {
  const auto x = at::randn({3}, at::kDouble).requires_grad_(true);
  const auto y = kernels::differentiable_once(Backend::Torch, x).pow(3).sum();
  CHECK(bit_equal(grad({y}, {x}, {}, /*retain_graph=*/true)[0], 3 * x.detach().square()));
  const auto first = grad({y}, {x}, {}, true, /*create_graph=*/true)[0];
  CHECK(bit_equal(first, 3 * x.detach().square()));
  CHECK(error_in([&] { grad({first.sum()}, {x}); }) == refusal(Backend::Torch));
}

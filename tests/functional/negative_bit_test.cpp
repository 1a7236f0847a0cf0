// A view may have a pending change of sign, such as the imaginary part of a conjugate. Code that reads memory
// must apply it.

#include <array>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/explain.h>
#include <attentive/functional/linear_attention.h>
#include <attentive/models/generate.h>

#include "functional/elementwise.h"
#include "functional/linear.h"
#include "support/cells.h"
#include "support/compare.h"

using namespace attentive;
using namespace attentive::test;

namespace {

// Returns x as the pending negation of another tensor.
at::Tensor pending(const at::Tensor& x) {
  const auto result = at::_neg_view(-x);
  REQUIRE(result.is_neg());
  return result;
}

struct NegatedCall {
  at::Tensor q, k, v, bias, slopes, sinks;
  std::array<at::Tensor*, 6> tensors() { return {&q, &k, &v, &bias, &slopes, &sinks}; }

  AttentionExtras extras() const {
    AttentionExtras result;
    if (bias.defined()) result.mask = Mask::bias(bias);
    result.alibi_slopes = slopes;
    result.sinks = sinks;
    return result;
  }
  // Returns the output and the gradients of q, k and v, along a direction that may have a pending sign as
  // well.
  std::vector<at::Tensor> run(Backend backend, bool pending_direction) const {
    std::vector<at::Tensor> leaves;
    for (const auto& x : {q, k, v}) leaves.push_back(x.detach().requires_grad_(true));
    const auto y = attention(leaves[0], leaves[1], leaves[2], {.backend = backend}, extras()).output;
    at::manual_seed(8);
    const auto direction = at::randn(y.sizes());
    auto results = torch::autograd::grad({y}, leaves, {pending_direction ? pending(direction) : direction});
    results.push_back(y.detach());
    return results;
  }
};

}  // namespace

TEST_CASE("a pending sign counts in every tensor of attention and in the incoming gradient",
          "[negative_bit]") {
  const auto backend = GENERATE(from_range(kAllBackends));
  const int64_t dim = GENERATE(1, 8);
  const int64_t queries = GENERATE(2, 20);
  const bool decorated = GENERATE(false, true);
  at::manual_seed(2);
  NegatedCall call{
      at::randn({2, 4, queries, dim}), at::randn({2, 2, 20, dim}), at::randn({2, 2, 20, dim}), {}, {}, {}};
  if (decorated) {
    call.bias = at::randn({queries, 20});
    call.slopes = at::rand({4});
    call.sinks = at::randn({4});
  }
  bool taken = backend == Backend::Auto;
  for (const auto& candidate : explain(call.q, call.k, call.v, {}, call.extras()).candidates)
    taken = taken || (candidate.backend == backend && candidate.available);
  if (!taken) return;
  const auto want = call.run(backend, false);
  const auto check = [&](const std::vector<at::Tensor>& got) {
    for (size_t n = 0; n < want.size(); ++n) CHECK_WITHIN(got[n], want[n], {1e-5, 2e-6});
  };
  check(call.run(backend, true));
  const auto tensors = call.tensors();
  for (size_t n = 0; n < tensors.size(); ++n) {
    if (!tensors[n]->defined()) continue;
    INFO("tensor " << n << ", backend " << to_string(backend) << ", head_dim " << dim);
    const auto given = *tensors[n];
    *tensors[n] = pending(given);
    check(call.run(backend, false));
    *tensors[n] = given;
  }
}

TEST_CASE("a pending sign counts in lengths", "[negative_bit]") {
  const auto backend = GENERATE(from_range(kAllBackends));
  at::manual_seed(2);
  const auto x = at::randn({2, 1, 20, 8});
  const auto lengths = at::full({2}, 13, at::kLong);
  const auto run = [&](const at::Tensor& t) {
    return attention(x, x, x, {.backend = backend}, Mask::key_lengths(t));
  };
  if (backend == Backend::Native && explain(x, x, x).chosen != Backend::Native) SKIP("no tile product");
  CHECK(bit_equal(run(pending(lengths)), run(lengths)));
}

TEST_CASE("a pending sign counts wherever memory is read", "[negative_bit]") {
  const auto x = at::randn({3, 128}), direction = at::randn({3, 128});
  const auto check = [&](const auto& f) {
    const auto run = [&](const at::Tensor& input, const at::Tensor& gradient) {
      const auto leaf = input.detach().requires_grad_(true);
      at::manual_seed(3);
      const auto y = f(leaf);
      return std::vector<at::Tensor>{y.detach(), torch::autograd::grad({y}, {leaf}, {gradient})[0]};
    };
    const auto want = run(x, direction);
    for (const auto& got : {run(pending(x), direction), run(x, pending(direction))}) {
      for (size_t n = 0; n < want.size(); ++n) CHECK_WITHIN(got[n], want[n], {1e-6, 1e-6});
    }
  };
  check(gelu_tanh);
  check([](const at::Tensor& t) { return drop_features(t, 0.4, true); });
  check([&](const at::Tensor& t) { return add_dropped(x, t, 0.4, true); });
  check([&](const at::Tensor& t) { return add_dropped(t, x, 0.4, true); });
  check([&](const at::Tensor& t) {
    const auto heads = t.view({3, 1, 16, 8});
    LinearAttentionCall causal;
    causal.causal = Causal::BottomRight;
    causal.chunk_size = 5;
    return linear_attention(heads, heads, heads, causal).reshape({3, 128});
  });

  const at::NoGradGuard no_grad;
  const auto weight = at::randn({4, 128}), bias = at::randn({4});
  const auto want = linear(x, weight, bias);
  CHECK_CLOSE(linear(pending(x), weight, bias), want);
  CHECK_CLOSE(linear(x, pending(weight), bias), want);
  CHECK_CLOSE(linear(x, weight, pending(bias)), want);
  const auto logits = at::randn({9}, at::kDouble);
  CHECK(sample_token(pending(logits), {.temperature = 0}, {}) == logits.argmax().item<int64_t>());
}

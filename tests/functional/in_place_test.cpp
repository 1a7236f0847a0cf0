// Tests `y += x` on a result that autograd tracks.

#include <vector>

#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/explain.h>

#include "support/cells.h"
#include "support/compare.h"

using namespace attentive;
using namespace attentive::test;

TEST_CASE("a result takes a change in place and the gradient is right", "[in_place]") {
  const auto backend = GENERATE(from_range(kAllBackends));
  const auto type = GENERATE(at::kFloat, at::kDouble, at::kBFloat16, at::kHalf);
  const auto sizes = GENERATE(std::vector<int64_t>{9, 8}, std::vector<int64_t>{2, 33, 8},
                              std::vector<int64_t>{2, 4, 33, 8}, std::vector<int64_t>{2, 3, 4, 3, 8});
  const bool causal = GENERATE(false, true);
  AttentionOptions options{.causal = causal ? Causal::BottomRight : Causal::None, .backend = backend};
  at::manual_seed(4);
  const auto x = at::randn(sizes, at::kDouble).to(type).requires_grad_(true);
  auto asked = options;
  asked.backend = Backend::Auto;
  if (!takes(backend, x, x, x, asked)) return;
  INFO("backend " << to_string(backend) << ", dtype " << c10::toString(type) << ", rank " << sizes.size());
  // The second backward pass over the same graph sees the same change.
  const auto gradients = [&](const at::Tensor& y) {
    const auto loss = y.square().sum();
    const auto first = torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true)[0];
    CHECK(bit_equal(torch::autograd::grad({loss}, {x})[0], first));
    return first;
  };
  const auto plain = attention(x, x, x, options);
  const auto want = gradients(plain + x);
  auto y = attention(x, x, x, options);
  const auto before = y.detach().clone();
  CHECK(bit_equal(before, plain));
  y += x;
  CHECK(bit_equal(y, before + x));
  CHECK(bit_equal(gradients(y), want));

  const auto half = gradients(attention(x, x, x, options) * at::tensor({1.0, 0.0}).to(type).repeat({4}));
  auto part = attention(x, x, x, options);
  part.slice(-1, 1, 8, 2).zero_();
  CHECK(bit_equal(gradients(part), half));
}

TEST_CASE("dropout, grouped heads and masks live through a change in place", "[in_place]") {
  const auto backend = GENERATE(from_range(kAllBackends));
  INFO("backend " << to_string(backend));
  at::manual_seed(4);
  const auto q = at::randn({2, 4, 70, 8}).requires_grad_(true);
  const auto k = at::randn({2, 2, 70, 8}).requires_grad_(true),
             v = at::randn({2, 2, 70, 8}).requires_grad_(true);
  AttentionOptions options{.causal = Causal::BottomRight, .backend = backend};
  AttentionExtras extras;
  extras.mask = Mask::key_lengths(at::tensor({70, 30}, at::kLong));
  if (backend != Backend::Torch) {
    options.dropout_p = 0.3;
    options.dropout_stream = DropoutStream::Counter;
    extras.logsumexp = true;
  }
  if (backend == Backend::Native && explain(q, k, v, {}, extras).chosen != Backend::Native)
    SKIP("no tile product");
  const auto gradients = [&](bool in_place) {
    at::manual_seed(9);
    auto result = attention(q, k, v, options, extras);
    auto &y = result.output, &statistics = result.logsumexp;
    if (in_place) {
      y *= q.detach();
    } else {
      y = y * q.detach();
    }
    auto loss = y.square().sum();
    // Only reading the reference's logsumexp is defined, since autograd may have saved it.
    if (statistics.defined()) {
      if (in_place && backend != Backend::Reference) {
        statistics *= 2;
      } else {
        statistics = statistics * 2;
      }
      loss = loss + statistics.sum();
    }
    return torch::autograd::grad({loss}, {q, k, v});
  };
  const auto want = gradients(false), got = gradients(true);
  for (size_t n = 0; n < want.size(); ++n) CHECK(bit_equal(got[n], want[n]));
}

TEST_CASE("a packed result takes a change in place", "[in_place]") {
  const auto ends = at::tensor({0, 5, 11}, at::kLong);
  const auto gradient = [&](bool in_place) {
    at::manual_seed(3);
    const auto q = at::randn({11, 4, 8}).requires_grad_(true);
    auto y = attention_varlen(q, q, q, ends, ends).output;
    if (in_place) {
      y += q;
    } else {
      y = y + q;
    }
    return torch::autograd::grad({y.square().sum()}, {q})[0];
  };
  CHECK(bit_equal(gradient(true), gradient(false)));
}

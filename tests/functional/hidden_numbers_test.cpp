// Numbers behind a mask that are finite, but so large that a product with them overflows: memory that nobody
// has written yet may hold them.

#include <array>
#include <limits>
#include <string>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/explain.h>

#include "support/compare.h"

using namespace attentive;
using namespace attentive::test;

namespace {

constexpr std::array kBackends = {Backend::Reference, Backend::Torch, Backend::Native, Backend::Auto};
constexpr std::array kTypes = {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf};

double largest(at::ScalarType type) {
  return type == at::kDouble ? 1.7e308 : type == at::kHalf ? 65504.0 : 3e38;
}

struct Call {
  at::Tensor q, k, v;
  Mask mask;
  AttentionOptions options;

  AttentionExtras extras() const {
    AttentionExtras result;
    result.mask = mask;
    return result;
  }
  bool taken() const {
    auto asked = options;
    asked.backend = Backend::Auto;
    for (const auto& candidate : explain(q, k, v, asked, extras()).candidates) {
      if (candidate.backend == options.backend) return candidate.available;
    }
    return options.backend == Backend::Auto;
  }
  at::Tensor output() const { return attention(q, k, v, options, mask); }
  std::vector<at::Tensor> with_gradients() const {
    std::vector<at::Tensor> leaves;
    for (const auto& x : {q, k, v}) leaves.push_back(x.detach().clone().requires_grad_(true));
    const auto y = attention(leaves[0], leaves[1], leaves[2], options, mask);
    auto results = torch::autograd::grad({y}, leaves, {at::ones_like(y)});
    results.push_back(y.detach());
    return results;
  }
};

Call random_call(at::ScalarType type, Backend backend, int64_t queries) {
  at::manual_seed(0);
  Call call;
  call.q = (at::randn({2, 2, queries, 8}, at::kDouble) * 3).to(type);
  call.k = at::randn({2, 2, 38, 8}, at::kDouble).to(type);
  call.v = at::randn({2, 2, 38, 8}, at::kDouble).to(type);
  call.options.backend = backend;
  return call;
}

}  // namespace

TEST_CASE("huge numbers in keys and values that nobody sees reach nothing", "[hidden_numbers]") {
  const auto backend = GENERATE(from_range(kBackends));
  const auto type = GENERATE(from_range(kTypes));
  const int64_t queries = GENERATE(3, 36);
  const double sign = GENERATE(1.0, -1.0);
  const bool by_position = GENERATE(false, true);
  auto call = random_call(type, backend, queries);
  if (by_position) {
    call.options.causal = Causal::TopLeft;  // the keys beyond the last query
  } else {
    call.mask = Mask::key_lengths(at::tensor({36, 36}, at::kLong));
  }
  if (!call.taken()) return;
  const auto want = call.output();
  const auto gradients = call.with_gradients();
  for (const bool keys : {true, false}) {
    INFO("backend " << to_string(backend) << ", dtype " << c10::toString(type) << ", queries " << queries
                    << (keys ? ", in the keys" : ", in the values"));
    auto huge = call;
    auto& x = keys ? huge.k : huge.v;
    x = x.clone();
    x.slice(2, 36).fill_(sign * largest(type));
    if (huge.taken()) CHECK_WITHIN(huge.output(), want, {4e-3, 1e-6});
    // A backend may take the forward pass alone.
    for (auto* leaf : {&huge.q, &huge.k, &huge.v}) *leaf = leaf->detach().requires_grad_(true);
    if (!huge.taken()) continue;
    const auto got = huge.with_gradients();
    for (size_t n = 0; n < got.size(); ++n) CHECK_WITHIN(got[n], gradients[n], {4e-3, 1e-6});
  }
}

TEST_CASE("a huge key that one query sees reaches no other query", "[hidden_numbers]") {
  const auto backend = GENERATE(from_range(kBackends));
  const auto type = GENERATE(from_range(kTypes));
  const int64_t queries = GENERATE(3, 38);
  auto call = random_call(type, backend, queries);
  auto keep = at::ones({queries, 38}, at::kBool);
  keep.slice(0, 0, queries - 1).select(1, 37).fill_(false);
  call.mask = keep;
  if (!call.taken()) return;
  INFO("backend " << to_string(backend) << ", dtype " << c10::toString(type) << ", queries " << queries);
  const auto want = call.output();
  call.k.select(2, 37).fill_(largest(type));
  if (!call.taken()) return;
  CHECK_WITHIN(call.output().slice(2, 0, queries - 1), want.slice(2, 0, queries - 1), {4e-3, 1e-6});
}

TEST_CASE("a softcap leaves no gradient to hidden scores that are not numbers", "[hidden_numbers]") {
  const auto type = GENERATE(at::kDouble, at::kFloat);
  at::manual_seed(3);
  Call call;
  call.q = at::randn({1, 1, 2, 7}, at::kDouble).to(type);
  call.k = at::randn({1, 1, 5, 7}, at::kDouble).to(type);
  call.v = at::randn({1, 1, 5, 7}, at::kDouble).to(type);
  call.options = {.causal = Causal::TopLeft, .softcap = 30.0, .backend = Backend::Reference};
  call.q[0][0][1][3] =
      std::numeric_limits<double>::infinity();  // by the zero of a key that no query sees: NaN
  CHECK(at::isfinite(call.with_gradients()[0]).all().item<bool>());
}

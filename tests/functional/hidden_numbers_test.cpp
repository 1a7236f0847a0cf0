// Tests of hidden numbers: finite ones so large that a product with them overflows, as uninitialised memory
// may hold, and values of NaN or Inf in a call with a query without keys.

#include <limits>
#include <string>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/explain.h>

#include "support/cells.h"
#include "support/compare.h"

using namespace attentive;
using namespace attentive::test;

namespace {

double largest_finite(at::ScalarType type) {
  return type == at::kDouble ? 1.7e308 : type == at::kHalf ? 65504.0 : 3e38;
}

struct MaskedCall {
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

MaskedCall random_masked_call(at::ScalarType type, Backend backend, int64_t queries) {
  at::manual_seed(0);
  MaskedCall call;
  call.q = (at::randn({2, 2, queries, 8}, at::kDouble) * 3).to(type);
  call.k = at::randn({2, 2, 38, 8}, at::kDouble).to(type);
  call.v = at::randn({2, 2, 38, 8}, at::kDouble).to(type);
  call.options.backend = backend;
  return call;
}

}  // namespace

TEST_CASE("huge numbers in keys and values that nobody sees reach nothing", "[hidden_numbers]") {
  const auto backend = GENERATE(from_range(kAllBackends));
  const auto type = GENERATE(from_range(kAllTypes));
  const int64_t queries = GENERATE(3, 36);
  const double sign = GENERATE(1.0, -1.0);
  const bool by_position = GENERATE(false, true);
  auto call = random_masked_call(type, backend, queries);
  if (by_position) {
    call.options.causal = Causal::TopLeft;  // hides the keys beyond the last query
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
    x.slice(2, 36).fill_(sign * largest_finite(type));
    if (huge.taken()) CHECK_WITHIN(huge.output(), want, {4e-3, 1e-6});
    // A backend may accept the forward pass but not gradients.
    for (auto* leaf : {&huge.q, &huge.k, &huge.v}) *leaf = leaf->detach().requires_grad_(true);
    if (!huge.taken()) continue;
    const auto got = huge.with_gradients();
    for (size_t n = 0; n < got.size(); ++n) CHECK_WITHIN(got[n], gradients[n], {4e-3, 1e-6});
  }
}

TEST_CASE("a huge key that one query sees reaches no other query", "[hidden_numbers]") {
  const auto backend = GENERATE(from_range(kAllBackends));
  const auto type = GENERATE(from_range(kAllTypes));
  const int64_t queries = GENERATE(3, 38);
  auto call = random_masked_call(type, backend, queries);
  auto keep = at::ones({queries, 38}, at::kBool);
  keep.slice(0, 0, queries - 1).select(1, 37).fill_(false);
  call.mask = keep;
  if (!call.taken()) return;
  INFO("backend " << to_string(backend) << ", dtype " << c10::toString(type) << ", queries " << queries);
  const auto want = call.output();
  call.k.select(2, 37).fill_(largest_finite(type));
  if (!call.taken()) return;
  CHECK_WITHIN(call.output().slice(2, 0, queries - 1), want.slice(2, 0, queries - 1), {4e-3, 1e-6});
}

TEST_CASE("a softcap leaves no gradient to hidden scores that are not numbers", "[hidden_numbers]") {
  const auto type = GENERATE(at::kDouble, at::kFloat);
  at::manual_seed(3);
  MaskedCall call;
  call.q = at::randn({1, 1, 2, 7}, at::kDouble).to(type);
  call.k = at::randn({1, 1, 5, 7}, at::kDouble).to(type);
  call.v = at::randn({1, 1, 5, 7}, at::kDouble).to(type);
  call.options = {.causal = Causal::TopLeft, .softcap = 30.0, .backend = Backend::Reference};
  call.q[0][0][1][3] =
      std::numeric_limits<double>::infinity();  // times the zero that replaces an unseen key: NaN
  CHECK(at::isfinite(call.with_gradients()[0]).all().item<bool>());
}

TEST_CASE("a query without keys is zero beside values that are not finite", "[hidden_numbers]") {
  const auto cell = GENERATE(from_range(cells()));
  const int64_t L = GENERATE(5, 70);
  const double value =
      GENERATE(std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity());
  INFO(cell << ", L " << L << ", a value of " << value);
  at::manual_seed(4);
  const auto draw = [&](int64_t rows) {
    return at::randn({1, 2, rows, 8}, at::kDouble).to(cell.device, cell.type);
  };
  const auto q = draw(L).requires_grad_(true), k = draw(L - 2), v = draw(L - 2);
  v.select(2, 1).fill_(value);
  const AttentionOptions options{.causal = Causal::BottomRight,
                                 .backend = cell.backend};  // two queries see no key
  if (!cell.refusal(q, k, v, options).empty()) return;
  const auto y = attention(q, k, v, options);
  CHECK(y.slice(2, 0, 2).eq(0).all().item<bool>());
  CHECK_FALSE(y.slice(2, 3).isfinite().all().item<bool>());
  const auto gradient = torch::autograd::grad({y}, {q}, {at::ones_like(y)})[0];
  CHECK(gradient.slice(2, 0, 2).eq(0).all().item<bool>());
  const at::NoGradGuard no_grad;
  CHECK(bit_equal(attention(q, k, v, options).slice(2, 0, 2), y.detach().slice(2, 0, 2)));
}

TEST_CASE("a hidden key reaches no query, whatever another query holds", "[hidden_numbers]") {
  const auto cell = GENERATE(from_range(cells()));
  const int64_t L = GENERATE(2, 5, 40);
  const double value =
      GENERATE(std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity());
  const std::string kind = GENERATE("keep", "bias", "lengths");
  INFO(cell << ", L " << L << ", " << kind << ", " << value);
  at::manual_seed(5);
  const auto draw = [&](int64_t heads, int64_t rows) {
    return at::randn({1, heads, rows, 8}, at::kDouble).to(cell.device, cell.type);
  };
  auto q = draw(4, L), k = draw(2, 20), v = draw(2, 20);
  q.select(2, 1).fill_(value);
  auto keep = at::ones({1, 20}, at::kBool).to(cell.device);
  keep.select(1, 19).fill_(false);
  AttentionExtras extras;
  if (kind == "keep") extras.mask = Mask::keep(keep);
  if (kind == "bias")
    extras.mask = Mask::bias(at::zeros({1, 20}, keep.device())
                                 .to(cell.type)
                                 .masked_fill(keep.logical_not(), -std::numeric_limits<double>::infinity()));
  if (kind == "lengths") extras.mask = Mask::key_lengths(at::tensor({19}, at::kLong).to(cell.device));
  const AttentionOptions options{.backend = cell.backend};
  if (!cell.refusal(q, k, v, options, extras).empty()) return;
  const auto run = [&] {
    std::vector<at::Tensor> leaves;
    for (const auto& x : {q, k, v}) leaves.push_back(x.detach().requires_grad_(true));
    const auto y = attention(leaves[0], leaves[1], leaves[2], options, extras).output;
    auto results = torch::autograd::grad({y}, leaves, {at::ones_like(y)});
    results.push_back(y.detach());
    const at::NoGradGuard no_grad;
    results.push_back(attention(q, k, v, options, extras).output);
    return results;
  };
  const auto clean = run();
  k.select(2, 19).fill_(value);
  v.select(2, 19).fill_(-value);
  if (!cell.refusal(q, k, v, options, extras).empty()) return;
  const auto poisoned = run();
  for (size_t n = 0; n < clean.size(); ++n) {
    INFO("gradients of q, k, v, output with and without a graph: " << n);
    CHECK(bit_equal(clean[n].isfinite(), poisoned[n].isfinite()));
    CHECK(bit_equal(clean[n].nan_to_num(), poisoned[n].nan_to_num()));
  }
}

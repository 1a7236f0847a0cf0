// A tensor other than q, k and v may be changed in place between a forward pass and its backward pass. The
// gradient is then that of the values that the forward pass read, or autograd raises an error; it is never a
// different one.

#include <functional>
#include <string>
#include <vector>

#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/core/options.h>
#include <attentive/functional/explain.h>
#include <attentive/functional/linear_attention.h>
#include <attentive/modules/multi_head_attention.h>

#include "support/cells.h"
#include "support/compare.h"
#include "support/errors.h"

using namespace attentive;
using namespace attentive::test;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr int64_t kKeys = 40;

// One tensor of a call, with functions that make it, pass it to the call and change it.
struct ChangedTensor {
  std::string name;
  bool pairs;  // (…, L, S): a mask of pairs, which is too large to copy
  std::function<at::Tensor(int64_t)> make;
  std::function<AttentionExtras(const at::Tensor&)> extras;
  std::function<void(at::Tensor&)> change;
};

AttentionExtras masked(const Mask& mask) {
  AttentionExtras extras;
  extras.mask = mask;
  return extras;
}

AttentionExtras with_slopes(const at::Tensor& slopes) {
  AttentionExtras extras;
  extras.alibi_slopes = slopes;
  return extras;
}

AttentionExtras with_sinks(const at::Tensor& sinks) {
  AttentionExtras extras;
  extras.sinks = sinks;
  return extras;
}

std::vector<ChangedTensor> givens() {
  const auto turn = [](at::Tensor& t) { t.logical_not_(); };
  const auto negate = [](at::Tensor& t) { t.neg_(); };
  return {
      {"keep (L, S)", true,
       [](int64_t L) {
         return at::rand({L, kKeys}).gt(0.4);
       },
       [](const at::Tensor& t) { return masked(Mask(t)); }, turn},
      {"keep (B, 1, 1, S)", true,
       [](int64_t) {
         return at::rand({2, 1, 1, kKeys}).gt(0.4);
       },
       [](const at::Tensor& t) { return masked(Mask(t)); }, turn},
      {"keep beside key_keep", true,
       [](int64_t L) {
         return at::rand({L, kKeys}).gt(0.4);
       },
       [](const at::Tensor& t) {
         return masked(Mask(t) & Mask::key_keep(at::rand({2, kKeys}).gt(0.2)));
       },
       turn},
      {"bias (L, S)", true,
       [](int64_t L) {
         return at::randn({L, kKeys});
       },
       [](const at::Tensor& t) { return masked(Mask::bias(t)); }, negate},
      {"key_keep", false,
       [](int64_t) {
         return at::rand({2, kKeys}).gt(0.4);
       },
       [](const at::Tensor& t) { return masked(Mask::key_keep(t)); }, turn},
      {"key_lengths", false,
       [](int64_t) {
         return at::tensor({29, 40}, at::kLong);
       },
       [](const at::Tensor& t) { return masked(Mask::key_lengths(t)); }, [](at::Tensor& t) { t.sub_(20); }},
      {"slopes (H)", false, [](int64_t) { return at::rand({4}); }, with_slopes, negate},
      {"slopes (B, H)", false,
       [](int64_t) {
         return at::rand({2, 4});
       },
       with_slopes, negate},
      {"sinks", false, [](int64_t) { return at::randn({4}); }, with_sinks, negate},
  };
}

struct QueryCall {
  at::Tensor q, k, v;

  explicit QueryCall(int64_t queries)
      : q(at::randn({2, 4, queries, 8}).requires_grad_(true)),
        k(at::randn({2, 2, kKeys, 8}).requires_grad_(true)),
        v(at::randn({2, 2, kKeys, 8}).requires_grad_(true)) {}

  bool takes(Backend backend, const AttentionExtras& extras) const {
    if (backend == Backend::Auto) return true;
    for (const auto& candidate : explain(q, k, v, {}, extras).candidates) {
      if (candidate.backend == backend) return candidate.available;
    }
    return false;
  }

  // The gradients of q, k and v if `before_backward` runs between the passes.
  std::vector<at::Tensor> gradients(Backend backend, const AttentionExtras& extras,
                                    const std::function<void()>& before_backward) const {
    const auto y = attention(q, k, v, {.backend = backend}, extras).output;
    before_backward();
    return torch::autograd::grad({y.square().sum()}, {q, k, v});
  }
};

void check_same_bits_of_all(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& want) {
  REQUIRE(got.size() == want.size());
  for (size_t n = 0; n < got.size(); ++n) {
    INFO("gradient " << n);
    CHECK(bit_equal(got[n], want[n]));
  }
}

}  // namespace

TEST_CASE("a mask changed before the backward pass raises or has no influence", "[changed_mask]") {
  const auto backend = GENERATE(from_range(kAllBackends));
  const int64_t queries = GENERATE(2, 40);  // the pass for few queries, and the tiled pass
  for (const auto& given : givens()) {
    INFO(given.name << ", backend " << to_string(backend) << ", queries " << queries);
    at::manual_seed(5);
    const QueryCall call(queries);
    auto tensor = given.make(queries);
    const auto extras = given.extras(tensor);
    if (!call.takes(backend, extras)) continue;
    const auto chosen = explain(call.q, call.k, call.v, {.backend = backend}, extras).chosen;
    const auto want = call.gradients(backend, extras, [] {});
    const auto change = [&] { given.change(tensor); };
    const bool combined = given.name == "keep beside key_keep";  // the combined term is a new tensor
    if (chosen == Backend::Native && given.pairs && !combined) {
      CHECK_THAT(error_of<c10::Error>([&] { call.gradients(backend, extras, change); }),
                 ContainsSubstring("modified by an inplace operation"));
    } else {
      check_same_bits_of_all(call.gradients(backend, extras, change), want);
    }
  }
}

TEST_CASE("masks made under InferenceMode serve in training", "[changed_mask]") {
  const auto backend = GENERATE(from_range(kAllBackends));
  const int64_t queries = GENERATE(2, 40);
  for (const auto& given : givens()) {
    INFO(given.name << ", backend " << to_string(backend) << ", queries " << queries);
    at::manual_seed(5);
    const QueryCall call(queries);
    at::Tensor tensor;
    {
      const c10::InferenceMode inference;
      tensor = given.make(queries);
    }
    REQUIRE(tensor.is_inference());
    at::manual_seed(6);
    const auto extras = given.extras(tensor);
    if (!call.takes(backend, extras)) continue;
    at::manual_seed(6);
    const auto plain = given.extras(tensor.clone());
    const auto want = call.gradients(backend, plain, [] {});
    check_same_bits_of_all(call.gradients(backend, extras, [] {}), want);
    // An inference tensor has no version by which autograd could detect a change.
    check_same_bits_of_all(call.gradients(backend, extras,
                                          [&] {
                                            const c10::InferenceMode inference;
                                            given.change(tensor);
                                          }),
                           want);
  }
}

TEST_CASE("one buffer of lengths serves several forward passes before one backward pass", "[changed_mask]") {
  const auto backend = GENERATE(from_range(kAllBackends));
  const BackendGuard guard(backend);
  INFO("backend " << to_string(backend));
  MultiHeadAttention module(16, 16, 0, 0.0, 2);
  const auto gradient = [&](bool refilled) {
    module->zero_grad();
    auto lengths = at::zeros({2}, at::kLong);
    at::Tensor loss;
    for (int n = 0; n < 2; ++n) {
      at::manual_seed(n);
      const auto x = at::randn({2, 10, 16});
      if (!refilled) lengths = at::zeros({2}, at::kLong);
      lengths.copy_(n ? at::tensor({3, 9}, at::kLong) : at::tensor({10, 5}, at::kLong));
      const auto one = module->forward(x, Mask::key_lengths(lengths)).square().sum();
      loss = loss.defined() ? loss + one : one;
    }
    loss.backward();
    return module->W_query->weight.grad().clone();
  };
  CHECK(bit_equal(gradient(true), gradient(false)));
}

TEST_CASE("slopes and sinks of packed sequences, changed before the backward pass", "[changed_mask]") {
  const auto backend = GENERATE(Backend::Reference, Backend::Auto);
  INFO("backend " << to_string(backend));
  const auto ends = at::tensor({0, 5, 11}, at::kLong);
  const auto gradients = [&](bool changed) {
    at::manual_seed(3);
    const auto q = at::randn({11, 4, 8}).requires_grad_(true), k = at::randn({11, 2, 8}).requires_grad_(true),
               v = at::randn({11, 2, 8}).requires_grad_(true);
    AttentionExtras extras;
    extras.alibi_slopes = at::rand({4});
    extras.sinks = at::randn({4});
    const auto y = attention_varlen(q, k, v, ends, ends, {.backend = backend}, extras).output;
    if (changed) {
      extras.alibi_slopes.neg_();
      extras.sinks.neg_();
    }
    return torch::autograd::grad({y.square().sum()}, {q, k, v});
  };
  check_same_bits_of_all(gradients(true), gradients(false));
}

TEST_CASE("masks of linear_attention, changed before the backward pass", "[changed_mask]") {
  const auto causal = GENERATE(Causal::None, Causal::BottomRight);
  const auto gradients = [&](bool changed) {
    at::manual_seed(3);
    const auto q = at::randn({2, 4, 40, 8}).requires_grad_(true),
               k = at::randn({2, 4, 40, 8}).requires_grad_(true),
               v = at::randn({2, 4, 40, 8}).requires_grad_(true);
    auto keep = at::rand({2, 40}).gt(0.3);
    auto lengths = at::tensor({29, 40}, at::kLong);
    LinearAttentionCall call;
    call.causal = causal;
    const auto y = linear_attention(q, k, v, call, Mask::key_keep(keep) & Mask::key_lengths(lengths));
    if (changed) {
      keep.logical_not_();
      lengths.sub_(20);
    }
    return torch::autograd::grad({y.square().sum()}, {q, k, v});
  };
  check_same_bits_of_all(gradients(true), gradients(false));
}

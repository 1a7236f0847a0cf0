// Tests of explain()'s notes on the mask of a call.

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
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
using Catch::Matchers::ContainsSubstring;

namespace {

const AttentionOptions kCausal{.causal = Causal::BottomRight};
const AttentionOptions kTopLeft{.causal = Causal::TopLeft};

std::vector<std::string> notes_of(const Mask& mask, const AttentionOptions& options = {}, int64_t L = 5,
                                  int64_t S = 5, int64_t B = 2, int64_t H = 3) {
  const auto q = at::zeros({B, H, L, 4}), k = at::zeros({B, H, S, 4});
  return explain(q, k, k, options, {.mask = mask}).notes;
}

bool looks_reversed(const Mask& mask, const AttentionOptions& options = {}, int64_t L = 5, int64_t S = 5) {
  for (const auto& note : notes_of(mask, options, L, S)) {
    if (note.starts_with("the mask looks reversed for the causal order: ")) return true;
  }
  return false;
}

at::Tensor pairs(int64_t L = 5, int64_t S = 5) {
  return at::ones({L, S}, at::kBool);
}

at::Tensor minus_infinity_where(const at::Tensor& hidden) {
  return at::zeros(hidden.sizes()).masked_fill(hidden, -std::numeric_limits<float>::infinity());
}

// A padding mask for 5 keys: the first n keys of each batch item are real, or the last n with `left`.
at::Tensor padding(const std::vector<int64_t>& lengths, bool left) {
  const auto n = at::tensor(lengths).unsqueeze(1), j = at::arange(5);
  return left ? j.ge(5 - n) : j.lt(n);
}

}  // namespace

TEST_CASE("explain counts the queries that see no key", "[explain][mask_check]") {
  auto keep = at::ones({2, 3, 5, 5}, at::kBool);
  CHECK(notes_of(keep).empty());
  keep[1][2][3].fill_(false);
  CHECK(notes_of(keep) ==
        std::vector<std::string>{
            "1 of 30 queries of all batch items and heads see no key, the first is query 3 of "
            "batch item 1, head 2; their weights and output are 0"});
  // With a mask that is equal for all heads, queries are counted once per batch item, also if it is equal for
  // all batch items.
  CHECK(notes_of(Mask::key_lengths(at::tensor({5, 0}))) ==
        std::vector<std::string>{
            "5 of 10 queries of all batch items see no key, the first is query 0 of batch item 1; "
            "their weights and output are 0 (all of them stand where the keys are padding)"});
  CHECK(notes_of({}, kCausal, 5, 3) ==
        std::vector<std::string>{
            "4 of 10 queries of all batch items see no key, the first is query 0 of batch item 0; "
            "their weights and output are 0"});
  CHECK(notes_of(pairs().tril(-1), {}, 5, 5, 1, 1) ==
        std::vector<std::string>{
            "1 of 5 queries see no key, the first is query 0; their weights and output are 0"});
}

TEST_CASE("explain's count is that of the rows without weights", "[explain][mask_check]") {
  const auto options = GENERATE(AttentionOptions{}, kCausal, kTopLeft, AttentionOptions{.window = {1, 0}},
                                AttentionOptions{.window = {-1, 0}}, AttentionOptions{.window = {0, 2}});
  const auto S = GENERATE(1, 4, 9);
  at::manual_seed(3);
  constexpr int64_t L = 5;
  const auto some = [](at::IntArrayRef sizes) { return at::rand(sizes).gt(0.6); };
  const auto repeated = some({1, 1, L, S}).expand({2, 3, L, S});
  int64_t wrong = 0, lonely = 0;
  for (const Mask& mask :
       {Mask(), Mask::keep(some({2, 3, L, S})), Mask::keep(some({2, 1, 1, S})),
        Mask::keep(some({1, 3, L, 1})), Mask::key_keep(some({2, S})),
        Mask::key_keep(some({2, S})) & Mask::keep(some({L, S})), Mask::key_lengths(at::tensor({0, S})),
        Mask::keep(repeated), Mask::bias(minus_infinity_where(some({1, 3, 1, S}))),
        Mask::bias(minus_infinity_where(some({L, S})))}) {
    const auto q = at::zeros({2, 3, L, 4}), k = at::zeros({2, 3, S, 4});
    const auto lse = attention(q, k, k, options, {.mask = mask, .logsumexp = true}).logsumexp;
    const auto blind = lse.eq(-std::numeric_limits<float>::infinity());
    const auto notes = notes_of(mask, options, L, S);
    const bool same_heads = !blind.ne(blind.narrow(1, 0, 1)).any().item<bool>();
    const auto count = blind.sum().item<int64_t>();
    lonely += count > 0;
    std::string begin = "none";
    for (const auto& note : notes) begin = note.find("see no key") != std::string::npos ? note : begin;
    if (count == 0) {
      wrong += begin != "none";
      continue;
    }
    // Heads that happen to be equal may be counted separately or once.
    const auto all = std::to_string(count) + " of " + std::to_string(2 * 3 * L) + " ";
    const auto once = std::to_string(count / 3) + " of " + std::to_string(2 * L) + " ";
    wrong += !(begin.starts_with(all) || (same_heads && begin.starts_with(once)));
  }
  CHECK(wrong == 0);
  CHECK(lonely > 0);
}

TEST_CASE("explain says that queries without keys are padding themselves", "[explain][mask_check]") {
  const auto left = Mask::key_keep(padding({5, 2}, /*left=*/true));
  CHECK(notes_of(left).empty());
  REQUIRE(notes_of(left, kCausal).size() == 1);
  CHECK_THAT(notes_of(left, kCausal)[0],
             ContainsSubstring("3 of 10 queries") && ContainsSubstring("stand where the keys are padding"));
  auto one_more = pairs();
  one_more[4].fill_(false);
  CHECK_THAT(notes_of(left & Mask::keep(one_more), kCausal)[0],
             ContainsSubstring("5 of 10 queries") && !ContainsSubstring("padding"));
}

TEST_CASE("explain recognizes a mask that is reversed for the causal order", "[explain][mask_check]") {
  const auto later = pairs().triu(1);  // PyTorch's mask of nn.MultiheadAttention, in which true hides
  CHECK(looks_reversed(later));
  CHECK(looks_reversed(later, kCausal));
  CHECK(looks_reversed(Mask::hide(pairs().tril(0))));
  CHECK(looks_reversed(Mask::hide(pairs().tril(-1)), kCausal));
  CHECK(looks_reversed(pairs().triu(0)));
  CHECK(looks_reversed(pairs().triu(0), kTopLeft));
  CHECK(looks_reversed(Mask::bias(minus_infinity_where(pairs().tril(0)))));
  CHECK(looks_reversed(later.expand({2, 3, 5, 5})));
  // The mask is combined with padding, or includes it.
  CHECK(looks_reversed(Mask::key_lengths(at::tensor({5, 2})) & Mask(later)));
  const auto real = padding({5, 3}, /*left=*/false).view({2, 1, 1, 5});
  CHECK(looks_reversed(later.bitwise_and(real)));
  CHECK(looks_reversed(later.bitwise_and(real), kCausal));
  // With more or fewer queries than keys, the diagonal depends on the alignment.
  CHECK(looks_reversed(pairs(3, 5).triu(3), kCausal, 3, 5));
  CHECK(looks_reversed(pairs(3, 5).triu(2), kCausal, 3, 5));
  CHECK_FALSE(looks_reversed(pairs(3, 5).triu(1), kCausal, 3, 5));
  CHECK(looks_reversed(pairs(3, 5).triu(1), kTopLeft, 3, 5));
  CHECK(looks_reversed(pairs(5, 3).triu(-2), kCausal, 5, 3));
}

TEST_CASE("explain says how a mask is reversed", "[explain][mask_check]") {
  CHECK(notes_of(pairs().triu(1), {}, 5, 5).back() ==
        "the mask looks reversed for the causal order: it shows a query only the keys after it; in "
        "Mask::keep true "
        "means that a query may attend, in Mask::hide that it may not");
  CHECK_THAT(notes_of(pairs().triu(0)).back(),
             ContainsSubstring(": it shows a query only its own key and those after it;"));
  CHECK_THAT(
      notes_of(pairs().triu(0), kTopLeft).back(),
      ContainsSubstring(": with Causal::TopLeft, it leaves a query no key but that of its own position;"));
}

TEST_CASE("explain takes no other mask for a reversed one", "[explain][mask_check]") {
  const auto options = GENERATE(AttentionOptions{}, kCausal, kTopLeft);
  CHECK_FALSE(looks_reversed({}, options));
  CHECK_FALSE(looks_reversed(pairs(), options));
  CHECK_FALSE(looks_reversed(pairs().tril(0), options));
  CHECK_FALSE(looks_reversed(pairs().tril(-1), options));
  CHECK_FALSE(looks_reversed(at::eye(5).to(at::kBool), options));
  // Padding on either side, of keys alone or of queries and keys, down to a single token.
  for (int64_t n = 0; n <= 5; ++n) {
    for (const bool left : {false, true}) {
      INFO(n << (left ? " tokens on the right" : " tokens on the left"));
      const auto real = padding({n, n}, left);
      CHECK_FALSE(looks_reversed(Mask::key_keep(real), options));
      CHECK_FALSE(looks_reversed(real.view({2, 1, 1, 5}).expand({2, 1, 5, 5}).contiguous(), options));
      CHECK_FALSE(looks_reversed(real.view({2, 1, 1, 5}).bitwise_and(real.view({2, 1, 5, 1})), options));
      CHECK_FALSE(
          looks_reversed(Mask::bias(minus_infinity_where(real.bitwise_not().view({2, 1, 1, 5}))), options));
    }
  }
  // Windows, as terms and as options.
  for (int64_t w = 0; w < 4; ++w) {
    CHECK_FALSE(looks_reversed(pairs().tril(w).bitwise_and(pairs().triu(-w)), options));
    CHECK_FALSE(looks_reversed(pairs().tril(0).bitwise_and(pairs().triu(-w)), options));
    auto windowed = options;
    windowed.window = {w, w};
    CHECK_FALSE(looks_reversed({}, windowed));
  }
  // Documents packed into one sequence, one of them of a single token.
  const auto document = at::tensor({0, 0, 1, 2, 2});
  CHECK_FALSE(looks_reversed(document.unsqueeze(1).eq(document), options));
  CHECK_FALSE(looks_reversed(document.unsqueeze(1).eq(document).tril(0), options));
}

TEST_CASE("explain finds no order in cross-attention", "[explain][mask_check]") {
  for (int64_t diagonal = -3; diagonal <= 3; ++diagonal) {
    CHECK_FALSE(looks_reversed(pairs(3, 5).triu(diagonal), {}, 3, 5));
    CHECK_FALSE(looks_reversed(pairs(5, 3).triu(diagonal), {}, 5, 3));
  }
  CHECK_FALSE(looks_reversed(pairs(1, 5), kCausal, 1, 5));
  CHECK_FALSE(looks_reversed(pairs(5, 1).triu(0), {}, 5, 1));
}

TEST_CASE("explain reads no mask on the meta device", "[explain][mask_check]") {
  const auto on_meta = at::TensorOptions().device(at::kMeta);
  const auto x = at::zeros({1, 1, 4, 4}, on_meta);
  const auto mask = at::zeros({4, 4}, on_meta.dtype(at::kBool));
  CHECK(explain(x, x, x, {}, {.mask = mask}).notes.empty());
}

// A tensor other than q, k and v may be changed in place between a forward pass and its backward pass. The
// gradient is then that of the values that the forward pass read, or autograd raises an error; it is never a
// different one.

using namespace attentive::test;

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

// Numbers at the ends of float32. The native kernel returns what the definition returns, NaN included, or
// refuses the call with a reason.

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand.h>
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
#include "support/errors.h"
#include "support/extreme_cases.h"

using namespace attentive;
using namespace attentive::test;

namespace {

OptionCall random_grouped_call(int64_t L) {
  at::manual_seed(5);
  OptionCall call;
  call.q = at::randn({1, 4, L, 8}, at::kDouble);
  call.k = at::randn({1, 2, 40, 8}, at::kDouble);
  call.v = at::randn({1, 2, 40, 8}, at::kDouble);
  call.extras.logsumexp = true;
  return call;
}

// Compares forward and backward with the definition in the same dtype.
void check_same_as_reference(const OptionCall& exact, at::ScalarType type) {
  const auto call = cast(exact, type);
  if (!takes(Backend::Native, call)) SKIP("no native kernel for " << c10::toString(type) << " on this CPU");
  const auto got = run_on(call, Backend::Native), want = run_on(call, Backend::Reference);
  REQUIRE_FALSE(got.refused);
  CHECK(difference_beside_nan(got.result.output, want.result.output, type) == "");
  CHECK(difference_beside_nan(got.result.logsumexp, want.result.logsumexp, type) == "");
  for (size_t n = 0; n < 3; ++n) {
    INFO("gradient of "
         << "qkv"[n]);
    CHECK(difference_beside_nan(got.gradients[n], want.gradients[n], type, true) == "");
  }
}

// Compares a call without gradients, for which few queries take another path and weights are returned.
void check_same_weights(const OptionCall& exact, at::ScalarType type) {
  const at::NoGradGuard no_grad;
  auto call = cast(exact, type);
  call.extras.weights = Weights::Clean;
  const auto run = [&](Backend backend) {
    auto options = call.options;
    options.backend = backend;
    return attention(call.q, call.k, call.v, options, call.extras);
  };
  const auto got = run(Backend::Native), want = run(Backend::Reference);
  CHECK(difference_beside_nan(got.weights, want.weights, type) == "");
  CHECK(difference_beside_nan(got.output, want.output, type) == "");
  CHECK(difference_beside_nan(got.logsumexp, want.logsumexp, type) == "");
}

}  // namespace

TEST_CASE("numbers at the ends of float32 mean what they mean to the definition", "[extremes]") {
  const auto type = GENERATE(at::kFloat, at::kBFloat16);
  const int64_t L = GENERATE(3, 70);
  for (const auto& extreme : extreme_cases(L)) {
    INFO(extreme.name << ", " << c10::toString(type) << ", L " << L);
    check_same_as_reference(extreme.call, type);
    check_same_weights(extreme.call, type);
  }
}

TEST_CASE("numbers at the ends of float16 mean what they mean to the definition", "[extremes]") {
  const int64_t L = GENERATE(3, 70);
  const double most = GENERATE(65504.0, -65504.0);
  INFO(most << ", L " << L);
  auto call = random_grouped_call(L);
  SECTION("a bias for some keys") {
    auto bias = at::zeros({L, 40}, at::kDouble);
    bias.slice(1, 3, 20).fill_(most);
    bias.slice(1, 20, 30).fill_(-most);
    call.extras.mask = Mask::bias(bias);
    check_same_as_reference(call, at::kHalf);
  }
  SECTION("a bias for every key") {
    call.extras.mask = Mask::bias(at::full({L, 40}, most, at::kDouble));
    check_same_as_reference(call, at::kHalf);
  }
  SECTION("slopes") {
    call.extras.alibi_slopes = at::tensor({most, 0.5, -most, 0.0}, at::kDouble);
    check_same_as_reference(call, at::kHalf);
  }
  SECTION("sinks") {
    call.extras.sinks = at::tensor({most, 0.5, -most, 0.0}, at::kDouble);
    check_same_as_reference(call, at::kHalf);
  }
  SECTION("scores beyond float16") {
    call.q.select(2, 1).select(2, 0).fill_(most);
    call.k.select(2, 7).select(2, 0).fill_(65504.0);
  }
  SECTION("values") {
    call.v.select(2, 7).fill_(most);
  }
  check_same_weights(call, at::kHalf);
}

TEST_CASE("a bias of float64 beyond float32 means what it means to the definition", "[extremes]") {
  const int64_t L = GENERATE(3, 70);
  const double value = GENERATE(1e300, -1e300);
  auto call = cast(random_grouped_call(L), at::kFloat);
  auto bias = at::zeros({L, 40}, at::kDouble);
  bias[1].slice(0, 3, 20).fill_(value);
  call.extras.mask = Mask::bias(bias);
  INFO("a bias of " << value << ", L " << L);
  if (!takes(Backend::Native, call)) SKIP("no native kernel on this CPU");
  const auto got = run_on(call, Backend::Native), want = run_on(call, Backend::Reference);
  CHECK(difference_beside_nan(got.result.output, want.result.output, at::kFloat) == "");
  CHECK(difference_beside_nan(got.gradients[0], want.gradients[0], at::kFloat, true) == "");
  CHECK(want.result.output.select(2, 1).isnan().all().item<bool>() == (value > 0));
}

// A sink of +inf absorbs all weight, which is the limit of a growing sink; inf - inf would be NaN.
TEST_CASE("sinks that are not finite, or huge", "[extremes][sinks]") {
  const auto type = GENERATE(at::kDouble, at::kFloat, at::kBFloat16, at::kHalf);
  const auto backend = GENERATE(Backend::Reference, Backend::Native);
  const int64_t L = GENERATE(3, 70);
  auto exact = random_grouped_call(L);
  auto keep = at::rand({L, 40}).gt(0.3);
  keep[1].fill_(false);
  exact.extras.mask = Mask::keep(keep);
  exact.extras.sinks =
      at::tensor({kInfinity, -kInfinity, kNaN, type == at::kDouble ? 1e300 : 3e38}, at::kDouble);
  auto call = cast(exact, type);
  if (!takes(backend, call)) SKIP("backend refuses");
  INFO(to_string(backend) << ", " << c10::toString(type) << ", L " << L);
  call.extras.sinks = call.extras.sinks.detach().requires_grad_(true);
  call.options.backend = backend;
  const auto result = attention(call.q, call.k, call.v, call.options, call.extras);
  const auto gradients = torch::autograd::grad({result.output.to(at::kDouble).sum()},
                                               {call.q, call.k, call.v, call.extras.sinks});
  const auto head = [](const at::Tensor& x, int64_t h) { return x.detach().select(1, h).to(at::kDouble); };
  const auto seen = at::arange(L).ne(1);
  const auto lse = [&](int64_t h) { return head(result.logsumexp, h)[0].masked_select(seen); };

  CHECK(head(result.output, 0).eq(0).all().item<bool>());
  CHECK(lse(0).eq(kInfinity).all().item<bool>());
  CHECK(head(gradients[0], 0).eq(0).all().item<bool>());

  auto without = call;
  without.extras.sinks.reset();
  const auto plain = attention(without.q, without.k, without.v, without.options, without.extras);
  CHECK(difference(head(result.output, 1), head(plain.output, 1), tolerance_of(type)) == "");
  CHECK(difference(lse(1), head(plain.logsumexp, 1)[0].masked_select(seen), tolerance_of(type)) == "");

  CHECK(head(result.output, 2)[0].index({seen}).isnan().all().item<bool>());

  CHECK(head(result.output, 3).eq(0).all().item<bool>());
  CHECK(lse(3).eq(call.extras.sinks[3].item<double>()).all().item<bool>());

  // A query without keys is zero with any sink, and of these sinks only NaN has a gradient.
  CHECK(result.output.select(2, 1).eq(0).all().item<bool>());
  CHECK(result.logsumexp.select(2, 1).eq(-kInfinity).all().item<bool>());
  const auto of_sinks = gradients[3].to(at::kDouble);
  CHECK(of_sinks[0].item<double>() == 0.0);
  CHECK(of_sinks[1].item<double>() == 0.0);
  CHECK(std::isnan(of_sinks[2].item<double>()));
  CHECK(of_sinks[3].item<double>() == 0.0);
}

TEST_CASE("a sink of NaN has no gradient where no query sees a key", "[extremes][sinks]") {
  const auto backend = GENERATE(Backend::Reference, Backend::Native);
  const auto q = at::randn({1, 2, 3, 8}).requires_grad_(true), k = at::randn({1, 2, 4, 8});
  const auto sinks = at::tensor({kNaN, 0.5}).to(at::kFloat).requires_grad_(true);
  AttentionExtras extras;
  extras.mask = Mask::key_lengths(at::tensor({0}, at::kLong));
  extras.sinks = sinks;
  OptionCall call{.q = q, .k = k, .v = k, .options = {}, .extras = extras};
  if (!takes(backend, call)) SKIP("no native kernel on this CPU");
  const auto result = attention(q, k, k, {.backend = backend}, extras);
  const auto gradients = torch::autograd::grad({result.output.sum()}, {q, sinks});
  CHECK(result.output.eq(0).all().item<bool>());
  CHECK(gradients[0].eq(0).all().item<bool>());
  CHECK(gradients[1].eq(0).all().item<bool>());
}

TEST_CASE("the gradient of a huge sink's logsumexp is one", "[extremes][sinks]") {
  const auto backend = GENERATE(Backend::Reference, Backend::Native);
  auto call = cast(random_grouped_call(5), at::kFloat);
  call.extras.sinks = at::tensor({3e38, 1e9, -3e38, 1e30}).requires_grad_(true);
  if (!takes(backend, call)) SKIP("no native kernel on this CPU");
  call.options.backend = backend;
  const auto lse = attention(call.q, call.k, call.v, call.options, call.extras).logsumexp;
  const auto gradient = torch::autograd::grad({lse.sum()}, {call.extras.sinks})[0];
  CHECK_CLOSE(gradient, at::tensor({5.0f, 5.0f, 0.0f, 5.0f}));
}

TEST_CASE("scales and softcaps as far as float32 has room for them", "[extremes]") {
  const int64_t L = GENERATE(3, 70);
  const double value = GENERATE(1e-29, 1e-12, 1e12, 9e29);
  auto call = random_grouped_call(L);
  SECTION("softcap") {
    call.options.softcap = value;
    call.q = call.q * (value < 1.0 ? value : 1.0);
    check_same_as_reference(call, at::kFloat);
  }
  SECTION("scale") {
    call.options.scale = value;
    // The scores become numbers of a few units.
    call.q = call.q * std::sqrt(1.0 / value);
    call.k = call.k * std::sqrt(1.0 / value);
    check_same_as_reference(call, at::kFloat);
  }
  SECTION("negative scale") {
    call.options.scale = -value;
    call.q = call.q * std::sqrt(1.0 / value);
    call.k = call.k * std::sqrt(1.0 / value);
    check_same_as_reference(call, at::kFloat);
  }
}

TEST_CASE("scales and softcaps beyond are refused by name", "[extremes][errors]") {
  const double value = GENERATE(1e-300, 1e-31, 1e31, 1e300);
  auto call = cast(random_grouped_call(5), at::kFloat);
  if (!takes(Backend::Native, call)) SKIP("no native kernel on this CPU");
  const auto message = [&] {
    call.options.backend = Backend::Native;
    return value_error([&] { attention(call.q, call.k, call.v, call.options, call.extras); });
  };
  call.options.softcap = value;
  CHECK(message() ==
        "attention: backend native cannot express this call: it needs a softcap between 1e-30 and 1e30");
  call.options.softcap.reset();
  call.options.scale = -value;
  CHECK(message() ==
        "attention: backend native cannot express this call: it needs a scale between 1e-30 and 1e30");
}

// The native kernel, like PyTorch's, divides sums of values at the end, so the sums must not overflow.
TEST_CASE("values up to the largest number over the number of keys", "[extremes]") {
  const int64_t L = GENERATE(3, 70);
  auto call = random_grouped_call(L);
  call.q.zero_();
  call.v = at::randn({1, 2, 40, 8}, at::kDouble).clamp(-1, 1) * (3.4e38 / 41);
  const auto as_float = cast(call, at::kFloat);
  if (!takes(Backend::Native, as_float)) SKIP("no native kernel on this CPU");
  const auto got = run_on(as_float, Backend::Native);
  const auto want = run_on(cast(as_float, at::kDouble), Backend::Reference);
  CHECK(difference(got.result.output, want.result.output, {1e-5, 0.0}) == "");
}

// Tests of hidden numbers: finite ones so large that a product with them overflows, as uninitialised memory
// may hold, and values of NaN or Inf in a call with a query without keys.

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

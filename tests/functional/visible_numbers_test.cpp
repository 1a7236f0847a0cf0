// Tests of visible NaN, Inf and overflowing scores: every backend returns what the definition returns, or
// refuses the call.

#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/core/options.h>

#include "support/cells.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/naive_attention.h"

using namespace attentive;
using namespace attentive::test;

namespace {

struct VisibleCall {
  at::Tensor q, k, v, bias, direction;
  AttentionOptions options;

  AttentionExtras extras() const {
    AttentionExtras result;
    if (bias.defined()) result.mask = Mask::bias(bias);
    result.logsumexp = true;
    return result;
  }
  VisibleCall to(at::ScalarType type) const {
    VisibleCall other = *this;
    for (auto* x : {&other.q, &other.k, &other.v, &other.bias, &other.direction}) {
      if (x->defined()) *x = x->to(type);
    }
    return other;
  }
  Explanation::Candidate candidate(Backend backend) const {
    for (const auto& one : explain(q, k, v, options, extras()).candidates) {
      if (one.backend == backend) return one;
    }
    return {backend, false, "absent"};
  }
  // Whether the backend accepts the call with gradients. Before LibTorch 2.11, PyTorch's kernel computes
  // wrong ones for head_dim 1 in half precision.
  bool differentiable(Backend backend) const {
    const auto leaf = [](const at::Tensor& x) { return x.detach().requires_grad_(true); };
    AttentionExtras without = extras();
    without.logsumexp = false;
    for (const auto& one : explain(leaf(q), leaf(k), leaf(v), options, without).candidates) {
      if (one.backend == backend) return one.available;
    }
    return false;
  }
  // Returns the output and the logsumexp.
  std::vector<at::Tensor> results(Backend backend) const {
    auto asked = options;
    asked.backend = backend;
    const auto result = attention(q, k, v, asked, extras());
    return {result.output, result.logsumexp};
  }
  // Returns the output and the gradients of q, k and v.
  std::vector<at::Tensor> gradients(Backend backend) const {
    auto asked = options;
    asked.backend = backend;
    std::vector<at::Tensor> leaves;
    for (const auto& x : {q, k, v}) leaves.push_back(x.detach().requires_grad_(true));
    AttentionExtras without = extras();
    without.logsumexp = false;
    const auto y = attention(leaves[0], leaves[1], leaves[2], asked, without).output;
    auto found = torch::autograd::grad({y}, leaves, {direction});
    found.push_back(y.detach());
    return found;
  }
};

// Describes the first place at which only one of the two is finite, or "".
std::string other_numbers(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& want) {
  for (size_t n = 0; n < want.size(); ++n) {
    const auto finite = at::isfinite(got[n]);
    if (!finite.equal(at::isfinite(want[n])))
      return "result " + std::to_string(n) + ": " + std::to_string(finite.sum().item<int64_t>()) +
             " finite numbers of " + std::to_string(finite.numel()) + ", expected " +
             std::to_string(at::isfinite(want[n]).sum().item<int64_t>());
  }
  return "";
}

class Draws {
 public:
  explicit Draws(uint64_t seed) : bits_(seed) {}

  int64_t below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(bits_); }
  bool one_in(int64_t n) { return below(n) == 0; }
  // Puts one of these values at a random place or into a random row.
  void place(const at::Tensor& x, const std::vector<double>& values) {
    const double value = values[static_cast<size_t>(below(static_cast<int64_t>(values.size())))];
    auto rows = x.view({-1, x.size(-1)});
    auto row = rows[below(rows.size(0))];
    one_in(2) ? row.fill_(value) : row[below(row.size(0))].fill_(value);
  }

  // A random float64 call, with NaN or Inf in some of q, k, v and a bias.
  VisibleCall call() {
    const int64_t keys = one_in(8) ? 500 + below(40) : 1 + below(70),
                  queries = one_in(2) ? 1 + below(5) : keys, dim = 1 + below(12), group = 1 + below(2);
    VisibleCall call;
    call.q = at::randn({2, 2 * group, queries, dim}, at::kDouble);
    call.k = at::randn({2, 2, keys, dim}, at::kDouble);
    call.v = at::randn({2, 2, keys, dim}, at::kDouble);
    call.direction = at::randn(call.q.sizes(), at::kDouble);
    const bool causal = one_in(4);
    if (causal) call.options.causal = one_in(2) ? Causal::TopLeft : Causal::BottomRight;
    if (one_in(3)) {
      call.bias = at::randn({queries, keys}, at::kDouble);
      while (one_in(2)) place(call.bias, {kNaN, kInfinity, -kInfinity});
    }
    if (one_in(2)) place(call.q, {kNaN, kInfinity, -kInfinity});
    if (one_in(2)) place(call.k, {kNaN, kInfinity, -kInfinity});
    if (one_in(8)) call.q.select(2, below(queries)).fill_(kNaN);
    // In some backends, a hidden value that is not finite may reach other queries.
    if (!causal && !call.bias.defined()) {
      if (one_in(4)) place(call.v, {kNaN});
      if (one_in(4)) place(call.direction, {kNaN});
    }
    return call;
  }

 private:
  std::mt19937_64 bits_;
};

}  // namespace

TEST_CASE("NaN and Inf that nothing hides are seen by every backend", "[visible_numbers]") {
  const auto seed = GENERATE(range(0, 100));
  at::manual_seed(static_cast<uint64_t>(seed));
  const auto exact = Draws(static_cast<uint64_t>(seed)).call();
  const auto oracle = exact.results(Backend::Reference);
  for (const auto type : kAllTypes) {
    const auto call = exact.to(type);
    for (const auto backend : {Backend::Torch, Backend::Auto}) {
      INFO("seed " << seed << ", backend " << to_string(backend) << ", dtype " << c10::toString(type)
                   << ", q " << exact.q.sizes() << ", keys " << exact.k.size(2));
      const bool taken = backend == Backend::Auto || call.candidate(backend).available;
      if (!taken) {
        const auto message = value_error([&] { call.results(backend); });
        CHECK(message ==
              "attention: backend torch cannot express this call: " + call.candidate(backend).reason);
        continue;
      }
      CHECK(other_numbers(call.results(backend), oracle) == "");
      // Native skips products with weights of 0, whereas in the definition 0 times Inf is NaN.
      if (backend == Backend::Auto && call.candidate(Backend::Native).available) continue;
      if (backend == Backend::Torch && !call.differentiable(backend)) {
        CHECK(call.q.element_size() == 2);
        CHECK(call.q.size(3) == 1);
        continue;
      }
      CHECK(other_numbers(call.gradients(backend), call.gradients(Backend::Reference)) == "");
    }
  }
}

TEST_CASE("Backend::Torch names numbers that it would lose", "[visible_numbers][torch][errors]") {
  const auto type = GENERATE(from_range(kAllTypes));
  const auto backend = Backend::Torch;
  at::manual_seed(4);
  VisibleCall call;
  call.q = at::randn({1, 2, 5, 8}, at::kDouble);
  call.k = at::randn({1, 2, 9, 8}, at::kDouble);
  call.v = at::randn({1, 2, 9, 8}, at::kDouble);
  CHECK(call.to(type).candidate(backend).available);
  SECTION("a query of NaN") {
    call.q.select(2, 1).fill_(kNaN);
  }
  SECTION("a key of NaN") {
    call.k[0][1][8][7] = kNaN;
  }
  SECTION("keys of Inf") {
    call.k.fill_(kInfinity);
  }
  SECTION("scores of -Inf alone") {
    call.q.fill_(1.0);
    call.k.fill_(-kInfinity);
  }
  SECTION("finite numbers whose products overflow") {
    if (type == at::kHalf) return;
    const double large = type == at::kDouble ? 1e200 : 1e30;
    call.q.fill_(large);
    call.k.fill_(GENERATE(1.0, -1.0) * large);
  }
  SECTION("a bias of Inf") {
    call.bias = at::zeros({5, 9}, at::kDouble);
    call.bias[2][3] = kInfinity;
  }
  SECTION("a bias of NaN") {
    call.bias = at::zeros({5, 9}, at::kDouble);
    call.bias[2][3] = kNaN;
  }
  SECTION("a bias and scores whose sum overflows") {
    if (type == at::kHalf) return;
    const double large = type == at::kDouble ? 1e150 : 1e18;
    call.q.fill_(large);
    call.k.fill_(-large);
    call.bias = at::full({5, 9}, type == at::kDouble ? -1.79e308 : -3.38e38, at::kDouble);
  }
  call = call.to(type);
  INFO(c10::toString(type));
  const auto message = value_error([&] { call.results(backend); });
  CHECK(message.starts_with("attention: backend torch cannot express this call: q, k or "));
  CHECK(message == "attention: backend torch cannot express this call: " + call.candidate(backend).reason);
  const auto want = call.results(Backend::Reference), got = call.results(Backend::Auto);
  CHECK(other_numbers(got, want) == "");
  const BackendGuard guard(backend);  // a preference, which does not force the backend
  CHECK(other_numbers(call.results(Backend::Auto), want) == "");
}

TEST_CASE("Backend::Torch takes rows whose scores are 0, and hides with -Inf", "[visible_numbers][torch]") {
  const auto type = GENERATE(from_range(kAllTypes));
  const bool hidden = GENERATE(false, true);
  VisibleCall call;
  call.q = at::zeros({1, 2, 3, 8}, at::kDouble);
  call.k = at::randn({1, 2, hidden ? 5 : 1, 8}, at::kDouble);
  call.v = at::randn(call.k.sizes(), at::kDouble);
  if (hidden) {
    call.bias = at::zeros({3, 5}, at::kDouble);
    call.bias[1].fill_(-kInfinity);
  }
  call = call.to(type);
  REQUIRE(call.candidate(Backend::Torch).available);
  const auto got = call.results(Backend::Torch), want = call.results(Backend::Reference);
  CHECK_WITHIN(got[0], want[0], {4e-3, 1e-6});
  CHECK_WITHIN(got[1].to(at::kDouble), want[1].to(at::kDouble), {4e-3, 1e-6});
}

namespace {

struct Place {
  std::string name;
  std::function<void(NaiveCall&)> put;
  bool every_size = false;  // tested with every number of keys; the others with a few
};

// The places where NaN and Inf may be. Hidden ones have no effect; the others affect what the definition
// says.
const std::vector<Place>& places() {
  const auto last = [](at::Tensor& x) { return x.select(2, x.size(2) - 1); };
  const auto bias = [](NaiveCall& c) {
    if (!c.bias.defined()) c.bias = at::zeros({c.q.size(2), c.k.size(2)}, at::kDouble);
    return c.bias;
  };
  const auto first_keys = [](NaiveCall& c) {  // all but the last key
    c.keep = at::arange(c.k.size(2)).lt(c.k.size(2) - 1).expand({c.q.size(2), c.k.size(2)});
  };
  static const std::vector<Place> all = {
      {"a query of NaN", [](NaiveCall& c) { c.q.select(2, 1).fill_(kNaN); }, true},
      {"one number of a query is NaN", [](NaiveCall& c) { c.q.select(2, 1).select(2, 3).fill_(kNaN); }},
      {"a query of inf", [](NaiveCall& c) { c.q.select(2, 0).fill_(kInfinity); }},
      {"the last key of NaN", [=](NaiveCall& c) { last(c.k).fill_(kNaN); }, true},
      {"one number of the first key is NaN", [](NaiveCall& c) { c.k.select(2, 0).select(2, 2).fill_(kNaN); }},
      {"the last key of inf", [=](NaiveCall& c) { last(c.k).fill_(kInfinity); }, true},
      {"the last key of -inf", [=](NaiveCall& c) { last(c.k).fill_(-kInfinity); }},
      {"all keys of inf", [](NaiveCall& c) { c.k.fill_(kInfinity); }},
      {"all keys of -inf", [](NaiveCall& c) { c.k.fill_(-kInfinity); }},
      {"a value of NaN", [=](NaiveCall& c) { last(c.v).select(2, 1).fill_(kNaN); }},
      {"a value of inf", [=](NaiveCall& c) { last(c.v).fill_(kInfinity); }},
      {"a bias of inf", [=](NaiveCall& c) { bias(c).select(0, 1).select(0, 0).fill_(kInfinity); }, true},
      {"a bias of NaN", [=](NaiveCall& c) { bias(c).select(0, 0).select(0, c.k.size(2) - 1).fill_(kNaN); }},
      {"a key of NaN under the causal mask",
       [=](NaiveCall& c) {
         last(c.k).fill_(kNaN);
         c.options.causal = Causal::BottomRight;
       }},
      {"a query of NaN under the causal mask",
       [](NaiveCall& c) {
         c.q.select(2, 0).fill_(kNaN);
         c.options.causal = Causal::TopLeft;
       }},
      {"a hidden key of NaN",
       [=](NaiveCall& c) {
         last(c.k).fill_(kNaN);
         first_keys(c);
       }},
      {"a hidden value of inf",
       [=](NaiveCall& c) {
         last(c.v).fill_(kInfinity);
         first_keys(c);
       }},
      {"a visible key of NaN beside a hidden one",
       [=](NaiveCall& c) {
         c.k.select(2, 0).fill_(kNaN);
         first_keys(c);
       }},
      {"slopes of NaN",
       [](NaiveCall& c) {
         c.slopes = at::tensor({kNaN, 0.5}, at::kDouble);
       }},
      {"sinks of NaN and inf",
       [](NaiveCall& c) {
         c.sinks = at::tensor({kNaN, kInfinity}, at::kDouble);
       }},
  };
  return all;
}

NaiveCall finite_call(int64_t S) {
  at::manual_seed(static_cast<uint64_t>(S));
  return {.q = at::rand({1, 2, 3, 8}, at::kDouble),
          .k = at::rand({1, 2, S, 8}, at::kDouble),
          .v = at::rand({1, 2, S, 8}, at::kDouble)};
}

// Checks the kind (finite, NaN, inf) of every number for which the definition leaves no choice, and the
// values of finite ones.
void check_kind(const at::Tensor& got, const at::Tensor& skipped, const at::Tensor& multiplied,
                double allowed) {
  REQUIRE(got.sizes() == skipped.sizes());
  const auto x = got.detach().to(at::kCPU, at::kDouble);
  const auto same = [](const at::Tensor& a, const at::Tensor& b) {
    return a.isfinite()
        .logical_and(b.isfinite())
        .logical_or(a.eq(b))
        .logical_or(a.isnan().logical_and(b.isnan()));
  };
  const auto decided = same(skipped, multiplied);
  CHECK(same(x, skipped).logical_or(decided.logical_not()).all().item<bool>());
  const auto finite = decided.logical_and(skipped.isfinite());
  CHECK(difference(x.masked_select(finite), skipped.masked_select(finite), {0.0, allowed}) == "");
}

}  // namespace

TEST_CASE(
    "NaN and Inf mean what they mean to the definition, for every number of keys, or are refused by name",
    "[visible_numbers]") {
  const auto cell = GENERATE(from_range(cells()));
  for (int64_t S = 1; S <= 70; ++S) {
    for (const auto& place : places()) {
      if (!place.every_size && S != 1 && S != 5 && S != 16 && S != 33 && S != 70) continue;
      auto call = finite_call(S);
      place.put(call);
      INFO(cell << ", S " << S << ", " << place.name);
      const auto given = [&](const at::Tensor& x) { return x.defined() ? x.to(cell.device, cell.type) : x; };
      for (auto* x : {&call.q, &call.k, &call.v, &call.slopes, &call.sinks, &call.bias}) *x = given(*x);
      call.options.backend = cell.backend;
      AttentionExtras extras;
      if (call.keep.defined()) extras.mask &= Mask::keep(call.keep.to(cell.device));
      if (call.bias.defined()) extras.mask &= Mask::bias(call.bias);
      extras.alibi_slopes = call.slopes;
      extras.sinks = call.sinks;
      // Torch has no gradient of the logsumexp, and Auto should be able to choose Torch.
      extras.logsumexp = cell.backend == Backend::Reference || cell.backend == Backend::Native;
      std::vector<at::Tensor> leaves;
      for (const auto& x : {call.q, call.k, call.v}) leaves.push_back(x.detach().requires_grad_(true));
      if (!cell.refusal(leaves[0], leaves[1], leaves[2], call.options, extras).empty()) continue;
      const auto result = attention(leaves[0], leaves[1], leaves[2], call.options, extras);
      const auto direction = at::full_like(result.output, 0.5);
      const auto gradients = torch::autograd::grad({result.output}, leaves, {direction});
      NaiveDirections directions;
      directions.output = direction;
      const auto skipped = naive_attention(call, directions),
                 multiplied = naive_attention(call, directions, HiddenPairs::Multiplied);
      const auto &one = skipped.gradients, &other = multiplied.gradients;
      const auto forward = tolerance_of(cell.type), backward = tolerance_of(cell.type, /*gradient=*/true);
      const auto& y = skipped.forward;
      check_kind(result.output, y.output, multiplied.forward.output,
                 forward.allowed(largest_magnitude(y.output)));
      if (result.logsumexp.defined()) {
        check_kind(result.logsumexp, y.logsumexp, multiplied.forward.logsumexp,
                   forward.allowed(largest_magnitude(y.logsumexp)));
      }
      // The tolerance of gradients is relative to the largest gradient of the call and to the terms that
      // cancel in it.
      double largest = 0.0, terms = 0.0;
      for (const auto& x : {one.q, one.k, one.v}) largest = std::max(largest, largest_magnitude(x));
      for (const auto& x : {skipped.terms.q, skipped.terms.k, skipped.terms.v})
        terms = std::max(terms, largest_magnitude(x));
      const double allowed = backward.allowed(largest) + 2 * unit_of(cell.type) * terms;
      check_kind(gradients[0], one.q, other.q, allowed);
      check_kind(gradients[1], one.k, other.k, allowed);
      check_kind(gradients[2], one.v, other.v, allowed);
    }
  }
}

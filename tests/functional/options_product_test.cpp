#include <cmath>
#include <map>
#include <random>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/explain.h>

#include "support/cells.h"
#include "support/compare.h"
#include "support/option_cases.h"

using namespace attentive;
using namespace attentive::test;

namespace {

bool registered(const OptionCall& call, Backend backend) {
  for (const auto& candidate : explain(call.q, call.k, call.v, call.options, call.extras).candidates) {
    if (candidate.backend == backend) return true;
  }
  return false;
}

at::Tensor to_meta(const at::Tensor& x) {
  return x.defined() ? x.detach().to(at::kMeta).requires_grad_(x.requires_grad()) : x;
}

OptionCall on_meta(const OptionCall& call) {
  OptionCall result = call;
  for (auto* x : {&result.q, &result.k, &result.v, &result.extras.alibi_slopes, &result.extras.sinks})
    *x = to_meta(*x);
  Mask mask;
  for (const auto& term : call.extras.mask.keep_terms()) mask &= Mask::keep(to_meta(term));
  for (const auto& term : call.extras.mask.key_keep_terms()) mask &= Mask::key_keep(to_meta(term));
  for (const auto& term : call.extras.mask.key_length_terms()) mask &= Mask::key_lengths(term);
  for (const auto& term : call.extras.mask.query_length_terms()) mask &= Mask::query_lengths(term);
  for (const auto& term : call.extras.mask.bias_terms()) mask &= Mask::bias(to_meta(term));
  result.extras.mask = mask;
  for (auto& x : result.captured) x = to_meta(x);
  for (const auto& define : result.functions) define(result);
  return result;
}

// Compares a backend in one dtype with the float64 reference for the same (rounded) inputs.
void check_cell(const OptionCall& exact, at::ScalarType type, Backend backend) {
  const auto call = cast(exact, type);
  if (!registered(call, backend)) return;
  const auto got = run_on(call, backend);
  if (got.refused) {
    CHECK_FALSE(got.reason.empty());
    CHECK(backend != Backend::Reference);
    return;
  }
  check_result(got, run_on(cast(call, at::kDouble), Backend::Reference), type);
}

void check_all(const OptionCall& call) {
  for (const auto type : kAllTypes) {
    for (const auto backend : kNamedBackends) {
      INFO("dtype " << c10::toString(type) << ", backend " << to_string(backend));
      check_cell(call, type, backend);
    }
  }
}

// Without a softmax there are no sinks and no logsumexp.
bool without_softmax_but_statistics(const OptionCall& call) {
  const auto& extras = call.extras;
  return extras.normalise == Normalise::None &&
         (extras.sinks.defined() || call.options.softmax_plus_one || extras.logsumexp);
}

void check_meta(const OptionCall& given) {
  const auto call = cast(given, at::kFloat);
  const auto want = run_on(call, Backend::Reference);
  const auto got = run_on(on_meta(call), Backend::Auto);
  const auto check = [](const at::Tensor& meta, const at::Tensor& real) {
    REQUIRE(meta.defined() == real.defined());
    if (!real.defined()) return;
    CHECK(meta.is_meta());
    CHECK(meta.sizes() == real.sizes());
    CHECK(meta.scalar_type() == real.scalar_type());
  };
  check(got.result.output, want.result.output);
  check(got.result.weights, want.result.weights);
  check(got.result.logsumexp, want.result.logsumexp);
  REQUIRE(got.gradients.size() == want.gradients.size());
  for (size_t g = 0; g < want.gradients.size(); ++g) check(got.gradients[g], want.gradients[g]);
}

}  // namespace

TEST_CASE("every option on every backend equals the reference or is refused by name", "[options]") {
  check_all(plain_call());
  const auto& cases = option_cases();
  const auto first = GENERATE_COPY(range(size_t{0}, cases.size()));
  INFO("option: " << cases[first].name);
  auto call = plain_call();
  cases[first].apply(call);
  check_all(call);
}

TEST_CASE("every pair of options on every backend equals the reference or is refused by name", "[options]") {
  const auto& cases = option_cases();
  const auto first = GENERATE_COPY(range(size_t{0}, cases.size()));
  for (size_t second = first + 1; second < cases.size(); ++second) {
    if (cases[first].group == cases[second].group) continue;
    INFO("options: " << cases[first].name << " + " << cases[second].name);
    auto call = plain_call();
    cases[first].apply(call);
    cases[second].apply(call);
    check_all(call);
  }
}

TEST_CASE(
    "every function of pairs, with every option and with each other, equals the reference or is refused",
    "[options][score]") {
  const auto& functions = function_cases();
  const auto n = GENERATE_COPY(range(size_t{0}, functions.size()));
  INFO("function: " << functions[n].name);
  auto alone = plain_call();
  functions[n].apply(alone);
  check_all(alone);
  auto others = option_cases();
  others.insert(others.end(), functions.begin() + static_cast<std::ptrdiff_t>(n) + 1, functions.end());
  for (const auto& other : others) {
    if (other.group == functions[n].group) continue;
    INFO("with: " << other.name);
    auto call = plain_call();
    other.apply(call);
    functions[n].apply(call);
    if (without_softmax_but_statistics(call)) {
      CHECK_THROWS_AS(attention(call.q, call.k, call.v, call.options, call.extras), c10::ValueError);
    } else {
      check_all(call);
    }
  }
}

TEST_CASE("every option gives the shapes of its results on meta tensors, forward and backward",
          "[options][meta]") {
  const auto& options = option_cases();
  const auto& functions = function_cases();
  const auto n = GENERATE_COPY(range(size_t{0}, options.size() + functions.size()));
  const auto& option = n < options.size() ? options[n] : functions[n - options.size()];
  INFO("option: " << option.name);
  auto given = plain_call();
  option.apply(given);
  check_meta(given);
}

// Invariants of attention() on every backend, for any numbers: the error against float64 is within that of
// low-precision arithmetic, equivalent calls agree, sizes beyond 16 bits work, and bad input is refused. The
// backend is forced, and explain() must name it as the one that runs.

namespace {

struct Tensors {
  at::Tensor q, k, v;
};

// Returns whether the backend accepts the call, and checks that explain() then names it for the forced call.
bool accepts(Backend backend, const Tensors& x, AttentionOptions options = {},
             const AttentionExtras& extras = {}) {
  options.backend = Backend::Auto;
  for (const auto& candidate : explain(x.q, x.k, x.v, options, extras).candidates) {
    if (candidate.backend != backend || !candidate.available) continue;
    options.backend = backend;
    CHECK(explain(x.q, x.k, x.v, options, extras).chosen == backend);
    return true;
  }
  return false;
}

at::Tensor on(Backend backend, const Tensors& x, AttentionOptions options = {}, const Mask& mask = {}) {
  options.backend = backend;
  return attention(x.q, x.k, x.v, options, mask);
}

Tensors random_tensors(int64_t B, int64_t H, int64_t L, int64_t S, int64_t D,
                       at::ScalarType type = at::kFloat) {
  return {at::randn({B, H, L, D}, at::kDouble).to(type), at::randn({B, H, S, D}, at::kDouble).to(type),
          at::randn({B, H, S, D}, at::kDouble).to(type)};
}

// One random call, and the combined meaning of its options and mask.
struct Fuzzed {
  Tensors x;
  AttentionOptions options;
  Mask mask;
  at::Tensor visible;  // bool (B or 1, H or 1, L, S), all masks combined
  at::Tensor bias;     // sum of all biases, or undefined
  at::Tensor direction;
};

// Returns a tensor with the same numbers and another memory layout.
at::Tensor laid_out(const at::Tensor& x, int64_t layout) {
  switch (layout) {
    case 1:  // the layout of a projection: heads inside tokens
      return x.transpose(1, 2).contiguous().transpose(1, 2);
    case 2:  // strided last dimension
      return x.transpose(2, 3).contiguous().transpose(2, 3);
    case 3:  // every second row of a longer tensor
      return at::stack({x, at::full_like(x, kNaN)}, 3).flatten(2, 3).slice(2, 0, 2 * x.size(2), 2);
    default:
      return x;
  }
}

Fuzzed fuzzed(int seed, at::ScalarType type) {
  std::mt19937 random(static_cast<unsigned>(seed));
  const auto pick = [&](std::initializer_list<int64_t> choices) {
    return *(choices.begin() + random() % choices.size());
  };
  const int64_t B = pick({1, 1, 2}), Hkv = pick({1, 2}), H = Hkv * pick({1, 2});
  const int64_t L = 1 + random() % 300, S = random() % 2 ? L : 1 + random() % 300;
  const int64_t D = pick({1, 3, 59, 64, 111, 128, 256});
  at::manual_seed(static_cast<uint64_t>(seed));
  Fuzzed f;
  const auto draw = [&](int64_t heads, int64_t rows) {
    return laid_out(at::randn({B, heads, rows, D}, at::kDouble).to(type), pick({0, 1, 2, 3}));
  };
  f.x = {draw(H, L), draw(Hkv, S), draw(Hkv, S)};
  if (random() % 4 == 0) {  // one key head for all query heads, by stride 0
    f.x.k = f.x.k.slice(1, 0, 1).expand({B, Hkv, S, D});
    f.x.v = f.x.v.slice(1, 0, 1).expand({B, Hkv, S, D});
  }
  const auto i = at::arange(L).view({L, 1}), j = at::arange(S).view({1, S});
  f.visible = at::ones({1, 1, L, S}, at::kBool);
  if (const auto which = random() % 3; which > 0) {
    f.options.causal = which == 1 ? Causal::BottomRight : Causal::TopLeft;
    f.visible = f.visible.bitwise_and(j.le(i + (which == 1 ? S - L : 0)));
  }
  switch (random() % 4) {
    case 0: {
      const auto keep = at::rand({1, H, L, S}).gt(0.2);
      f.mask = keep;
      f.visible = f.visible.bitwise_and(keep);
      break;
    }
    case 1: {
      const auto lengths = at::randint(0, S + 1, {B}, at::kLong);
      f.mask = Mask::key_lengths(lengths);
      f.visible = f.visible.bitwise_and(j.lt(lengths.view({B, 1, 1, 1})));
      break;
    }
    case 2:
      f.bias = at::randn({B, 1, L, S}, at::kDouble).to(type);
      f.mask = Mask::bias(f.bias);
      break;
    default:
      break;
  }
  f.direction = laid_out(at::randn({B, H, L, D}, at::kDouble).to(type), pick({0, 1, 2}));
  return f;
}

using Results = std::vector<at::Tensor>;  // output, gradients of q, k and v

Tensors leaves_of(const Fuzzed& f, at::ScalarType type) {
  Tensors leaves{f.x.q.detach().to(type), f.x.k.detach().to(type), f.x.v.detach().to(type)};
  for (auto* x : {&leaves.q, &leaves.k, &leaves.v}) *x = x->detach().requires_grad_(true);
  return leaves;
}

Results differentiate(const Fuzzed& f, const std::function<at::Tensor(const Tensors&)>& call,
                      at::ScalarType type) {
  const auto leaves = leaves_of(f, type);
  const auto y = call(leaves);
  auto results = torch::autograd::grad({y}, {leaves.q, leaves.k, leaves.v}, {f.direction.to(type)});
  results.insert(results.begin(), y.detach());
  return results;
}

// Attention composed of plain operations in one dtype, in which every step is rounded, as in a textbook.
Results composed(const Fuzzed& f, at::ScalarType type) {
  return differentiate(
      f,
      [&](const Tensors& x) {
        const auto group = x.q.size(1) / x.k.size(1);
        const auto k = x.k.repeat_interleave(group, 1), v = x.v.repeat_interleave(group, 1);
        auto scores = at::matmul(x.q, k.transpose(2, 3)) / std::sqrt(static_cast<double>(x.q.size(3)));
        if (f.bias.defined()) scores = scores + f.bias.to(type);
        // Hidden scores get the lowest finite number and their weights become zero, so that rows without keys
        // are not NaN and others keep their softmax.
        const auto hidden = f.visible.bitwise_not();
        const double lowest = type == at::kHalf ? -65504.0 : -1e38;
        return at::matmul(at::softmax(scores.masked_fill(hidden, lowest), -1).masked_fill(hidden, 0.0), v);
      },
      type);
}

}  // namespace

// Invariant 1. The allowed error is twice that of the textbook in the same dtype, three times for gradients,
// plus two units in the last place of the largest number, in case the textbook happens to be exact.
TEST_CASE("every backend errs at most twice as much as the textbook in its dtype", "[invariants][fuzz]") {
  const auto type = GENERATE(from_range(kAllTypes));
  std::map<Backend, int> ran;
  for (int seed = 0; seed < 24; ++seed) {
    const auto f = fuzzed(seed, type);
    INFO("seed " << seed << ", " << c10::toString(type) << ", q " << f.x.q.sizes() << ", k "
                 << f.x.k.sizes());
    const auto want = composed(f, at::kDouble), plain = composed(f, type);
    AttentionExtras extras;
    extras.mask = f.mask;
    for (const auto backend : kNamedBackends) {
      if (!accepts(backend, leaves_of(f, type), f.options, extras)) continue;
      ++ran[backend];
      INFO("backend " << to_string(backend));
      const auto got = differentiate(
          f, [&](const Tensors& x) { return on(backend, x, f.options, f.mask); }, type);
      double largest = 0.0;
      for (size_t n = 1; n < want.size(); ++n)
        largest = std::max(largest, want[n].abs().max().item<double>());
      for (size_t n = 0; n < want.size(); ++n) {
        INFO("output, gradients of q, k, v: " << n);
        if (type == at::kDouble) {  // there is no wider dtype, so the oracle has errors of the same size
          CHECK(difference(got[n], want[n], tolerance_of(type, n > 0)) == "");
          continue;
        }
        const double size = n == 0 ? want[0].abs().max().item<double>() : largest;
        CHECK(largest_error(got[n], want[n]) <=
              (n == 0 ? 2 : 3) * largest_error(plain[n], want[n]) + 2 * unit_of(type) * size);
      }
    }
  }
  CHECK(ran[Backend::Reference] == 24);
  CHECK(ran[Backend::Torch] >= 12);
  if (type != at::kDouble) {
    if (ran[Backend::Native] == 0) WARN("no native kernel for this dtype on this processor");
  } else {
    CHECK(ran[Backend::Native] == 0);
  }
}

// Invariant 3.
TEST_CASE("a later token changes no bit of an earlier output on any backend", "[invariants]") {
  const auto backend = GENERATE(from_range(kNamedBackends));
  at::manual_seed(1);
  auto x = random_tensors(2, 2, 97, 97, 24);
  const AttentionOptions options{.causal = Causal::BottomRight};
  if (!accepts(backend, x, options)) SKIP("backend refuses");
  const auto before = on(backend, x, options);
  for (auto* t : {&x.q, &x.k, &x.v}) {
    *t = t->clone();
    t->slice(2, 60).normal_();
  }
  const auto after = on(backend, x, options);
  CHECK(bit_equal(before.slice(2, 0, 60), after.slice(2, 0, 60)));
  CHECK_FALSE(bit_equal(before, after));
}

// Invariant 4: with values of one, an output is the sum of its row of weights.
TEST_CASE("rows of weights sum to one or are zero, also where no weights are held", "[invariants]") {
  const auto backend = GENERATE(from_range(kNamedBackends));
  const int seed = GENERATE(range(0, 12));
  auto f = fuzzed(100 + seed, at::kFloat);
  f.x.v = at::ones_like(f.x.v, at::MemoryFormat::Contiguous);
  AttentionExtras extras;
  extras.mask = f.mask;
  if (!accepts(backend, f.x, f.options, extras)) return;
  const auto sums = on(backend, f.x, f.options, f.mask);
  const auto seen = f.visible.any(-1, true).expand(sums.sizes());
  CHECK(sums.masked_select(seen.bitwise_not()).eq(0).all().item<bool>());
  CHECK_WITHIN(sums.masked_select(seen), at::ones_like(sums.masked_select(seen)), {0.0, 1e-5});
  if (backend != Backend::Reference) return;
  extras.weights = Weights::Clean;
  f.options.backend = backend;
  const auto weights = attention(f.x.q, f.x.k, f.x.v, f.options, extras).weights;
  CHECK_WITHIN(weights.sum(-1, true), seen.slice(-1, 0, 1).to(at::kFloat), {0.0, 1e-5});
  CHECK(weights.masked_select(f.visible.bitwise_not().expand(weights.sizes())).eq(0).all().item<bool>());
}

// Invariant 5.
TEST_CASE("the order of keys does not matter, that of queries carries over", "[invariants]") {
  const auto backend = GENERATE(from_range(kNamedBackends));
  at::manual_seed(2);
  const auto x = random_tensors(2, 2, 83, 120, 16);
  const auto keep = at::rand({2, 120}).gt(0.3), pairs = at::rand({83, 120}).gt(0.1);
  const auto mask = Mask::key_keep(keep) & Mask(pairs);
  AttentionExtras extras;
  extras.mask = mask;
  if (!accepts(backend, x, {}, extras)) SKIP("backend refuses");
  const auto want = on(backend, x, {}, mask);
  const auto order = at::randperm(120, at::kLong), rows = at::randperm(83, at::kLong);
  const Tensors moved{x.q, x.k.index_select(2, order), x.v.index_select(2, order)};
  CHECK_CLOSE(on(backend, moved, {},
                 Mask::key_keep(keep.index_select(1, order)) & Mask(pairs.index_select(1, order))),
              want);
  const Tensors turned{x.q.index_select(2, rows), x.k, x.v};
  CHECK_CLOSE(on(backend, turned, {}, Mask::key_keep(keep) & Mask(pairs.index_select(0, rows))),
              want.index_select(2, rows));
}

// Invariant 6, for the function: a few new queries over all keys give the last rows of the whole call.
TEST_CASE("decoding step by step equals the whole sequence", "[invariants]") {
  const auto backend = GENERATE(from_range(kNamedBackends));
  const int64_t step = GENERATE(1, 3, 7);
  at::manual_seed(3);
  const auto x = random_tensors(2, 2, 42, 42, 24);
  const AttentionOptions options{.causal = Causal::BottomRight};
  const auto whole = on(Backend::Reference, x, options);
  for (int64_t end = step; end <= 42; end += step) {
    const Tensors part{x.q.slice(2, end - step, end), x.k.slice(2, 0, end), x.v.slice(2, 0, end)};
    REQUIRE(accepts(backend, part, options) == accepts(backend, x, options));
    if (!accepts(backend, part, options)) SKIP("backend refuses");
    CHECK_CLOSE(on(backend, part, options), whole.slice(2, end - step, end));
  }
}

// Invariant 7.
TEST_CASE("options that mean the same give the same", "[invariants]") {
  const auto backend = GENERATE(from_range(kNamedBackends));
  at::manual_seed(4);
  const auto x = random_tensors(2, 4, 70, 90, 16);
  const auto same = [&](const Tensors& a, const AttentionOptions& first, const Tensors& b,
                        const AttentionOptions& second, const Mask& mask_a = {}, const Mask& mask_b = {}) {
    AttentionExtras extras_a, extras_b;
    extras_a.mask = mask_a;
    extras_b.mask = mask_b;
    const auto left = accepts(backend, a, first, extras_a) ? backend : Backend::Reference;
    const auto right = accepts(backend, b, second, extras_b) ? backend : Backend::Reference;
    CHECK((left == backend || right == backend));
    CHECK_CLOSE(on(left, a, first, mask_a), on(right, b, second, mask_b));
  };
  const auto causal = AttentionOptions{.causal = Causal::BottomRight};
  if (!accepts(backend, x, causal)) SKIP("backend refuses");
  // A window longer than the sequence hides nothing, and a window that ends at the query itself is causality.
  same(x, {.causal = Causal::BottomRight, .window = {90, 0}}, x, causal);
  same(x, {.window = {90, 0}}, x, causal);
  same(x, {.window = {200, 300}}, x, {});
  // Grouped heads equal repeated heads.
  const Tensors grouped{x.q, x.k.slice(1, 0, 2), x.v.slice(1, 0, 2)};
  const Tensors repeated{x.q, grouped.k.repeat_interleave(2, 1), grouped.v.repeat_interleave(2, 1)};
  same(grouped, causal, repeated, causal);
  // Different ways to express causality, lengths and no mask are equivalent.
  const auto i = at::arange(70).view({70, 1}), j = at::arange(90).view({1, 90});
  same(x, causal, x, {}, {}, Mask::keep(j.le(i + 20)));
  same(x, {.causal = Causal::TopLeft}, x, {}, {}, Mask::hide(j.gt(i)));
  const auto lengths = at::full({2}, 33, at::kLong);
  same(x, {}, {x.q, x.k.slice(2, 0, 33), x.v.slice(2, 0, 33)}, {}, Mask::key_lengths(lengths));
  same(x, {}, x, {}, Mask::keep(at::ones({70, 90}, at::kBool)) & Mask::bias(at::zeros({70, 90})));
  same(x, {.scale = 0.5}, {x.q * 2, x.k, x.v}, {.scale = 0.25});
}

// Invariant 8: the gaps between rows in memory never affect a result.
TEST_CASE("NaN between the rows of the inputs changes no bit", "[invariants][nan]") {
  const auto backend = GENERATE(from_range(kNamedBackends));
  const int64_t L = GENERATE(5, 61, 130);
  at::manual_seed(5);
  const auto x = random_tensors(2, 2, L, 131, 17);
  const auto spread = [&](double filling) {
    const auto one = [&](const at::Tensor& t) {
      auto sizes = t.sizes().vec();
      for (auto& size : sizes) size += 2;
      auto inner = at::full(sizes, filling);
      for (int64_t d = 0; d < 4; ++d) inner = inner.slice(d, 1, 1 + t.size(d));
      inner.copy_(t);
      return inner;
    };
    return Tensors{one(x.q), one(x.k), one(x.v)};
  };
  const AttentionOptions options{.causal = Causal::BottomRight};
  const auto poisoned = spread(kNaN);
  if (!accepts(backend, poisoned, options)) SKIP("backend refuses");
  CHECK(bit_equal(on(backend, poisoned, options), on(backend, spread(0.0), options)));
}

// This package's own products do not depend on the position of a row, so that batching changes nothing.
TEST_CASE("the native kernel gives equal items equal bits, wherever they stand", "[invariants]") {
  const int64_t L = GENERATE(1, 5, 61, 130);
  const auto type = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  at::manual_seed(5);
  const auto one = random_tensors(1, 1, L, 131, 17, type);
  const auto several = [](const at::Tensor& t) { return t.expand({3, 2, -1, -1}).contiguous(); };
  const Tensors x{several(one.q), several(one.k), several(one.v)};
  const AttentionOptions options{.causal = Causal::BottomRight};
  if (!accepts(Backend::Native, x, options)) SKIP("no native kernel for this dtype on this processor");
  const auto y = on(Backend::Native, x, options);
  CHECK(bit_equal(y, several(y.narrow(0, 2, 1).narrow(1, 1, 1))));
}

// Invariant 9.
TEST_CASE("a hundred runs of one seed give the same bits, forward and backward", "[invariants]") {
  const auto backend = GENERATE(from_range(kNamedBackends));
  at::manual_seed(6);
  const auto x = random_tensors(1, 4, 70, 70, 16);
  AttentionOptions options{.causal = Causal::BottomRight, .dropout_p = 0.25};
  if (!accepts(backend, x, options)) options.dropout_p = 0.0;
  if (!accepts(backend, x, options)) SKIP("backend refuses");
  const auto run = [&] {
    std::vector<at::Tensor> leaves;
    for (const auto& t : {x.q, x.k, x.v}) leaves.push_back(t.detach().clone().requires_grad_(true));
    at::manual_seed(7);
    const auto y = on(backend, {leaves[0], leaves[1], leaves[2]}, options);
    auto results = torch::autograd::grad({y.square().sum()}, leaves);
    results.push_back(y.detach());
    return results;
  };
  const auto first = run();
  bool same = true;
  for (int n = 0; n < 99; ++n) {
    const auto again = run();
    for (size_t t = 0; t < first.size(); ++t) same = same && bit_equal(first[t], again[t]);
  }
  CHECK(same);
}

// Bad input 1, on every backend.
TEST_CASE("a row without keys is zero and so is its gradient on every backend", "[invariants][empty]") {
  const auto backend = GENERATE(from_range(kNamedBackends));
  const auto type = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  at::manual_seed(8);
  const auto x = random_tensors(1, 2, 40, 50, 8, type);
  auto keep = at::ones({40, 50}, at::kBool);
  keep[3].fill_(false);
  AttentionExtras extras;
  extras.mask = keep;
  if (!accepts(backend, x, {}, extras)) SKIP("backend refuses");
  auto q = x.q.clone().requires_grad_(true);
  const auto y = on(backend, {q, x.k, x.v}, {}, keep);
  const auto gradient = torch::autograd::grad({y.to(at::kFloat).square().sum()}, {q})[0];
  CHECK(y.select(2, 3).eq(0).all().item<bool>());
  CHECK(gradient.select(2, 3).eq(0).all().item<bool>());
  CHECK(gradient.isfinite().all().item<bool>());
}

// Bad input 4: large negative numbers that are often used instead of -inf. A row with only such biases is the
// mean of all values, and each value gets its share of the gradient. PyTorch's fused kernel would give each
// value the whole gradient, so that backend refuses to differentiate; the native kernel stores maximum and
// total separately.
TEST_CASE("a row of a huge negative bias is the mean on every backend", "[invariants][empty]") {
  const auto backend = GENERATE(from_range(kNamedBackends));
  const auto type = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  const double huge = GENERATE(-1e4, -1e9, -3.38e38);
  if (type == at::kHalf && huge < -65504.0) return;
  const bool causal = GENERATE(false, true);
  at::manual_seed(8);
  auto x = random_tensors(1, 2, 50, 50, 8, type);
  x.q = at::zeros_like(x.q);  // so that a bias of -1e4 swallows no score
  const AttentionOptions options{.causal = causal ? Causal::BottomRight : Causal::None};
  auto bias = at::zeros({50, 50}).to(type);
  // The row has only such biases: the last row, or a row whose other keys causality hides.
  const int64_t row = causal ? 20 : 49;
  bias[row].slice(0, 0, row + 1).fill_(huge);
  AttentionExtras extras;
  extras.mask = Mask::bias(bias);
  const auto mean = x.v.slice(2, 0, row + 1).to(at::kDouble).mean(2);
  const auto check_output = [&](const at::Tensor& y) {
    CHECK(difference(y.select(2, row), mean, tolerance_of(type)) == "");
  };
  if (accepts(backend, x, options, extras)) check_output(on(backend, x, options, extras.mask));
  const bool forward = accepts(backend, x, options, extras);
  x.v.requires_grad_(true);
  CHECK(accepts(backend, x, options, extras) == (forward && backend != Backend::Torch));
  if (!accepts(backend, x, options, extras)) return;
  const auto y = on(backend, x, options, extras.mask);
  check_output(y);
  const auto gradient = torch::autograd::grad({y.select(2, row).to(at::kFloat).sum()}, {x.v})[0];
  const auto share = at::full({1, 2, row + 1, 8}, 1.0 / static_cast<double>(row + 1));
  CHECK(difference(gradient.slice(2, 0, row + 1), share, tolerance_of(type, true)) == "");
  // Auto must therefore not choose PyTorch's kernel.
  CHECK(explain(x.q, x.k, x.v, options, extras).chosen != Backend::Torch);
}

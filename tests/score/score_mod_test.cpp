#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/attention.h>
#include <attentive/score/score_mod.h>

#include "support/compare.h"
#include "support/memory_meter.h"

using namespace attentive;
using namespace attentive::test;

namespace {

struct Call {
  at::Tensor q, k, v;
};

Call call_of(int64_t queries, int64_t keys, int64_t heads = 4, int64_t kv_heads = 2,
             at::ScalarType type = at::kFloat) {
  at::manual_seed(5);
  const auto draw = [&](int64_t h, int64_t rows) {
    return at::randn({2, h, rows, 16}, at::kDouble).to(type);
  };
  return {draw(heads, queries), draw(kv_heads, keys), draw(kv_heads, keys)};
}

at::Tensor attend(const Call& c, const AttentionExtras& extras, Backend backend,
                  AttentionOptions options = {}) {
  options.backend = backend;
  return attention(c.q, c.k, c.v, options, extras).output;
}

auto MessageContains(const std::string& text) {
  return Catch::Matchers::MessageMatches(Catch::Matchers::ContainsSubstring(text));
}

constexpr std::array kBackends = {Backend::Reference, Backend::Native};

}  // namespace

TEST_CASE("a score function sees the scaled and capped score, and biases and masks follow", "[score]") {
  const auto c = call_of(37, 45);
  const double cap = 2.0, scale = 0.3;
  const auto bias = at::randn({37, 45}), keep = at::rand({37, 45}).gt(0.3);
  const auto slopes = at::rand({4});
  const auto mask = Mask::bias(bias) & Mask::keep(keep);
  const auto score = score_mod([](auto s, auto pair) { return s * s + 0.01f * pair.key; });
  const auto k = c.k.repeat_interleave(2, 1), v = c.v.repeat_interleave(2, 1);
  auto s = cap * at::tanh(at::matmul(c.q, k.transpose(2, 3)) * scale / cap);
  s = s * s + 0.01 * at::arange(45);
  const auto distance = (at::arange(37).unsqueeze(1) + (45 - 37) - at::arange(45)).abs();
  s = s + bias - slopes.view({4, 1, 1}) * distance;
  s = s.masked_fill(keep.bitwise_not(), -std::numeric_limits<double>::infinity());
  const auto want = at::matmul(at::softmax(s, -1), v);
  for (const auto backend : kBackends) {
    const auto got = attend(c, {.mask = mask, .alibi_slopes = slopes, .score = score}, backend,
                            {.scale = scale, .softcap = cap});
    CHECK_WITHIN(got, want, {1e-5, 1e-5});
  }
}

TEST_CASE("places count from the last key, and lengths are those of the call", "[score]") {
  const auto queries = GENERATE(1, 5, 16, 17, 130);
  const int64_t keys = 150;
  const auto c = call_of(queries, keys);
  const auto place = GENERATE(range(0, 6));
  const auto score = score_mod([=](auto s, auto pair) {
    const auto pick = [&](auto, auto chosen) { return 0.0f * s + chosen; };
    if (place == 0) return pick(s, pair.batch * 1);
    if (place == 1) return pick(s, pair.head * 1);
    if (place == 2) return pick(s, 0.01f * pair.query);
    if (place == 3) return pick(s, 0.01f * pair.key);
    if (place == 4) return pick(s, 0.01f * pair.queries);
    return pick(s, 0.01f * pair.keys);
  });
  const auto size = [&](int dimension, int64_t first, int64_t n) {
    std::array<int64_t, 4> sizes = {1, 1, 1, 1};
    sizes[static_cast<size_t>(dimension)] = n;
    return at::arange(first, first + n).to(at::kDouble).view(sizes).expand({2, 4, queries, keys});
  };
  const std::array want = {size(0, 0, 2),
                           size(1, 0, 4),
                           0.01 * size(2, keys - queries, queries),
                           0.01 * size(3, 0, keys),
                           at::full({2, 4, queries, keys}, 0.01 * static_cast<double>(queries), at::kDouble),
                           at::full({2, 4, queries, keys}, 0.01 * static_cast<double>(keys), at::kDouble)};
  for (const auto backend : kBackends) {
    INFO("place " << place << ", backend " << to_string(backend));
    const auto result = attention(c.q, c.k, c.v, {.backend = backend},
                                  {.score = score, .normalise = Normalise::None, .weights = Weights::Clean});
    CHECK_WITHIN(result.weights, want[static_cast<size_t>(place)], {1e-6, 1e-6});
  }
}

TEST_CASE("a result of NaN for a hidden pair reaches nothing", "[score]") {
  const auto c = call_of(70, 90);
  for (const auto* x : {&c.q, &c.k, &c.v}) x->requires_grad_(true);
  const auto keep = at::rand({70, 90}).gt(0.4);
  const auto poison = captured(at::zeros({70, 90}).masked_fill(keep.bitwise_not(), kNaN));
  const auto factors = at::ones({4}).requires_grad_(true);
  const auto factor = captured(factors);
  const auto poisoned = score_mod(
      [=](auto s, auto pair) { return factor(pair.head) * (s + poison(pair.query - 20, pair.key) * s); });
  const auto clean = score_mod([=](auto s, auto pair) { return factor(pair.head) * s; });
  for (const auto backend : kBackends) {
    const auto want = attend(c, {.mask = Mask::keep(keep), .score = clean}, backend);
    const auto got = attend(c, {.mask = Mask::keep(keep), .score = poisoned}, backend);
    CHECK_WITHIN(got, want, {1e-6, 1e-6});
    const auto gradients = torch::autograd::grad({got.sum()}, {c.q, c.k, c.v, factors});
    const auto wanted = torch::autograd::grad({want.sum()}, {c.q, c.k, c.v, factors});
    for (size_t n = 0; n < 4; ++n) CHECK_WITHIN(gradients[n], wanted[n], {1e-5, 1e-5});
  }
}

TEST_CASE("a lookup beyond a captured tensor is refused, unless the pair is hidden", "[score][errors]") {
  const auto queries = GENERATE(3, 40, 200);
  const auto c = call_of(queries, 200);
  const auto table = captured(at::rand({200}));
  const auto score = score_mod([=](auto s, auto pair) { return s + table(pair.query - pair.key); });
  const auto mask = mask_mod([=](auto pair) { return table(pair.query - pair.key) > 0.5f; });
  for (const auto backend : kBackends) {
    INFO("backend " << to_string(backend));
    // A causal call looks up no future key.
    CHECK_NOTHROW(attend(c, {.score = score}, backend, {.causal = Causal::BottomRight}));
    const auto past = Mask::keep(at::ones({queries, 200}, at::kBool).tril(200 - queries));
    CHECK_NOTHROW(attend(c, {.mask = past, .score = score}, backend));
    CHECK_NOTHROW(attend(c, {.mask = past, .block_mask = mask}, backend));
    CHECK_NOTHROW(
        attend(c, {.score = score, .block_mask = mask_mod([](auto pair) { return pair.key <= pair.query; })},
               backend));
    if (queries == 1) continue;
    CHECK_THROWS_MATCHES(
        attend(c, {.score = score}, backend), c10::IndexError,
        MessageContains("captured: expected index 0 of a tensor of shape (200,) in [0, 200), got -"));
    CHECK_THROWS_MATCHES(attend(c, {.block_mask = mask}, backend), c10::IndexError,
                         MessageContains("in [0, 200), got -"));
  }
  // Neighbouring numbers are read at once, but not beyond the end.
  const auto few = captured(at::rand({190}));
  const auto by_key = score_mod([=](auto s, auto pair) { return s + few(pair.key); });
  const auto from_the_end = score_mod([=](auto s, auto pair) { return s + few(pair.keys - 1 - pair.key); });
  for (const auto backend : kBackends) {
    INFO("backend " << to_string(backend));
    CHECK_NOTHROW(
        attend(c, {.mask = Mask::key_lengths(at::full({2}, 190, at::kLong)), .score = by_key}, backend));
    for (const auto& beyond : {by_key, from_the_end}) {
      CHECK_THROWS_MATCHES(attend(c, {.score = beyond}, backend), c10::IndexError,
                           MessageContains("in [0, 190), got 19"));
    }
  }
}

// Rows are computed several at a time, and the error is that of the first visible pair.
TEST_CASE("a lookup beyond a captured tensor is found in every row", "[score][errors]") {
  const int64_t bad = GENERATE(0, 1, 7, 8, 13, 39);
  const auto c = call_of(40, 40);
  const auto table = captured(at::rand({40}));
  const auto score = score_mod([=](auto s, auto pair) {
    return s + table(min(pair.key, 0) + max(pair.query - bad + 1, 0) * 1000 +
                     max(pair.query - bad, 0) * pair.key);
  });
  const auto before = Mask::keep(at::arange(40).lt(bad).unsqueeze(1).expand({40, 40}));
  for (const auto backend : kBackends) {
    INFO("backend " << to_string(backend) << ", query " << bad);
    CHECK_NOTHROW(attend(c, {.mask = before, .score = score}, backend));
    CHECK_THROWS_MATCHES(attend(c, {.score = score}, backend), c10::IndexError,
                         MessageContains("captured: expected index 0 of a tensor of shape (40,) in [0, 40)"));
  }
  CHECK_THROWS_MATCHES(attend(c, {.score = score}, Backend::Native), c10::IndexError,
                       MessageContains("got 1000"));
}

// A softmax does not change if all scores of a query grow alike, unless they overflow.
TEST_CASE("the largest score of a query is its own", "[score]") {
  const auto c = call_of(40, 300);
  const auto same = score_mod([](auto s, auto) { return s; });
  const auto grown = score_mod([](auto s, auto pair) { return s + 64.0f * (pair.query - 260); });
  const auto want = attend(c, {.score = same}, Backend::Native);
  CHECK_WITHIN(attend(c, {.score = grown}, Backend::Native), want, {1e-3, 1e-3});
}

TEST_CASE("logarithms of lengths are those of the call", "[score]") {
  const auto queries = GENERATE(1, 2, 20);
  const auto keys = GENERATE(21, 300);
  const auto c = call_of(queries, keys);
  for (auto x : {c.q, c.k, c.v}) x.requires_grad_(true);
  const float log_queries = std::log(static_cast<float>(queries)),
              log_keys = std::log(static_cast<float>(keys));
  const auto given =
      score_mod([](auto s, auto pair) { return sigmoid(s * log(pair.queries) - log(pair.keys)); });
  const auto numbers = score_mod([=](auto s, auto) { return sigmoid(s * log_queries - log_keys); });
  for (const auto backend : kBackends) {
    INFO("backend " << to_string(backend) << ", " << queries << " queries, " << keys << " keys");
    const auto got = attend(c, {.score = given, .normalise = Normalise::None}, backend);
    const auto want = attend(c, {.score = numbers, .normalise = Normalise::None}, backend);
    CHECK_WITHIN(got, want, {1e-6, 1e-6});
    const auto gradients = torch::autograd::grad({got.sum()}, {c.q, c.k, c.v});
    const auto wanted = torch::autograd::grad({want.sum()}, {c.q, c.k, c.v});
    for (size_t n = 0; n < 3; ++n) CHECK_WITHIN(gradients[n], wanted[n], {1e-6, 1e-6});
  }
}

TEST_CASE("captured tensors of any shape and dtype are read by their indices", "[score]") {
  const auto c = call_of(33, 47);
  const auto four = at::randn({2, 4, 50, 50});
  struct Case {
    const char* name;
    at::Tensor tensor;
  };
  const auto cases = {Case{"float32", four},
                      Case{"strided", four.transpose(2, 3)},
                      Case{"expanded", four.narrow(0, 0, 1).expand({2, 4, 50, 50})},
                      Case{"float64", four.to(at::kDouble)},
                      Case{"bfloat16", four.to(at::kBFloat16)},
                      Case{"float16", four.to(at::kHalf)},
                      Case{"bool", four.gt(0)}};
  for (const auto& one : cases) {
    INFO(one.name);
    const auto table = captured(one.tensor);
    const auto score =
        score_mod([=](auto s, auto pair) { return s + table(pair.batch, pair.head, pair.query, pair.key); });
    const auto bias = one.tensor.to(at::kFloat).slice(2, 14, 47).slice(3, 0, 47);
    const auto want = attend(c, {.mask = Mask::bias(bias)}, Backend::Reference);
    for (const auto backend : kBackends)
      CHECK_WITHIN(attend(c, {.score = score}, backend), want, {1e-5, 1e-5});
  }
  // Neighbouring keys whose numbers are not neighbours.
  const auto numbers = at::randn({47, 4});
  const auto by_key = captured(numbers);
  const auto rows = score_mod([=](auto s, auto pair) { return s + by_key(pair.key, pair.head); });
  const auto biased = attend(c, {.mask = Mask::bias(numbers.t().reshape({1, 4, 1, 47}))}, Backend::Reference);
  for (const auto backend : kBackends)
    CHECK_WITHIN(attend(c, {.score = rows}, backend), biased, {1e-5, 1e-5});
  const auto number = captured(at::full({}, 0.5)), vector = captured(at::tensor({7.0, 0.25}));
  const auto flat = score_mod([=](auto s, auto pair) { return number(pair) * s + vector(pair, 1) * s; });
  const auto want = attend(c, {}, Backend::Reference, {.scale = 0.75 / 4});
  for (const auto backend : kBackends) CHECK_WITHIN(attend(c, {.score = flat}, backend), want, {1e-5, 1e-5});
}

TEST_CASE("wrong captured tensors and lookups are refused by name", "[score][errors]") {
  CHECK_THROWS_MATCHES(captured(at::Tensor()), c10::ValueError, MessageContains("tensor"));
  CHECK_THROWS_MATCHES(captured(at::arange(3)), c10::TypeError,
                       MessageContains("captured_indices takes integers"));
  CHECK_THROWS_MATCHES(captured(at::zeros({1, 1, 1, 1, 1})), c10::ValueError,
                       MessageContains("at most 4 dimensions"));
  CHECK_THROWS_MATCHES(captured_indices(at::rand({3})), c10::TypeError,
                       MessageContains("expected a tensor of integers"));
  const auto c = call_of(4, 4);
  const auto table = captured(at::rand({4, 4}));
  const auto ids = captured_indices(at::full({4}, int64_t{1} << 40, at::kLong));
  const auto wrong_rank = score_mod([=](auto s, auto pair) { return s + table(pair.key); });
  const auto huge = mask_mod([=](auto pair) { return ids(pair.key) == ids(pair.query); });
  const auto zero = score_mod([](auto s, auto pair) { return s + pair.key / (pair.batch * 0); });
  for (const auto backend : kBackends) {
    CHECK_THROWS_MATCHES(attend(c, {.score = wrong_rank}, backend), c10::ValueError,
                         MessageContains("captured: expected 2 indices for a tensor of shape (4, 4), got 1"));
    CHECK_THROWS_MATCHES(attend(c, {.score = zero}, backend), c10::ValueError,
                         MessageContains("divided by 0"));
  }
  CHECK_THROWS_MATCHES(attend(c, {.block_mask = huge}, Backend::Native), c10::ValueError,
                       MessageContains("captured_indices: expected numbers of the range of int32"));
}

TEST_CASE("gradients of captured tensors have the same bits for any number of threads", "[score]") {
  const auto c = call_of(150, 150, 6, 6);
  const auto table = at::randn({6, 400}).requires_grad_(true), scale = at::rand({}).requires_grad_(true);
  const auto t = captured(table), u = captured(scale);
  const auto score = score_mod([=](auto s, auto pair) {
    return s * u(pair) + t(pair.head, pair.query - pair.key + 200) * t(pair.head, pair.key);
  });
  const auto gradients = [&] {
    return torch::autograd::grad({attend(c, {.score = score}, Backend::Native).square().sum()},
                                 {table, scale});
  };
  const auto threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto one = gradients();
  at::set_num_threads(3);
  const auto three = gradients();
  at::set_num_threads(threads);
  CHECK(at::equal(one[0], three[0]));
  CHECK(at::equal(one[1], three[1]));
  CHECK(one[0].abs().max().item<float>() > 0.0f);
}

TEST_CASE("a captured tensor that changed before the backward pass is an error", "[score][errors]") {
  const auto c = call_of(20, 20);
  auto weight = at::rand({4});
  const auto table = captured(weight);
  const auto score = score_mod([=](auto s, auto pair) { return s * table(pair.head); });
  c.q.requires_grad_(true);
  const auto y = attend(c, {.score = score}, Backend::Native);
  weight.add_(1);
  CHECK_THROWS_MATCHES(torch::autograd::grad({y.sum()}, {c.q}), c10::Error,
                       MessageContains("modified by an inplace operation"));
}

TEST_CASE("an exception of a score function reaches the caller, and the next call works", "[score][errors]") {
  const auto c = call_of(300, 300);
  const auto bad = score_mod([](auto s, auto pair) {
    if constexpr (requires { pair.query.row; }) {
      if (pair.query.row->head == 3) throw std::runtime_error("of my own");
    }
    return s;
  });
  CHECK_THROWS_MATCHES(attend(c, {.score = bad}, Backend::Native), std::runtime_error,
                       MessageContains("of my own"));
  CHECK_NOTHROW(attend(c, {}, Backend::Native));
}

TEST_CASE("several threads may call one score function", "[score]") {
  const auto c = call_of(90, 90);
  const auto table = captured(at::rand({4, 200}));
  const auto score =
      score_mod([=](auto s, auto pair) { return s + table(pair.head, pair.query - pair.key + 100); });
  const auto want = attend(c, {.score = score}, Backend::Native);
  std::vector<at::Tensor> got(4);
  std::vector<std::thread> threads;
  for (auto& one : got) threads.emplace_back([&] { one = attend(c, {.score = score}, Backend::Native); });
  for (auto& thread : threads) thread.join();
  for (const auto& one : got) CHECK(at::equal(one, want));
}

TEST_CASE("a training step with own functions takes memory of O(T)", "[score]") {
  if (const auto reason = why_no_peak_memory()) SKIP(*reason);
  constexpr int64_t kTokens = 4096;
  at::manual_seed(1);
  const auto draw = [] { return at::randn({1, 1, kTokens, 16}).requires_grad_(true); };
  const auto q = draw(), k = draw(), v = draw();
  const auto table = at::randn({2 * kTokens}).requires_grad_(true);
  const auto t = captured(table);
  const auto score = score_mod([=](auto s, auto pair) { return s + t(pair.query - pair.key + pair.keys); });
  const auto mask = mask_mod([](auto pair) { return (pair.key <= pair.query) & (pair.key % 5 != 3); });
  const auto step = [&] {
    torch::autograd::grad(
        {attention(q, k, v, {.backend = Backend::Native}, {.score = score, .block_mask = mask}).output.sum()},
        {q, k, v, table});
  };
  step();
  CHECK(peak_memory(step) < size_t{kTokens} * kTokens);  // a quarter of one matrix of scores
}

TEST_CASE("without a softmax, a window may begin inside a vector of keys", "[score]") {
  const auto type = GENERATE(at::kFloat, at::kBFloat16);
  const auto score = score_mod([](auto s, auto) { return sigmoid(s) + 0.5f; });
  for (const int64_t keys : {21, 70, 200}) {
    INFO(type << ", " << keys << " keys");
    const auto c = call_of(keys, keys, 4, 2, type);
    const AttentionOptions window{.causal = Causal::BottomRight, .window = {5, 0}};
    const AttentionExtras extras{.score = score, .normalise = Normalise::None};
    const Call wide{c.q.to(at::kDouble), c.k.to(at::kDouble), c.v.to(at::kDouble)};
    CHECK_WITHIN(attend(c, extras, Backend::Native, window).to(at::kDouble),
                 attend(wide, extras, Backend::Reference, window), {4 * unit_of(type), 4 * unit_of(type)});
  }
}

TEST_CASE("a name is kept, and an empty function is none", "[score]") {
  CHECK_FALSE(static_cast<bool>(ScoreMod()));
  CHECK(ScoreMod().name().empty());
  CHECK(score_mod([](auto s, auto) { return s; }, "identity").name() == "identity");
  CHECK(mask_mod([](auto pair) { return pair.key >= 0; }).name() == "mask_mod");
  const auto c = call_of(8, 8);
  for (const auto backend : kBackends)
    CHECK(at::equal(attend(c, {.score = ScoreMod(), .block_mask = MaskMod()}, backend),
                    attend(c, {}, backend)));
}

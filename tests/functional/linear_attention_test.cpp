#include <ATen/autocast_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/attention.h>
#include <attentive/functional/linear_attention.h>
#include <attentive/modules/multi_head_attention.h>

#include "support/compare.h"
#include "support/gradcheck.h"
#include "support/memory_meter.h"
#include "support/module_suite.h"

using namespace attentive;
using attentive::test::doubles;
using attentive::test::kNaN;
using attentive::test::table;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

at::Tensor sentence() {
  return table({{.43f, .15f, .89f},
                {.55f, .87f, .66f},
                {.57f, .85f, .64f},
                {.22f, .58f, .33f},
                {.77f, .25f, .10f},
                {.05f, .80f, .55f}});
}

// The quadratic definition, which computes the weight of every pair. q (B, H, L, D), k (B, H, S, D), v (B, H,
// S, Dv).
at::Tensor quadratic(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, Causal causal,
                     const at::Tensor& keep = {}, double eps = 0.0) {
  const int64_t L = q.size(2), S = k.size(2);
  auto weights = at::matmul(at::elu(q) + 1, (at::elu(k) + 1).transpose(2, 3));
  const auto i = at::arange(L).unsqueeze(1), j = at::arange(S);
  if (causal == Causal::BottomRight) weights = weights.masked_fill(j.gt(i + (S - L)), 0.0);
  if (causal == Causal::TopLeft) weights = weights.masked_fill(j.gt(i), 0.0);
  if (keep.defined()) weights = weights.masked_fill(keep.logical_not().unsqueeze(1).unsqueeze(1), 0.0);
  const auto total = weights.sum(3, true) + eps;
  return at::matmul(weights, v) / total.masked_fill(total.eq(0), 1.0);
}

}  // namespace

TEST_CASE("linear_attention gives the anchors of the sentence", "[linear_attention]") {
  const auto x = sentence();
  const auto all = linear_attention(x, x, x);
  CHECK_CLOSE(all, table({{0.43633022904f, 0.59589284658f, 0.54505246877f},
                          {0.43511104584f, 0.60147947073f, 0.54177206755f},
                          {0.43536129594f, 0.60126322508f, 0.54160374403f},
                          {0.43459379673f, 0.60235023499f, 0.54173690081f},
                          {0.44123190641f, 0.59599596262f, 0.53782993555f},
                          {0.43186381459f, 0.60466557741f, 0.54361301661f}}));
  const auto causal = linear_attention(x, x, x, {.causal = Causal::BottomRight});
  const auto zero = at::zeros({1, 1}, at::kDouble).requires_grad_(true);  // where elu has its kink
  const auto two = at::tensor({1.0, 2.0}, at::kDouble).view({2, 1});
  const auto keys = at::cat({zero, at::ones({1, 1}, at::kDouble)});
  linear_attention(at::ones({1, 1}, at::kDouble), keys, two).sum().backward();
  CHECK_CLOSE(zero.grad(),
              at::full({1, 1}, -2.0 / 9.0, at::kDouble));  // (1 f + 2 * 2) / (f + 2), f = 1, f' = 1
  CHECK_CLOSE(causal, table({{0.43000000715f, 0.15000000596f, 0.89000004530f},
                             {0.49427220225f, 0.53563308716f, 0.76681160927f},
                             {0.52060061693f, 0.64491933584f, 0.72272408009f},
                             {0.45397013426f, 0.63128554821f, 0.63522219658f},
                             {0.51377487183f, 0.55816906691f, 0.53557330370f},
                             {0.43186381459f, 0.60466557741f, 0.54361301661f}}));
}

TEST_CASE("linear_attention equals its quadratic definition", "[linear_attention]") {
  for (const auto& [L, S] : {std::pair<int64_t, int64_t>{7, 7}, {3, 8}, {8, 3}, {1, 5}, {5, 1}}) {
    for (const auto causal : {Causal::None, Causal::BottomRight, Causal::TopLeft}) {
      const auto q = doubles({2, 4, L, 3}), k = doubles({2, 2, S, 3}), v = doubles({2, 2, S, 5});
      const auto per_head = [](const at::Tensor& x) { return x.repeat_interleave(2, 1); };
      const auto want = quadratic(q, per_head(k), per_head(v), causal);
      for (const int64_t chunk : {1, 2, 3, 128}) {
        INFO("L " << L << " S " << S << " causal " << to_string(causal) << " chunk " << chunk);
        CHECK_CLOSE(linear_attention(q, k, v, {.causal = causal, .chunk_size = chunk}), want);
      }
    }
  }
}

TEST_CASE("linear_attention: gradients equal differences", "[linear_attention]") {
  const auto keep = at::tensor({1, 1, 0, 1, 1, 1, 0, 1, 1, 1}).view({2, 5}).to(at::kBool);
  for (const auto causal : {Causal::None, Causal::BottomRight, Causal::TopLeft}) {
    for (const int64_t L : {3, 5, 7}) {
      INFO("L " << L << " causal " << to_string(causal));
      CHECK(test::gradcheck(
                [&](const std::vector<at::Tensor>& x) {
                  return linear_attention(x[0], x[1], x[2], {.causal = causal, .chunk_size = 2},
                                          Mask::key_keep(keep));
                },
                {doubles({2, 4, L, 3}), doubles({2, 2, 5, 3}), doubles({2, 2, 5, 2})}) == "");
    }
  }
}

TEST_CASE("linear_attention: second derivatives equal those of the definition", "[linear_attention]") {
  const auto q = doubles({1, 1, 5, 2}).requires_grad_(true), k = doubles({1, 1, 5, 2}).requires_grad_(true),
             v = doubles({1, 1, 5, 2}).requires_grad_(true);
  const auto second = [&](const at::Tensor& y) {
    const auto first = torch::autograd::grad({y.square().sum()}, {q, k, v}, {}, true, /*create_graph=*/true);
    return torch::autograd::grad({(first[0] * first[1] * first[2]).sum()}, {q, k, v});
  };
  const auto got = second(linear_attention(q, k, v, {.causal = Causal::BottomRight, .chunk_size = 2}));
  const auto want = second(quadratic(q, k, v, Causal::BottomRight));
  for (size_t n = 0; n < 3; ++n) CHECK_WITHIN(got[n], want[n], {1e-10, 0.0});
}

TEST_CASE("linear_attention: memory is linear in the tokens", "[linear_attention]") {
  const auto peak = [](int64_t tokens, at::Tensor* last) {
    at::manual_seed(1);
    const auto leaf = [&] { return at::randn({1, 1, tokens, 16}).requires_grad_(true); };
    const auto q = leaf(), k = leaf(), v = leaf();
    const test::MemoryMeter meter;
    const auto y = linear_attention(q, k, v, {.causal = Causal::BottomRight});
    y.sum().backward();
    if (last) {
      // The last row of a causal call sees every key, as each row of a non-causal call does.
      const at::NoGradGuard no_grad;
      *last = (y - linear_attention(q, k, v)).select(2, tokens - 1).abs().max();
      CHECK(k.grad().isfinite().all().item<bool>());
    }
    return meter.peak();
  };
  at::Tensor error;
  constexpr int64_t kManyTokens = 65536;
  const int64_t half = peak(kManyTokens / 2, nullptr), whole = peak(kManyTokens, &error);
  CHECK(half > 0);
  CHECK(whole < 2.05 * half);
  CHECK(whole < 20 * kManyTokens * 16 * 4);  // 20 tensors of q's size; the weights alone would be 4096
  CHECK(error.item<double>() < 1e-5);
}

TEST_CASE("linear_attention: a user's feature map", "[linear_attention]") {
  const auto q = doubles({1, 2, 4, 3}), k = doubles({1, 2, 4, 3}), v = doubles({1, 2, 4, 2});
  // The second-order expansion of exp, 1 + q.k + (q.k)^2 / 2, as a product of features.
  const LinearAttentionCall taylor{
      .causal = Causal::BottomRight, .feature_map = [](const at::Tensor& x) {
        const auto squares = (x.unsqueeze(-1) * x.unsqueeze(-2)).flatten(-2);
        return at::cat({at::ones_like(x.slice(-1, 0, 1)), x, squares / 1.4142135623730951}, -1);
      }};
  const auto dots = at::matmul(q, k.transpose(2, 3));
  const auto weights = (1 + dots + dots * dots / 2).tril();
  CHECK_CLOSE(linear_attention(q, k, v, taylor), at::matmul(weights, v) / weights.sum(3, true));
  CHECK_CLOSE(linear_attention(q, k, v, {.eps = 0.5}), quadratic(q, k, v, Causal::None, {}, 0.5));

  // Features that are all zero make the denominator zero.
  const LinearAttentionCall zero{.feature_map = [](const at::Tensor& x) { return at::relu(x); }};
  auto negative = at::full({1, 1, 2, 3}, -1.0).requires_grad_(true);
  const auto y = linear_attention(negative, at::ones({1, 1, 2, 3}), at::ones({1, 1, 2, 3}), zero);
  y.sum().backward();
  CHECK_CLOSE(y, at::zeros({1, 1, 2, 3}));
  CHECK_CLOSE(negative.grad(), at::zeros({1, 1, 2, 3}));
}

TEST_CASE("linear_attention keeps the digits of tiny features", "[linear_attention]") {
  // expm1(x) + 1 is 0 in float32 for both keys; their ratio is e.
  const auto k = table({{-20.0f}, {-21.0f}});
  CHECK_CLOSE(linear_attention(at::zeros({1, 1}), k, table({{1.0f}, {0.0f}})), table({{0.73105858f}}));
}

TEST_CASE("linear_attention: hidden keys", "[linear_attention]") {
  const auto q = doubles({2, 1, 5, 3}), k = doubles({2, 1, 5, 3}), v = doubles({2, 1, 5, 3});
  const auto lengths = at::tensor({3, 0}, at::kLong);
  const auto keep = at::arange(5).lt(lengths.unsqueeze(1));
  const auto poison = [&](const at::Tensor& x) {
    return x.masked_fill(keep.logical_not().unsqueeze(1).unsqueeze(3), kNaN).requires_grad_(true);
  };
  for (const auto causal : {Causal::None, Causal::BottomRight}) {
    const auto bad_k = poison(k), bad_v = poison(v);
    const auto y = linear_attention(q, bad_k, bad_v, {.causal = causal}, Mask::key_lengths(lengths));
    CHECK_CLOSE(y, quadratic(q, k, v, causal, keep));
    CHECK_CLOSE(y[1], at::zeros({1, 5, 3}, at::kDouble));
    CHECK(bit_equal(y, linear_attention(q, k, v, {.causal = causal}, Mask::key_keep(keep))));
    y.sum().backward();
    CHECK(bad_k.grad().isfinite().all().item<bool>());
    CHECK(
        bad_v.grad().masked_select(keep.logical_not().unsqueeze(1).unsqueeze(3)).abs().sum().item<double>() ==
        0.0);
  }
  // With the top-left alignment and more keys than queries, no query sees the last keys.
  const auto tail = k.clone();
  tail.slice(2, 3).fill_(kNaN);
  const auto short_q = q.slice(2, 0, 3);
  CHECK(bit_equal(linear_attention(short_q, tail, tail, {.causal = Causal::TopLeft}),
                  linear_attention(short_q, k, k, {.causal = Causal::TopLeft})));
}

TEST_CASE("linear_attention: causality, ranks, dtypes and empty sizes", "[linear_attention]") {
  const auto q = at::randn({2, 2, 9, 4}), k = at::randn({2, 2, 9, 4}), v = at::randn({2, 2, 9, 4});
  const LinearAttentionCall causal{.causal = Causal::BottomRight, .chunk_size = 4};
  auto later = k.clone();
  later.slice(2, 6).fill_(3.0);
  CHECK(bit_equal(linear_attention(q, later, v, causal).slice(2, 0, 6),
                  linear_attention(q, k, v, causal).slice(2, 0, 6)));
  CHECK_CLOSE(linear_attention(q[0][1], k[0][1], v[0][1], causal), linear_attention(q, k, v, causal)[0][1]);
  CHECK_CLOSE(linear_attention(q.select(1, 0), k.select(1, 0), v.select(1, 0), causal),
              linear_attention(q, k, v, causal).select(1, 0));
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const auto y = linear_attention(q.to(type), k.to(type), v.to(type), causal);
    CHECK(y.scalar_type() == type);
    CHECK_WITHIN(y,
                 linear_attention(q.to(type).to(at::kDouble), k.to(type).to(at::kDouble),
                                  v.to(type).to(at::kDouble), causal),
                 {1e-2, 0.0});
  }
  for (const auto& call : {LinearAttentionCall{}, causal}) {
    CHECK(linear_attention(q.slice(2, 0, 0), k, v, call).sizes() == at::IntArrayRef({2, 2, 0, 4}));
    CHECK(linear_attention(q.slice(0, 0, 0), k.slice(0, 0, 0), v.slice(0, 0, 0), call).numel() == 0);
    CHECK_CLOSE(linear_attention(q, k.slice(2, 0, 0), v.slice(2, 0, 0), call), at::zeros({2, 2, 9, 4}));
  }
}

TEST_CASE("linear_attention under autocast computes from its dtype and returns it",
          "[linear_attention][autocast]") {
  const auto type = GENERATE(at::kFloat, at::kDouble);
  const auto q = at::randn({2, 2, 9, 4}, type), k = at::randn({2, 2, 9, 4}, type),
             v = at::randn({2, 2, 9, 4}, type);
  // As in attention(), autocast does not change float64.
  const auto cast = [&](const at::Tensor& x) { return type == at::kDouble ? x : x.to(at::kBFloat16); };
  const auto want = linear_attention(cast(q), cast(k), cast(v));
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const auto got = linear_attention(q, k, v), softmax = attention(q, k, v);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  CHECK(got.scalar_type() == softmax.scalar_type());
  CHECK(bit_equal(got, want));
}

TEST_CASE("linear_attention names every mistake", "[linear_attention]") {
  const auto x = at::randn({1, 2, 4, 3});
  const auto throws = [](auto&& f, const char* text) {
    CHECK_THROWS_MATCHES(f(), c10::ValueError, MessageMatches(ContainsSubstring(text)));
  };
  const auto pairs = at::ones({4, 4}, at::kBool);
  throws([&] { linear_attention(x, x, x, {}, pairs); }, "linear_attention: expected a mask of whole keys");
  throws([&] { linear_attention(x, x, x, {}, Mask::bias(at::zeros({4, 4}))); }, "a mask of whole keys");
  throws([&] { linear_attention(x, x, x, {.chunk_size = 0}); }, "expected chunk_size > 0, got 0");
  throws([&] { linear_attention(x, x, x, {.eps = -1}); },
         "expected eps to be finite and not negative, got -1");
  throws([&] { linear_attention(x, x[0], x); }, "linear_attention: expected k and v of the rank of q");
  throws([&] { linear_attention(x, x, x, {.feature_map = [](const at::Tensor& y) { return y.sum(); }}); },
         "linear_attention: expected feature_map to turn k (1, 2, 4, 3) into (B, H, T, F)");
  CHECK_THROWS_AS(linear_attention(x, x.to(at::kDouble), x), c10::TypeError);
}

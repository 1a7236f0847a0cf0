// Sizes beyond 16 and 31 bits, and inputs that are wrong or unusual, on every backend.

#include <cmath>
#include <limits>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <torch/csrc/autograd/autograd.h>

#include "support/cells.h"
#include "support/compare.h"
#include "support/errors.h"

using namespace attentive;
using namespace attentive::test;

namespace {

constexpr int64_t kLong = 65537;  // one more than 16 bits count

// softmax(q k^T / sqrt(d)) v in float64, for the rows of q given by `rows` and the keys visible to them.
at::Tensor rows_by_definition(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const at::Tensor& rows, const at::Tensor& visible) {
  const auto wide = [](const at::Tensor& x) { return x.detach().to(at::kDouble); };
  const auto scores = at::matmul(wide(q.index_select(2, rows)), wide(k).transpose(2, 3)) /
                      std::sqrt(static_cast<double>(q.size(3)));
  const auto weights =
      at::softmax(scores.masked_fill(visible.bitwise_not(), -std::numeric_limits<double>::infinity()), -1);
  return at::matmul(weights, wide(v));
}

}  // namespace

// Bad input 10, with few queries, on every backend, forward and backward.
TEST_CASE("65,537 keys with a mask, causal, equal the definition", "[limits]") {
  const auto backend = GENERATE(from_range(kNamedBackends));
  at::manual_seed(1);
  const auto q = at::randn({1, 2, 33, 8}), k = at::randn({1, 2, kLong, 8}), v = at::randn({1, 2, kLong, 8});
  const auto keep = at::rand({1, 1, 1, kLong}).gt(0.3);
  const AttentionOptions options{.causal = Causal::BottomRight, .backend = backend};
  AttentionExtras extras;
  extras.mask = keep;
  if (!takes(backend, q, k, k, {.causal = Causal::BottomRight}, extras)) SKIP("backend refuses");
  const auto rows = at::arange(33);
  const auto visible = keep.bitwise_and(at::arange(kLong).le(rows.view({33, 1}) + kLong - 33));
  const auto run = [&](bool exact) {
    std::vector<at::Tensor> leaves;
    for (const auto& x : {q, k, v}) leaves.push_back(x.detach().clone().requires_grad_(true));
    at::Tensor y;
    if (exact) {
      for (auto& x : leaves) x = x.detach().to(at::kDouble).requires_grad_(true);
      const auto scores = at::matmul(leaves[0], leaves[1].transpose(2, 3)) / std::sqrt(8.0);
      const auto hidden = visible.bitwise_not();
      y = at::matmul(at::softmax(scores.masked_fill(hidden, -std::numeric_limits<double>::infinity()), -1),
                     leaves[2]);
    } else {
      y = attention(leaves[0], leaves[1], leaves[2], options, extras).output;
    }
    auto results = torch::autograd::grad({y.sum()}, leaves);
    results.insert(results.begin(), y.detach());
    return results;
  };
  const auto got = run(false), want = run(true);
  CHECK(difference(got[0], want[0], tolerance_of(at::kFloat)) == "");
  for (size_t n = 1; n < got.size(); ++n)
    CHECK(difference(got[n], want[n], tolerance_of(at::kFloat, true)) == "");
}

// Bad input 10, with as many queries as keys: rows at both ends and around 65,536 are checked. The reference
// would hold 4.3e9 scores, except under a window. A mask of pairs would be as large, so this mask is per key.
TEST_CASE("65,537 queries and keys, causal, masked or windowed", "[limits]") {
  at::manual_seed(2);
  const auto q = at::randn({1, 1, kLong, 4}), k = at::randn({1, 1, kLong, 4}),
             v = at::randn({1, 1, kLong, 4});
  const auto rows = at::cat({at::arange(3), at::arange(32766, 32770), at::arange(65533, kLong)});
  const auto i = rows.view({-1, 1}), j = at::arange(kLong);
  const auto keep = at::rand({1, kLong}).gt(0.3).index_fill_(1, at::zeros({1}, at::kLong), true);
  const auto check = [&](Backend backend, AttentionOptions options, const Mask& mask,
                         const at::Tensor& visible) {
    INFO("backend " << to_string(backend));
    AttentionExtras extras;
    extras.mask = mask;
    if (!takes(backend, q, k, k, options, extras)) return false;
    options.backend = backend;
    const auto y = attention(q, k, v, options, mask);
    CHECK(difference(y.index_select(2, rows), rows_by_definition(q, k, v, rows, visible),
                     tolerance_of(at::kFloat)) == "");
    return true;
  };
  const AttentionOptions causal{.causal = Causal::BottomRight};
  const AttentionOptions window{.causal = Causal::BottomRight, .window = {99, 0}};
  const bool native = check(Backend::Native, causal, Mask::key_keep(keep), keep.bitwise_and(j.le(i)));
  if (!native) WARN("no native kernel on this processor");
  const auto near = j.le(i).bitwise_and(j.ge(i - 99));
  CHECK(check(Backend::Reference, window, {}, near));
  CHECK(check(Backend::Native, window, {}, near) == native);
}

// Bad input 11.
TEST_CASE("more than 65,536 items or heads", "[limits]") {
  const auto backend = GENERATE(from_range(kNamedBackends));
  const bool items = GENERATE(true, false);
  at::manual_seed(3);
  const auto sized = [&](int64_t rows) {
    return at::randn({items ? kLong : 1, items ? 1 : kLong, rows, 2}).requires_grad_(true);
  };
  const auto q = sized(2), k = sized(3), v = sized(3);
  if (!takes(backend, q, k, k)) SKIP("backend refuses");
  const auto y = attention(q, k, v, {.backend = backend});
  const auto want = at::matmul(at::softmax(at::matmul(q, k.transpose(2, 3)) / std::sqrt(2.0), -1), v);
  CHECK_CLOSE(y, want);
  const auto direction = at::randn(y.sizes());
  const auto got = torch::autograd::grad({y}, {q, k, v}, {direction});
  const auto exact = torch::autograd::grad({want}, {q, k, v}, {direction});
  for (size_t n = 0; n < 3; ++n) CHECK(difference(got[n], exact[n], tolerance_of(at::kFloat, true)) == "");
}

// Bad input 11. The output takes 4.3 GB in bfloat16, so the test runs only on request: functional_test
// "[.large]".
TEST_CASE("an output of more than 2^31 numbers", "[.large]") {
  const auto backend = GENERATE(Backend::Torch, Backend::Native);
  const int64_t L = (int64_t{1} << 25) + 3;
  at::manual_seed(4);
  const auto q = at::randn({1, 1, 1, 64}).to(at::kBFloat16).expand({1, 1, L, 64});
  const auto k = at::randn({1, 1, 2, 64}).to(at::kBFloat16), v = at::randn({1, 1, 2, 64}).to(at::kBFloat16);
  if (!takes(backend, q, k, k)) SKIP("backend refuses");
  const auto y = attention(q, k, v, {.backend = backend});
  REQUIRE(y.numel() > (int64_t{1} << 31));
  const auto ends = at::cat({y.slice(2, 0, 5), y.slice(2, L / 2, L / 2 + 5), y.slice(2, L - 5)}, 2);
  const auto want = attention(q.slice(2, 0, 15).to(at::kDouble), k.to(at::kDouble), v.to(at::kDouble));
  CHECK(difference(ends, want, tolerance_of(at::kBFloat16)) == "");
}

// Bad input 12.
TEST_CASE("masks and extras of another dtype", "[limits][errors]") {
  at::manual_seed(5);
  const auto x = at::randn({1, 2, 5, 8});
  const auto type = [](const std::function<void()>& call) { return type_error(call); };
  CHECK(type([] { Mask::keep(at::ones({5, 5})); }).rfind("Mask::keep: expected", 0) == 0);
  CHECK(type([] { Mask::hide(at::ones({5, 5})); }).rfind("Mask::hide: expected", 0) == 0);
  CHECK(type([] { Mask::bias(at::ones({5, 5}, at::kBool)); }).rfind("Mask::bias: expected", 0) == 0);
  CHECK(type([] { Mask::key_keep(at::ones({1, 5})); }).rfind("Mask::key_keep: expected", 0) == 0);
  CHECK(type([] { Mask::key_lengths(at::ones({1})); }).rfind("Mask::key_lengths: expected", 0) == 0);
  for (const auto kind : {at::kLong, at::kInt, at::kByte, at::kBool}) {
    CHECK(bit_equal(attention(x, x, x, {}, Mask::keep(at::ones({5, 5}).tril().to(kind))),
                    attention(x, x, x, {}, Mask::keep(at::ones({5, 5}, at::kBool).tril()))));
  }
  // A bias whose precision differs from that of q keeps its meaning.
  const auto bias = at::randn({5, 5});
  for (const auto backend : kNamedBackends) {
    AttentionExtras extras;
    extras.mask = Mask::bias(bias.to(at::kDouble));
    if (!takes(backend, x, x, x, {}, extras)) continue;
    INFO("backend " << to_string(backend));
    CHECK_CLOSE(attention(x, x, x, {.backend = backend}, extras.mask),
                attention(x, x, x, {.backend = backend}, Mask::bias(bias)));
  }
}

// Bad input 13: every tensor of a call, one at a time on another device.
TEST_CASE("each tensor on another device is named", "[limits][errors]") {
  const auto x = at::randn({2, 2, 5, 8});
  const auto meta = at::TensorOptions(at::kMeta);
  const auto refusal = [&](const AttentionExtras& extras) {
    return value_error([&] { attention(x, x, x, {}, extras); });
  };
  const auto masked = [&](const Mask& mask) {
    AttentionExtras extras;
    extras.mask = mask;
    return refusal(extras);
  };
  CHECK(masked(Mask::bias(at::zeros({5, 5}, meta))) ==
        "attention: expected bias on cpu like q, got it on meta");
  CHECK(masked(Mask::key_keep(at::ones({2, 5}, meta.dtype(at::kBool)))) ==
        "attention: expected key_keep on cpu like q, got it on meta");
  CHECK(masked(Mask::key_lengths(at::ones({2}, meta.dtype(at::kLong)))) ==
        "attention: expected key_lengths on cpu, got it on meta");
  AttentionExtras extras;
  extras.alibi_slopes = at::ones({2}, meta);
  CHECK(refusal(extras) == "attention: expected alibi_slopes on cpu like q, got them on meta");
  extras = {};
  extras.sinks = at::ones({2}, meta);
  CHECK(refusal(extras) == "attention: expected sinks on cpu like q, got them on meta");
}

// Bad input 15.
TEST_CASE("a gradient reaches a bias that alone asks for one", "[limits]") {
  at::manual_seed(6);
  const auto x = at::randn({1, 2, 6, 4}, at::kDouble);
  const auto bias = at::randn({6, 6}, at::kDouble).requires_grad_(true);
  const auto y = attention(x, x, x, {.causal = Causal::BottomRight}, Mask::bias(bias));
  REQUIRE(y.requires_grad());
  const auto direction = at::randn(y.sizes(), at::kDouble);
  const auto got = torch::autograd::grad({y}, {bias}, {direction})[0];
  const auto scores = at::matmul(x, x.transpose(2, 3)) / 2.0 + bias;
  const auto hidden = at::ones({6, 6}, at::kBool).triu(1);
  const auto want =
      at::matmul(at::softmax(scores.masked_fill(hidden, -std::numeric_limits<double>::infinity()), -1), x);
  CHECK(difference(got, torch::autograd::grad({want}, {bias}, {direction})[0],
                   tolerance_of(at::kDouble, true)) == "");
  // PyTorch's kernel, which has no gradient for the bias, refuses the call.
  AttentionExtras extras;
  extras.mask = Mask::bias(at::zeros({6, 6}).requires_grad_(true));
  const auto single = x.to(at::kFloat);
  CHECK(takes(Backend::Reference, single, single, single, {}, extras));
  CHECK_FALSE(takes(Backend::Torch, single, single, single, {}, extras));
  CHECK(attention(single, single, single, {}, extras).output.requires_grad());
}

// Bad input 19: numbers at the limits of the allowed range.
TEST_CASE("extreme options are exact or refused", "[limits][errors]") {
  at::manual_seed(7);
  const auto x = at::randn({1, 2, 6, 4});
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  const auto refusal = [&](const AttentionOptions& options) {
    return value_error([&] { attention(x, x, x, options); });
  };
  CHECK(refusal({.scale = nan}) == "attention: expected scale to be finite and not 0, got nan");
  CHECK(refusal({.softcap = nan}) == "attention: expected softcap to be positive and finite, got nan");
  CHECK(refusal({.window = {0, -5}}) ==
        "attention: expected window bounds of -1 (none) or more, got left 0, right -5");
  // A window of only the token itself returns the values; one longer than any sequence has no effect.
  constexpr auto most = std::numeric_limits<int64_t>::max();
  for (const auto backend : kNamedBackends) {
    INFO("backend " << to_string(backend));
    if (takes(backend, x, x, x, {.window = {0, 0}}))
      CHECK_CLOSE(attention(x, x, x, {.window = {0, 0}, .backend = backend}), x);
    if (takes(backend, x, x, x, {.window = {most, most}})) {
      CHECK_CLOSE(attention(x, x, x, {.window = {most, most}, .backend = backend}),
                  attention(x, x, x, {.backend = backend}));
    }
    if (takes(backend, x, x, x, {.dropout_p = 1.0}))
      CHECK(attention(x, x, x, {.dropout_p = 1.0, .backend = backend}).eq(0).all().item<bool>());
  }
}

// Sizes beyond 16 and 31 bits, and inputs that are wrong or unusual, on every backend.

#include <cmath>
#include <limits>

#include <ATen/ops/_nested_tensor_from_tensor_list.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/quantize_per_tensor.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/explain.h>
#include <attentive/functional/heads_and_windows.h>
#include <attentive/functional/linear_attention.h>
#include <attentive/modules/multi_head_attention.h>

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

using attentive::test::error_of;
using attentive::test::type_error;
using attentive::test::value_error;

namespace {

at::Tensor x(at::IntArrayRef sizes) {
  return at::randn(sizes);
}

}  // namespace

TEST_CASE("attention names the tensor that is wrong", "[attention][errors]") {
  const auto value = [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    return error_of<c10::ValueError>([&] { attention(q, k, v); });
  };
  const auto type = [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    return error_of<c10::TypeError>([&] { attention(q, k, v); });
  };
  const auto ok = x({2, 4, 5, 8}), narrow = x({2, 4, 5, 0});
  const auto keys = [&](at::IntArrayRef sizes) {
    const auto k = x(sizes);
    return value(ok, k, k);
  };
  CHECK(value({}, ok, ok) == "attention: expected q to be a tensor, got an undefined one");
  CHECK(type(ok.to(at::kLong), ok, ok) ==
        "attention: expected q of dtype Double, Float, BFloat16 or Half, got Long tensor of shape (2, 4, 5, "
        "8)");
  CHECK(type(ok, ok.to(at::kDouble), ok) ==
        "attention: expected q, k and v of one dtype, got q Float, k Double, v Float");
  CHECK(value(ok, at::empty_like(ok, at::kMeta), ok) ==
        "attention: expected q, k and v on one device, got q on cpu, k on meta, v on cpu");
  CHECK(value(x({8}), ok, ok) ==
        "attention: expected q of shape (L, D), (B, L, D) or (B, H, L, D), got (8,)");
  CHECK(value(ok, x({4, 5, 8}), ok) ==
        "attention: expected k and v of the rank of q, 4, got k (4, 5, 8), v (2, 4, 5, 8)");
  CHECK(value(narrow, narrow, ok) == "attention: expected head_dim > 0, got q of shape (2, 4, 5, 0)");
  CHECK(value(ok, x({2, 4, 5, 6}), ok) ==
        "attention: expected k of head_dim 8 like q, got k of shape (2, 4, 5, 6)");
  CHECK(value(ok, ok, x({2, 4, 6, 8})) ==
        "attention: expected v of 5 rows like k, got v of shape (2, 4, 6, 8)");
  CHECK(keys({3, 4, 5, 8}) ==
        "attention: expected equal batch sizes, got q (2, 4, 5, 8), k (3, 4, 5, 8), v (3, 4, 5, 8)");
  CHECK(value(ok, ok, x({2, 2, 5, 8})) ==
        "attention: expected k and v of as many heads, got k (2, 4, 5, 8), v (2, 2, 5, 8)");
  CHECK(keys({2, 3, 5, 8}) ==
        "attention: expected the heads of q to be a multiple of the heads of k, got 4 and 3");
  CHECK(keys({2, 0, 5, 8}) ==
        "attention: expected the heads of q to be a multiple of the heads of k, got 4 and 0");
}

TEST_CASE("attention names the option that is wrong", "[attention][errors]") {
  const auto ok = x({1, 2, 5, 8});
  const auto value = [&](const AttentionOptions& options) {
    return error_of<c10::ValueError>([&] { attention(ok, ok, ok, options); });
  };
  constexpr double inf = std::numeric_limits<double>::infinity();
  CHECK(value({.scale = 0.0}) == "attention: expected scale to be finite and not 0, got 0");
  CHECK(value({.scale = inf}) == "attention: expected scale to be finite and not 0, got inf");
  CHECK(value({.window = {-2, 0}}) ==
        "attention: expected window bounds of -1 (none) or more, got left -2, right 0");
  CHECK(value({.softcap = 0.0}) == "attention: expected softcap to be positive and finite, got 0");
  CHECK(value({.softcap = -1.0}) == "attention: expected softcap to be positive and finite, got -1");
  CHECK(value({.dropout_p = -0.1}) == "attention: expected dropout_p in [0, 1], got -0.1");
  CHECK(value({.dropout_p = 1.5}) == "attention: expected dropout_p in [0, 1], got 1.5");
  CHECK(value({.dropout_p = std::nan("")}) == "attention: expected dropout_p in [0, 1], got nan");
}

TEST_CASE("attention names the mask or extra tensor that is wrong", "[attention][mask][errors]") {
  const auto ok = x({2, 4, 5, 8});
  const auto value = [&](const AttentionExtras& extras) {
    return error_of<c10::ValueError>([&] { attention(ok, ok, ok, {}, extras); });
  };
  const auto masked = [&](const Mask& mask) {
    AttentionExtras extras;
    extras.mask = mask;
    return value(extras);
  };
  CHECK(masked(at::ones({5, 6}, at::kBool)) ==
        "attention: expected mask to broadcast to (2, 4, 5, 5) (B, H, L, S), got (5, 6)");
  CHECK(masked(at::ones({2, 5}, at::kBool)) ==
        "attention: expected mask to broadcast to (2, 4, 5, 5) (B, H, L, S), got (2, 5); a mask of keys, of "
        "shape (B, S), is Mask::key_keep");
  CHECK(masked(at::ones({5}, at::kBool)) ==
        "attention: expected mask of shape (L, S) or of rank 4, got (5,)");
  CHECK(masked(at::ones({4, 5, 5}, at::kBool)) ==
        "attention: a mask of shape (4, 5, 5) with a 4-D q could be per batch or per head; say "
        "Mask::per_batch or "
        "Mask::per_head");
  CHECK(masked(Mask::per_head(at::ones({2, 5, 5}, at::kBool))) ==
        "attention: expected mask to broadcast to (2, 4, 5, 5) (B, H, L, S), got (1, 2, 5, 5)");
  CHECK(masked(Mask::bias(at::zeros({3, 1, 5, 5}))) ==
        "attention: expected bias to broadcast to (2, 4, 5, 5) (B, H, L, S), got (3, 1, 5, 5)");
  CHECK(masked(at::ones({5, 5}, at::TensorOptions(at::kMeta).dtype(at::kBool))) ==
        "attention: expected mask on cpu like q, got it on meta");
  CHECK(masked(Mask::key_keep(at::ones({2, 4}, at::kBool))) ==
        "attention: expected key_keep of shape (2, 5) (B, S), got (2, 4)");
  CHECK(masked(Mask::key_lengths(at::ones({3}, at::kLong))) ==
        "attention: expected key_lengths of shape (2,) (B), got (3,)");
  CHECK(masked(Mask::key_lengths(at::full({2}, 6, at::kLong))) ==
        "attention: expected key_lengths in [0, 5], got 6");
  CHECK(masked(Mask::key_lengths(at::full({2}, -1, at::kLong))) ==
        "attention: expected key_lengths in [0, 5], got -1");
  AttentionExtras extras;
  extras.alibi_slopes = at::ones({3});
  CHECK(value(extras) == "attention: expected alibi_slopes of shape (4,) (H) or (2, 4) (B, H), got (3,)");
  extras = {};
  extras.sinks = at::ones({2, 4});
  CHECK(value(extras) == "attention: expected sinks of shape (4,) (H), got (2, 4)");
  extras.sinks = at::ones({4});
  CHECK(error_of<c10::ValueError>([&] { attention(ok, ok, ok, {.softmax_plus_one = true}, extras); }) ==
        "attention: expected sinks or softmax_plus_one, got both");
}

TEST_CASE("no heads at all are named, whatever stands beside them", "[attention][heads][errors]") {
  const auto none = x({2, 0, 4, 6});
  const char* message = "attention: expected at least one head, got q of shape (2, 0, 4, 6)";
  const auto masked = [&](const AttentionOptions& options, const Mask& mask) {
    return value_error([&] { attention(none, none, none, options, mask); });
  };
  CHECK(masked({}, {}) == message);
  CHECK(masked({.causal = Causal::BottomRight}, {}) == message);
  CHECK(masked({.window = {1, 1}}, {}) == message);
  CHECK(masked({}, at::ones({4, 4}, at::kBool)) == message);
  CHECK(masked({}, Mask::bias(at::ones({4, 4}))) == message);
  CHECK(masked({}, Mask::key_lengths(at::full({2}, 3, at::kLong))) == message);
  const auto deep = x({3, 2, 0, 4, 6});
  CHECK(value_error([&] { attention(deep, deep, deep); }) ==
        "attention: expected at least one head, got q of shape (3, 2, 0, 4, 6)");
  CHECK(value_error([&] { explain(none, none, none); }) ==
        "explain: expected at least one head, got q of shape (2, 0, 4, 6)");
  CHECK(value_error([&] { linear_attention(none, none, none); }) ==
        "linear_attention: expected at least one head, got q of shape (2, 0, 4, 6)");
  const auto packed = x({4, 0, 6});
  const auto ends = at::tensor({0, 4}, at::kLong);
  CHECK(value_error([&] { attention_varlen(packed, packed, packed, ends, ends); }) ==
        "attention_varlen: expected at least one head, got q of shape (4, 0, 6)");
  CHECK(value_error([&] { merge_heads(none); }) ==
        "merge_heads: expected at least one head, got x of shape (2, 0, 4, 6)");
}

TEST_CASE("lengths and masks of every integer dtype", "[attention][mask]") {
  const auto type =
      GENERATE(at::kByte, at::kChar, at::kShort, at::kInt, at::kUInt16, at::kUInt32, at::kUInt64);
  INFO("dtype " << c10::toString(type));
  const auto ok = x({2, 4, 5, 8});
  const auto run = [&](const Mask& mask) { return attention(ok, ok, ok, {}, mask); };
  const auto lengths = at::tensor({3, 5}, at::kLong);
  CHECK(run(Mask::key_lengths(lengths.to(type))).equal(run(Mask::key_lengths(lengths))));
  const auto pairs = at::ones({5, 5}, at::kLong).tril();
  CHECK(run(Mask::keep(pairs.to(type))).equal(run(Mask::keep(pairs))));
  CHECK(run(Mask::hide(pairs.t().to(type))).equal(run(Mask::hide(pairs.t()))));
  const auto keys = at::tensor({1, 0, 1, 1, 0, 0, 1, 1, 1, 1}, at::kLong).view({2, 5});
  CHECK(run(Mask::key_keep(keys.to(type))).equal(run(Mask::key_keep(keys))));
  CHECK(value_error([&] { run(Mask::key_lengths(at::full({2}, 6, at::kLong).to(type))); }) ==
        "attention: expected key_lengths in [0, 5], got 6");
}

TEST_CASE("a length beyond 63 bits is named", "[attention][mask][errors]") {
  const auto ok = x({2, 4, 5, 8});
  const auto lengths = at::full({2}, -5, at::kLong).view(at::kUInt64);
  CHECK(value_error([&] { attention(ok, ok, ok, {}, Mask::key_lengths(lengths)); }) ==
        "attention: expected key_lengths in [0, 5], got 18446744073709551611");
}

TEST_CASE("tensors that are not dense are named", "[attention][errors]") {
  const auto ok = x({2, 4, 5, 8});
  const auto with = [&](const AttentionExtras& extras) { attention(ok, ok, ok, {}, extras); };
  const auto sparse = ok.to_sparse(), mkldnn = ok.to_mkldnn();
  const auto nested = at::_nested_tensor_from_tensor_list({x({3, 8}), x({5, 8})});
  const auto quantized = at::quantize_per_tensor(ok, 0.1, 0, at::kQInt8);
  const std::string what = " tensor of shape (2, 4, 5, 8)";
  CHECK(type_error([&] { attention(sparse, ok, ok); }) ==
        "attention: expected q to be a dense tensor, got Float" + what + " and layout Sparse");
  CHECK(type_error([&] { attention(ok, sparse, ok); }) ==
        "attention: expected k to be a dense tensor, got Float" + what + " and layout Sparse");
  CHECK(type_error([&] { attention(ok, ok, mkldnn); }) ==
        "attention: expected v to be a dense tensor, got Float" + what + " and layout Mkldnn");
  CHECK(type_error([&] { attention(nested, nested, nested); }) ==
        "attention: expected q to be a dense tensor, got a nested Float tensor");
  CHECK(type_error([&] { attention(quantized, quantized, quantized); }) ==
        "attention: expected q of dtype Double, Float, BFloat16 or Half, got QInt8" + what);
  CHECK(type_error([&] { linear_attention(ok, sparse, ok); }) ==
        "linear_attention: expected k to be a dense tensor, got Float" + what + " and layout Sparse");

  const auto pairs = at::ones({5, 5});
  const auto truth = at::ones({2, 5}, at::kBool).to_sparse();
  CHECK(type_error([&] { with({.mask = Mask(truth)}); }) ==
        "Mask: expected mask to be a dense tensor, got Bool tensor of shape (2, 5) and layout Sparse");
  CHECK(type_error([&] { Mask::keep(truth); }) ==
        "Mask::keep: expected mask to be a dense tensor, got Bool tensor of shape (2, 5) and layout Sparse");
  CHECK(type_error([&] { Mask::hide(nested.to(at::kBool)); }) ==
        "Mask::hide: expected mask to be a dense tensor, got a nested Bool tensor");
  CHECK(type_error([&] { Mask::key_keep(truth); }) ==
        "Mask::key_keep: expected mask to be a dense tensor, got Bool tensor of shape (2, 5) and layout "
        "Sparse");
  CHECK(type_error([&] { Mask::bias(pairs.to_sparse_csr()); }) ==
        "Mask::bias: expected bias to be a dense tensor, got Float tensor of shape (5, 5) and layout "
        "SparseCsr");
  CHECK(type_error([&] { Mask::bias(quantized); }) ==
        "Mask::bias: expected bias of dtype Double, Float, BFloat16 or Half, got QInt8" + what);
  CHECK(type_error([&] { Mask::key_lengths(at::ones({2}, at::kLong).to_sparse()); }) ==
        "Mask::key_lengths: expected lengths to be a dense tensor, got Long tensor of shape (2,) and layout "
        "Sparse");
  AttentionExtras slopes, sinks;
  slopes.alibi_slopes = sinks.sinks = at::ones({4}).to_sparse();
  CHECK(type_error([&] { with(slopes); }) ==
        "attention: expected alibi_slopes to be a dense tensor, got Float tensor of shape (4,) and layout "
        "Sparse");
  CHECK(type_error([&] { with(sinks); }) ==
        "attention: expected sinks to be a dense tensor, got Float tensor of shape (4,) and layout Sparse");

  CHECK(
      type_error([&] {
        split_heads(x({2, 5, 12}).to_sparse(), 3);
      }) ==
      "split_heads: expected x to be a dense tensor, got Float tensor of shape (2, 5, 12) and layout Sparse");
  const auto packed = x({4, 2, 6});
  const auto ends = at::tensor({0, 4}, at::kLong);
  CHECK(type_error([&] { attention_varlen(packed, packed, packed, ends.to_sparse(), ends); }) ==
        "attention_varlen: expected cu_seqlens_q to be a dense tensor, got Long tensor of shape (2,) and "
        "layout Sparse");
  MultiHeadAttention module(8, 8, 0, 0.0, 2);
  CHECK(type_error([&] { module->forward(nested); }) ==
        "MultiHeadAttention: expected x to be a dense tensor, got a nested Float tensor");
}

TEST_CASE("a backend that is not there is named", "[attention][errors]") {
  const auto ok = x({1, 1, 2, 4});
  const auto meta = at::empty_like(ok, at::kMeta);
  CHECK(error_of<c10::ValueError>([&] { attention(meta, meta, meta, {.backend = Backend::Torch}); }) ==
        "attention: backend torch cannot express this call: its kernels run only on the CPU and on CUDA");
}

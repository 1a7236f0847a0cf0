// Parts of attention merged by their logsumexps, against attention over all keys in float64.

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <attentive/functional/attention.h>
#include <attentive/functional/merge_attention.h>

#include "support/cells.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/gradcheck.h"

using namespace attentive;
using namespace attentive::test;
using torch::autograd::grad;

namespace {

struct Keys {
  at::Tensor q, k, v;
  Mask lengths;  // sequence 1 sees 5 keys, sequence 2 none

  explicit Keys(at::ScalarType type)
      : q(at::randn({3, 4, 6, 8}, at::kDouble).to(type)),
        k(at::randn({3, 2, 12, 8}, at::kDouble).to(type)),
        v(at::randn({3, 2, 12, 5}, at::kDouble).to(type)) {}

  // Attention over the keys from `first` on; with sinks if there are any.
  AttentionResult part(int64_t first, int64_t count, const at::Tensor& sinks = {}) const {
    const auto seen = at::tensor({12, 5, 0}, at::kLong).sub(first).clamp(0, count);
    return attention(q, k.narrow(2, first, count), v.narrow(2, first, count), {},
                     {.mask = Mask::key_lengths(seen), .sinks = sinks, .logsumexp = true});
  }
};

// Parts whose third has no share in rows 0 and 1, and of which none has one in row 0.
std::vector<AttentionResult> some_hidden(const std::vector<at::Tensor>& x) {
  const auto row = at::arange(4);
  const auto hide = [&](const at::Tensor& of, const at::Tensor& rows) {
    return of.masked_fill(rows, -kInfinity);
  };
  const auto junk = x[2].masked_fill(row.lt(2).unsqueeze(1), kNaN);
  return {{x[0], {}, hide(x[3], row.eq(0))},
          {x[1], {}, hide(x[4], row.eq(0))},
          {junk, {}, hide(x[5], row.lt(2))}};
}

at::Tensor merged_numbers(const std::vector<AttentionResult>& parts) {
  const auto all = merge_attention(parts);
  return at::cat({all.output.flatten(), all.logsumexp.masked_fill(all.logsumexp.isinf(), 0.0)});
}

}  // namespace

TEST_CASE("merged parts are attention over all keys", "[merge_attention]") {
  const auto type = GENERATE(from_range(kAllTypes));
  at::manual_seed(1);
  const Keys call(type);
  const auto sinks =
      GENERATE(false, true) ? at::tensor({0.5, -1.0, kInfinity, -kInfinity}).to(type) : at::Tensor();
  Keys exact = call;
  for (auto* x : {&exact.q, &exact.k, &exact.v}) *x = x->to(at::kDouble);
  const auto want = exact.part(0, 12, sinks.defined() ? sinks.to(at::kDouble) : sinks);
  for (const auto& counts : std::vector<std::vector<int64_t>>{{12}, {5, 7}, {1, 3, 8}, {2, 2, 2, 2, 2, 2}}) {
    INFO(c10::toString(type) << ", " << counts.size() << " parts" << (sinks.defined() ? ", sinks" : ""));
    std::vector<AttentionResult> parts;
    int64_t first = 0;
    for (const int64_t count : counts) {
      parts.push_back(call.part(first, count, first == 0 ? sinks : at::Tensor()));
      first += count;
    }
    const auto got = merge_attention(parts);
    CHECK(got.output.scalar_type() == type);
    CHECK(got.logsumexp.scalar_type() == (type == at::kDouble ? at::kDouble : at::kFloat));
    CHECK(difference(got.output, want.output, tolerance_of(type)) == "");
    CHECK(difference(got.logsumexp, want.logsumexp, tolerance_of(type)) == "");
  }
}

TEST_CASE("the parts in which few queries read a long cache are merged like any others",
          "[merge_attention][few_queries]") {
  const auto type = GENERATE(from_range(kNativeTypes));
  at::manual_seed(3);
  const auto draw = [&](int64_t heads, int64_t rows) { return at::randn({2, heads, rows, 16}).to(type); };
  const auto q = draw(4, 1) * 4, k = draw(2, 3000), v = draw(2, 3000);
  std::vector<AttentionResult> parts;
  for (int64_t first = 0; first < 3000; first += 1024) {
    const auto count = std::min<int64_t>(1024, 3000 - first);
    parts.push_back(attention(q, k.narrow(2, first, count), v.narrow(2, first, count),
                              {.backend = Backend::Native}, {.logsumexp = true}));
  }
  const auto want = merge_attention(parts);
  const auto got = attention(q, k, v, {.backend = Backend::Native}, {.logsumexp = true});
  CHECK(difference(got.output, want.output, tolerance_of(type)) == "");
  CHECK(difference(got.logsumexp, want.logsumexp, tolerance_of(at::kFloat)) == "");
}

TEST_CASE("outputs of a half type are summed in float32 and rounded once", "[merge_attention]") {
  const auto type = GENERATE(at::kHalf, at::kBFloat16);
  at::manual_seed(4);
  std::vector<AttentionResult> parts;
  auto sum = at::zeros({7, 5}, at::kDouble), total = at::zeros({7, 1}, at::kDouble);
  for (int n = 0; n < 64; ++n) {
    parts.push_back({at::randn({7, 5}, at::kDouble).add(1.0).to(type), {}, at::randn({7})});
    const auto share = parts.back().logsumexp.to(at::kDouble).exp().unsqueeze(1);
    sum += share * parts.back().output.to(at::kDouble);
    total += share;
  }
  const auto want = sum / total;
  const auto error = (merge_attention(parts).output.to(at::kDouble) - want).abs() / want.abs();
  CHECK(error.max().item<double>() <= 0.5 * unit_of(type) * 1.01);
}

TEST_CASE("a part of -inf has no share, whatever it holds", "[merge_attention][extremes]") {
  at::manual_seed(5);
  const auto type = GENERATE(from_range(kAllTypes));
  const double junk = GENERATE(0.0, kNaN, kInfinity);
  const auto wide = type == at::kDouble ? at::kDouble : at::kFloat;
  const auto output = at::randn({2, 3, 4}, at::kDouble).to(type).requires_grad_(true);
  const auto logsumexp = at::randn({2, 3}, at::kDouble).to(wide).requires_grad_(true);
  const auto hidden = at::full({2, 3, 4}, junk, output.options().requires_grad(false)).requires_grad_(true);
  const auto nothing = at::full({2, 3}, -kInfinity, wide).requires_grad_(true);
  const auto got = merge_attention({{hidden, {}, nothing}, {output, {}, logsumexp}, {hidden, {}, nothing}});
  CHECK(bit_equal(got.output.detach(), output.detach()));
  CHECK(bit_equal(got.logsumexp.detach(), logsumexp.detach()));
  const auto gradients = grad({got.output.sum(), got.logsumexp.sum()}, {output, logsumexp, hidden, nothing});
  CHECK(gradients[0].eq(1).all().item<bool>());
  CHECK(gradients[1].sub(1).abs().max().item<double>() < 1e-5);
  for (size_t n = 2; n < 4; ++n) CHECK(gradients[n].eq(0).all().item<bool>());

  const auto none = merge_attention({{hidden, {}, nothing}, {hidden, {}, nothing}});
  CHECK(none.output.eq(0).all().item<bool>());
  CHECK(none.logsumexp.eq(-kInfinity).all().item<bool>());
  for (const auto& gradient : grad({none.output.sum(), none.logsumexp.sum()}, {hidden, nothing}))
    CHECK(gradient.eq(0).all().item<bool>());
}

TEST_CASE("logsumexps of any size, and +inf, have the shares of their limit", "[merge_attention][extremes]") {
  const auto output = [](double number) { return at::full({1, 2}, number); };
  const auto sum = [](double number) { return at::full({1}, number); };
  const auto merged = [&](double a, double b) {
    const auto all = merge_attention({{output(3), {}, sum(a)}, {output(5), {}, sum(b)}});
    return std::pair(all.output[0][0].item<double>(), all.logsumexp[0].item<double>());
  };
  CHECK(merged(800, 800).first == 4);
  CHECK(merged(-2e38, -3e38) == std::pair(3.0, static_cast<double>(-2e38F)));
  CHECK(merged(3e38, -3e38) == std::pair(3.0, static_cast<double>(3e38F)));
  CHECK(merged(kInfinity, 7) == std::pair(3.0, kInfinity));
  CHECK(merged(-kInfinity, kInfinity) == std::pair(5.0, kInfinity));
  CHECK(merged(kInfinity, kInfinity) == std::pair(4.0, kInfinity));
  CHECK(std::isnan(merged(kNaN, 0).first));
  CHECK(std::isnan(merged(kNaN, 0).second));
  const auto weight = sum(kInfinity).requires_grad_(true), other = sum(7).requires_grad_(true);
  const auto all = merge_attention({{output(3), {}, weight}, {output(kNaN), {}, other}});
  for (const auto& gradient : grad({all.output.sum()}, {weight, other}))
    CHECK(gradient.eq(0).all().item<bool>());
}

TEST_CASE("merged parts are differentiated twice, also where some have no share", "[merge_attention]") {
  const auto parts_of = GENERATE(0, 1) == 0 ? &some_hidden : +[](const std::vector<at::Tensor>& x) {
    return std::vector<AttentionResult>{{x[0], {}, x[3]}, {x[1], {}, x[4]}, {x[2], {}, x[5]}};
  };
  at::manual_seed(6);
  std::vector<at::Tensor> inputs;
  for (int n = 0; n < 3; ++n) inputs.push_back(at::randn({4, 3}, at::kDouble));
  for (int n = 0; n < 3; ++n) inputs.push_back(at::randn({4}, at::kDouble));
  CHECK(gradcheck([&](const auto& x) { return merged_numbers(parts_of(x)).square(); }, inputs) == "");
  const auto first = [&](const std::vector<at::Tensor>& x) {
    const at::AutoGradMode graph(true);
    std::vector<at::Tensor> flat;
    for (const auto& gradient : grad({merged_numbers(parts_of(x)).sin().sum()}, x, {}, true, true))
      flat.push_back(gradient.flatten());
    return at::cat(flat).square();
  };
  CHECK(gradcheck(first, inputs) == "");
}

TEST_CASE("merge_attention refuses parts that do not fit, by name", "[merge_attention][errors]") {
  const AttentionResult part{at::ones({2, 3, 4}), {}, at::ones({2, 3})};
  const auto refused = [&](const at::Tensor& output, const at::Tensor& logsumexp) {
    return value_error([&] { return merge_attention({part, {output, {}, logsumexp}}); });
  };
  CHECK(value_error([] { return merge_attention({}); }) ==
        "merge_attention: expected one part or more, got none");
  CHECK(refused(at::ones({2, 3, 5}), at::ones({2, 3})) ==
        "merge_attention: expected outputs of one shape (..., Tq, Dv), got [2, 3, 4] and, in part 1, [2, 3, "
        "5]");
  CHECK(refused(part.output, at::ones({3, 2})) ==
        "merge_attention: expected a logsumexp (..., Tq) for an output of shape [2, 3, 4], got one of shape "
        "[3, 2]");
  CHECK(refused(part.output, {}) ==
        "merge_attention: expected logsumexp to be a tensor, got an undefined one");
  CHECK(refused(at::ones({2, 3, 4}, at::kMeta), part.logsumexp) ==
        "merge_attention: expected all parts on cpu, got an output on meta and a logsumexp on cpu");
  CHECK(type_error([&] {
          return merge_attention({part, {part.output.to(at::kHalf), {}, part.logsumexp}});
        }) == "merge_attention: expected outputs of one dtype, got Float and, in part 1, Half");
}

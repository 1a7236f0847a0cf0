#include "support/extreme_cases.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "support/compare.h"

namespace attentive::test {
namespace {

constexpr double kMost = 3.3e38;  // also in bfloat16
constexpr int64_t kKeys = 40;

OptionCall random_call(int64_t L, int64_t S = kKeys) {
  at::manual_seed(5);
  OptionCall call;
  call.q = at::randn({1, 4, L, 8}, at::kDouble);
  call.k = at::randn({1, 2, S, 8}, at::kDouble);
  call.v = at::randn({1, 2, S, 8}, at::kDouble);
  call.extras.logsumexp = true;
  return call;
}

// A call with a bias of `first` for some keys, `second` for others, and 0 for the rest.
OptionCall with_biases(int64_t L, double first, double second, bool one_row) {
  auto call = random_call(L);
  auto bias = at::zeros({L, kKeys}, at::kDouble);
  const auto rows = one_row ? bias.slice(0, 1, 2) : bias;
  rows.slice(1, 3, 20).fill_(first);
  rows.slice(1, 20, 30).fill_(second);
  call.extras.mask = Mask::bias(bias);
  return call;
}

OptionCall with_slope(int64_t L, double slope) {
  auto call = random_call(L, 70);
  call.options.causal = Causal::BottomRight;
  call.extras.alibi_slopes = at::tensor({slope, 0.5, 1.0, 0.0}, at::kDouble);
  return call;
}

OptionCall with_sinks(int64_t L, double sink) {
  auto call = random_call(L);
  auto keep = at::randn({L, kKeys}).gt(-0.5);
  keep[1].fill_(false);  // a query without keys
  call.extras.mask = Mask::keep(keep);
  call.extras.sinks = at::tensor({sink, 0.5, sink, -1.0}, at::kDouble);
  return call;
}

// A call in which query 1's scores for the keys `huge` overflow, to +inf or to -inf.
OptionCall with_overflow(int64_t L, const at::Tensor& huge, double sign) {
  auto call = random_call(L, huge.size(0));
  call.q.select(3, 0).zero_();
  call.q.select(2, 1).select(1, 0).fill_(1e30);
  call.k.select(3, 0).copy_(huge.to(at::kDouble) * (sign * 1e20));
  return call;
}

}  // namespace

std::vector<ExtremeCase> extreme_cases(int64_t L) {
  std::vector<ExtremeCase> cases;
  for (const double first : {3e38, -3e38, 2.4e38, -kMost}) {
    for (const double second : {0.0, 3e38, -kMost, 1e9})
      cases.push_back(
          {fmt::format("biases {:g} and {:g}", first, second), with_biases(L, first, second, false)});
  }
  for (const double bias : {kInfinity, kNaN})
    cases.push_back({fmt::format("a bias of {}", bias), with_biases(L, bias, 0.0, true)});
  cases.push_back({"a bias of -3e38 for every key", random_call(L)});
  cases.back().call.extras.mask = Mask::bias(at::full({L, kKeys}, -3e38, at::kDouble));
  for (const double slope : {1e30, 3e38, -3e38, kInfinity, kNaN})
    cases.push_back({fmt::format("a slope of {:g}", slope), with_slope(L, slope)});
  for (const double sink : {kInfinity, -kInfinity, kNaN, 3e38, -3e38})
    cases.push_back({fmt::format("a sink of {:g}", sink), with_sinks(L, sink)});

  const auto few = at::arange(kKeys).lt(9), all = at::arange(kKeys).ge(0), late = at::arange(kKeys).ge(20);
  cases.push_back({"some scores of inf", with_overflow(L, few, 1.0)});
  cases.push_back({"some scores of -inf", with_overflow(L, few, -1.0)});
  cases.push_back({"all scores of -inf", with_overflow(L, all, -1.0)});
  for (const double sink : {0.5, kInfinity, -kInfinity, kNaN}) {
    cases.push_back({fmt::format("all scores of -inf, a sink of {:g}", sink), with_overflow(L, all, -1.0)});
    cases.back().call.extras.sinks = at::tensor({sink, 0.5, sink, -1.0}, at::kDouble);
  }
  cases.push_back({"all scores of -inf that a mask leaves", with_overflow(L, late, -1.0)});
  cases.back().call.extras.mask = Mask::hide(at::arange(kKeys).lt(20).expand({L, kKeys}));
  cases.push_back({"all scores of -inf in the first of several tiles",
                   with_overflow(L, at::arange(2500).lt(1500), -1.0)});
  return cases;
}

std::string difference_beside_nan(const at::Tensor& got, const at::Tensor& want, at::ScalarType type,
                                  bool gradient) {
  if (!got.defined() || !want.defined())
    return got.defined() == want.defined() ? "" : "one side is undefined";
  const auto a = got.detach().to(at::kDouble), b = want.detach().to(at::kDouble);
  if (a.sizes() == b.sizes() && !at::equal(a.isnan(), b.isnan())) {
    return fmt::format("NaN in {} places, expected in {}", a.isnan().sum().item<int64_t>(),
                       b.isnan().sum().item<int64_t>());
  }
  return difference(a.masked_fill(a.isnan(), 0.0), b.masked_fill(b.isnan(), 0.0),
                    tolerance_of(type, gradient));
}

}  // namespace attentive::test

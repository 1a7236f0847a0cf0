#include "io/case_compare.h"

#include <cmath>
#include <limits>

#include <ATen/ops/isfinite.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include "core/check.h"

namespace attentive {
namespace {

at::Tensor as_double(const at::Tensor& tensor) {
  return tensor.detach().to(at::kCPU, at::kDouble);
}

// Bit patterns of float32, mapped so that neighbouring numbers are neighbouring integers (and -0 is 0).
at::Tensor ordinals(const at::Tensor& tensor) {
  const auto bits = tensor.detach().to(at::kCPU, at::kFloat).contiguous().view(at::kInt).to(at::kLong);
  return at::where(bits.lt(0), int64_t{std::numeric_limits<int32_t>::min()} - bits, bits);
}

}  // namespace

CaseTolerance case_tolerance(at::ScalarType dtype, bool gradient) {
  switch (dtype) {
    case at::kDouble:
      return {0.0, gradient ? 1e-11 : 1e-12};
    case at::kBFloat16:
      return {0.0, gradient ? 3e-2 : 1e-2};
    case at::kHalf:
      return {0.0, gradient ? 6e-3 : 2e-3};
    default:
      return {gradient ? 5e-6 : 2e-6, 1e-5};
  }
}

double largest(const at::Tensor& values) {
  const auto exact = as_double(values);
  const auto finite = at::where(exact.isfinite(), exact.abs(), at::zeros_like(exact));
  return finite.numel() == 0 ? 0.0 : finite.max().item<double>();
}

TensorComparison compare_tensors(std::string name, const at::Tensor& got, const at::Tensor& want,
                                 double tolerance) {
  TensorComparison result;
  result.name = std::move(name);
  result.shape = want.sizes().vec();
  result.tolerance = tolerance;
  if (got.sizes() != want.sizes()) {
    result.difference = std::numeric_limits<double>::infinity();
    result.note =
        fmt::format("expected shape {}, got {}", shape_string(want.sizes()), shape_string(got.sizes()));
    return result;
  }
  if (want.numel() > 0) {
    const auto ours = as_double(got);
    const auto theirs = as_double(want);
    // Equal infinities have a difference of NaN; max() propagates every other NaN.
    const auto difference = at::where(ours.eq(theirs), at::zeros_like(ours), (ours - theirs).abs());
    result.difference = difference.max().item<double>();
    if (theirs.isnan().any().item<bool>()) {
      result.note = "PyTorch's values hold NaN";
    } else if (ours.isnan().any().item<bool>()) {
      result.note = "our values hold NaN";
    }
  }
  result.passed = result.difference <= tolerance;  // false for NaN
  return result;
}

at::Tensor replace_empty_rows(const at::Tensor& want, const at::Tensor& empty, const at::Tensor& convention,
                              int64_t& rows) {
  const auto replaced = as_double(want).isnan().logical_and(empty.to(at::kCPU).unsqueeze(-1));
  rows = replaced.any(-1).sum().item<int64_t>();
  return at::where(replaced, as_double(convention), as_double(want));
}

std::string whose_error(const ExactDistances& exact, at::ScalarType dtype, bool gradient, double scale) {
  if (!std::isfinite(exact.ours) || !std::isfinite(exact.expected)) return {};
  const bool theirs = exact.expected >= exact.ours;
  const double low = theirs ? exact.ours : exact.expected, high = theirs ? exact.expected : exact.ours;
  const auto tolerance = case_tolerance(dtype, gradient);
  if (high > 100 * (tolerance.atol + tolerance.rtol * scale))
    return fmt::format("{} off our float64 by more than rounding", theirs ? "PyTorch is" : "ours is");
  if (low == 0.0) return fmt::format("the error is {}", theirs ? "PyTorch's" : "ours");
  return fmt::format("{} error is {:.{}f} times {}", theirs ? "PyTorch's" : "our", high / low,
                     high < 1e3 * low ? 1 : 0, theirs ? "ours" : "PyTorch's");
}

int64_t largest_ulp(const at::Tensor& got, const at::Tensor& want) {
  return got.numel() == 0 ? 0 : (ordinals(got) - ordinals(want)).abs().max().item<int64_t>();
}

}  // namespace attentive

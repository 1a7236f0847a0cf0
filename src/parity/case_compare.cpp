#include "parity/case_compare.h"

#include <cmath>

#include <ATen/ops/isnan.h>
#include <ATen/ops/where.h>
#include <fmt/format.h>

#include <attentive/parity/compare.h>

#include "core/check.h"

namespace attentive {

TensorComparison compare_tensors(std::string name, const at::Tensor& got, const at::Tensor& want,
                                 double tolerance) {
  const auto distance = distance_of(got, want);
  TensorComparison result;
  result.name = std::move(name);
  result.shape = want.sizes().vec();
  result.difference = distance.largest;
  result.tolerance = tolerance;
  result.passed = distance.within(tolerance);
  if (got.sizes() != want.sizes()) {
    result.note =
        fmt::format("expected shape {}, got {}", shape_string(want.sizes()), shape_string(got.sizes()));
  } else if (std::isnan(distance.want)) {
    result.note = "PyTorch's values hold NaN";
  } else if (std::isnan(distance.got)) {
    result.note = "our values hold NaN";
  }
  return result;
}

at::Tensor replace_empty_rows(const at::Tensor& want, const at::Tensor& empty, const at::Tensor& convention,
                              int64_t& rows) {
  const auto exact = want.detach().to(at::kCPU, at::kDouble);
  const auto replaced = exact.isnan().logical_and(empty.to(at::kCPU).unsqueeze(-1));
  rows = replaced.any(-1).sum().item<int64_t>();
  return at::where(replaced, convention.detach().to(at::kCPU, at::kDouble), exact);
}

std::string whose_error(const ExactDistances& exact, at::ScalarType dtype, bool gradient, double scale) {
  if (!std::isfinite(exact.actual) || !std::isfinite(exact.expected)) return {};
  const bool torch_is_worse = exact.expected >= exact.actual;
  const double low = torch_is_worse ? exact.actual : exact.expected,
               high = torch_is_worse ? exact.expected : exact.actual;
  if (high > 100 * tolerance_of(dtype, gradient).allowed(scale))
    return fmt::format("{} off our float64 by more than rounding", torch_is_worse ? "PyTorch is" : "ours is");
  if (low == 0.0) return fmt::format("the error is {}", torch_is_worse ? "PyTorch's" : "ours");
  return fmt::format("{} error is {:.{}f} times {}", torch_is_worse ? "PyTorch's" : "our", high / low,
                     high < 1e3 * low ? 1 : 0, torch_is_worse ? "ours" : "PyTorch's");
}

}  // namespace attentive

#include "support/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "core/check.h"

namespace attentive::test {

Tolerance default_tolerance(at::ScalarType type, bool gradient) {
  switch (type) {
    case at::kDouble:
      return {gradient ? 1e-11 : 1e-12, 0.0};
    case at::kBFloat16:
      return {gradient ? 3e-2 : 1e-2, 0.0};
    case at::kHalf:
      return {gradient ? 6e-3 : 2e-3, 0.0};
    default:
      return {1e-5, gradient ? 5e-6 : 2e-6};
  }
}

std::string difference(const at::Tensor& got, const at::Tensor& want, Tolerance tolerance) {
  if (!got.defined() || !want.defined())
    return got.defined() == want.defined() ? "" : "one side is undefined";
  if (got.sizes() != want.sizes()) {
    return fmt::format("shape {} is not {}", shape_string(got.sizes()), shape_string(want.sizes()));
  }
  const auto a = got.detach().to(at::kCPU, at::kDouble).contiguous();
  const auto b = want.detach().to(at::kCPU, at::kDouble).contiguous();
  const double* x = a.const_data_ptr<double>();
  const double* y = b.const_data_ptr<double>();
  double largest = 0.0;
  for (int64_t i = 0; i < b.numel(); ++i) {
    if (std::isfinite(y[i])) largest = std::max(largest, std::abs(y[i]));
  }
  const double allowed = tolerance.atol + tolerance.rtol * largest;
  double worst = 0.0;
  int64_t where = -1;
  for (int64_t i = 0; i < b.numel(); ++i) {
    if (x[i] == y[i]) continue;
    const double error = std::abs(x[i] - y[i]);
    if (std::isfinite(error) && error <= allowed) continue;
    if (where < 0 || !(error <= worst)) {
      worst = error;
      where = i;
    }
  }
  if (where < 0) return "";
  return fmt::format("element {} is {:.9g}, expected {:.9g}: difference {:.3g}, allowed {:.3g}", where,
                     x[where], y[where], worst, allowed);
}

std::string difference(const at::Tensor& got, const at::Tensor& want) {
  return difference(got, want, default_tolerance(got.defined() ? got.scalar_type() : at::kFloat));
}

bool bit_equal(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const auto x = a.detach().cpu().contiguous();
  const auto y = b.detach().cpu().contiguous();
  return x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

at::Tensor table(const std::vector<std::vector<float>>& rows) {
  const auto width = rows.empty() ? 0 : static_cast<int64_t>(rows.front().size());
  auto result = at::empty({static_cast<int64_t>(rows.size()), width});
  float* out = result.mutable_data_ptr<float>();
  for (const auto& row : rows) out = std::copy(row.begin(), row.end(), out);
  return result;
}

std::vector<at::Device> devices() {
  std::vector<at::Device> result = {at::kCPU};
  if (at::hasCUDA()) result.emplace_back(at::kCUDA);
  return result;
}

}  // namespace attentive::test

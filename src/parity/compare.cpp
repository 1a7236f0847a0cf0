#include <cmath>
#include <cstring>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <attentive/parity/compare.h>

#include "core/check.h"

namespace attentive {
namespace {

at::Tensor as_double(const at::Tensor& tensor) {
  return tensor.detach().to(at::kCPU, at::kDouble);
}

// Maps the bit patterns of float32 so that neighbouring values are neighbouring integers (and -0 is 0).
at::Tensor ordinals(const at::Tensor& tensor) {
  const auto bits = tensor.detach().to(at::kCPU, at::kFloat).contiguous().view(at::kInt).to(at::kLong);
  return at::where(bits.lt(0), int64_t{std::numeric_limits<int32_t>::min()} - bits, bits);
}

}  // namespace

Tolerance tolerance_of(at::ScalarType dtype, bool gradient) {
  switch (dtype) {
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

Tolerance printed_tolerance(int decimals) {
  // Some printed numbers are within 1e-7 of a rounding boundary of their last digit.
  return {0.0, 0.5 * std::pow(10.0, -decimals) + 2e-6};
}

double largest_magnitude(const at::Tensor& values) {
  const auto exact = as_double(values);
  const auto finite = at::where(exact.isfinite(), exact.abs(), at::zeros_like(exact));
  return finite.numel() == 0 ? 0.0 : finite.max().item<double>();
}

Distance distance_of(const at::Tensor& got, const at::Tensor& want) {
  if (got.sizes() != want.sizes()) return {.largest = std::numeric_limits<double>::infinity()};
  if (want.numel() == 0) return {};
  const auto got_values = as_double(got).reshape(-1);
  const auto want_values = as_double(want).reshape(-1);
  // The difference of equal infinities is NaN and must count as 0; argmax() finds every other NaN.
  const auto apart = (got_values - want_values).abs_().masked_fill_(got_values.eq(want_values), 0.0);
  const auto place = apart.argmax().item<int64_t>();
  return {apart[place].item<double>(), place, got_values[place].item<double>(),
          want_values[place].item<double>()};
}

std::string difference(const at::Tensor& got, const at::Tensor& want, Tolerance tolerance) {
  if (!got.defined() || !want.defined())
    return got.defined() == want.defined() ? "" : "one side is undefined";
  const auto distance = distance_of(got, want);
  const double allowed = tolerance.allowed(largest_magnitude(want));
  if (distance.within(allowed)) return {};
  if (got.sizes() != want.sizes()) {
    return fmt::format("expected shape {}, got {}", shape_string(want.sizes()), shape_string(got.sizes()));
  }
  return fmt::format("element {} is {:.9g}, expected {:.9g}: difference {:.3g}, allowed {:.3g}",
                     distance.place, distance.got, distance.want, distance.largest, allowed);
}

std::string difference(const at::Tensor& got, const at::Tensor& want) {
  return difference(got, want, tolerance_of(got.defined() ? got.scalar_type() : at::kFloat));
}

bool bit_equal(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const auto x = a.detach().cpu().contiguous();
  const auto y = b.detach().cpu().contiguous();
  return x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

int64_t largest_ulp(const at::Tensor& got, const at::Tensor& want) {
  return got.numel() == 0 ? 0 : (ordinals(got) - ordinals(want)).abs().max().item<int64_t>();
}

}  // namespace attentive

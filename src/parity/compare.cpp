#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/Version.h>
#include <ATen/ops/empty.h>
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

// The values that ATen's AVX2 kernels draw after the seed 123: uniform_(-1/3, 1/3), then normal_(0, 1).
constexpr std::array<float, 16> kUniform{-0.135925382f, 0.011041522f,  -0.165552855f, 0.125704527f,
                                         -0.284018368f, 0.244347975f,  -0.242280096f, -0.265013993f,
                                         -0.210629031f, 0.150964499f,  -0.123164058f, 0.124737784f,
                                         -0.282909811f, -0.202241227f, -0.122392021f, -0.0655065775f};
constexpr std::array<float, 16> kNormal{-0.0770202354f, -1.02047193f, -0.16895628f, 0.917764604f,
                                        1.58096957f,    1.30103993f,  1.27530122f,  -0.200953096f,
                                        0.496470988f,   -1.57230425f, 0.966571569f, -1.14814401f,
                                        -1.15886784f,   0.325471014f, -0.63150537f, -2.83999395f};

bool equal(const at::Tensor& drawn, const std::array<float, 16>& known) {
  return std::equal(known.begin(), known.end(), drawn.const_data_ptr<float>());
}

// ATen draws fewer normal numbers than this by another algorithm, in float64.
constexpr int64_t kBlock = 16;

bool same_bits(Drawn distribution, const DrawKernels& kernels, int64_t numbers) {
  return distribution == Drawn::Uniform ? kernels.uniform : kernels.normal || numbers < kBlock;
}

// Bounds the difference between two roundings of one draw of this magnitude.
//
// Uniform: from + u (to - from). If multiplication and addition are two instructions, the product, which is
// below 4, is rounded to 24 bits, by at most 2^-23; then both sums are rounded, each by at most half an ulp.
//
// Normal: x = r sin(theta) or r cos(theta), r = sqrt(-2 log(u)), theta = 2 pi v. u has 24 bits, so r <=
// sqrt(-2 log(2^-24)) < 5.77. ATen's vector kernel multiplies by 2 pi in float, its scalar one in double, so
// theta, which is below 8, may differ by one ulp: 2^-21. Logarithm, root, sine and product are each within an
// ulp; together, each side is within 2^-22 |x|.
at::Tensor allowed(Drawn distribution, const at::Tensor& magnitude) {
  return distribution == Drawn::Uniform ? (magnitude + 1.0) * 0x1p-23 : (magnitude + 5.77) * 0x1p-21;
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

std::string dropout_stream_of_this_cpu() {
  // The positions that dropout of 0.5 keeps among 36 values after the seed 123.
  constexpr std::string_view kDefault = "110110000101111101011001010101011110";
  constexpr std::string_view kIntelMkl = "111111010000001010110001100001010000";
  const auto kept = at::empty({36}, at::kFloat).bernoulli_(0.5, at::detail::createCPUGenerator(123));
  std::string drawn;
  for (int64_t i = 0; i < kept.numel(); ++i) drawn += kept.const_data_ptr<float>()[i] != 0 ? '1' : '0';
  return drawn == kDefault ? "default" : drawn == kIntelMkl ? "intel_mkl" : "unknown";
}

DrawKernels draw_kernels_of_this_cpu() {
  const auto generator = at::detail::createCPUGenerator(123);
  const auto uniform = at::empty({16}, at::kFloat).uniform_(-1.0 / 3, 1.0 / 3, generator);
  const auto normal = at::empty({16}, at::kFloat).normal_(0.0, 1.0, generator);
  return {equal(uniform, kUniform), equal(normal, kNormal)};
}

bool same_draw(const at::Tensor& got, const at::Tensor& want, Drawn distribution,
               const DrawKernels& kernels) {
  if (got.scalar_type() != at::kFloat || got.sizes() != want.sizes()) return bit_equal(got, want);
  const auto dtype = want.scalar_type();
  if (bit_equal(got.to(dtype), want)) return true;
  if (same_bits(distribution, kernels, got.numel())) return false;
  const auto drawn = got.to(at::kDouble), recorded = want.to(at::kDouble);
  const auto apart = allowed(distribution, recorded.abs());
  // A half dtype rounds the bounds as well; float32 and float64 hold exactly what Python drew.
  const auto rounded = [&](const at::Tensor& bound) {
    return at::isReducedFloatingType(dtype) ? bound.to(dtype).to(at::kDouble) : bound;
  };
  return recorded.ge(rounded(drawn - apart))
      .logical_and(recorded.le(rounded(drawn + apart)))
      .all()
      .item<bool>();
}

bool same_draw(const at::Tensor& got, const at::Tensor& want, Drawn distribution) {
  return same_draw(got, want, distribution, draw_kernels_of_this_cpu());
}

std::string draw_rule(Drawn distribution, const DrawKernels& kernels) {
  const std::string_view name = distribution == Drawn::Uniform ? "uniform" : "normal";
  if (same_bits(distribution, kernels, kBlock)) return fmt::format("{} draws compared bit for bit", name);
  return fmt::format("{} draws compared within {}, as this CPU's kernels round differently", name,
                     distribution == Drawn::Uniform ? "2^-23 (1 + |x|)" : "2^-21 (5.77 + |x|)");
}

std::string draw_rule(Drawn distribution) {
  return draw_rule(distribution, draw_kernels_of_this_cpu());
}

}  // namespace attentive

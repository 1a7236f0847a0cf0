#include <algorithm>
#include <array>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/Version.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <attentive/parity/compare.h>
#include <attentive/parity/draws.h>

namespace attentive {
namespace {

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

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Version.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <attentive/parity/compare.h>
#include <attentive/parity/draws.h>

namespace attentive {
namespace {

// Elsewhere ATen's scalar kernels draw.
bool has_vector_kernels() {
  const auto capability = at::get_cpu_capability();
  return capability == "AVX2" || capability == "AVX512";
}

}  // namespace

std::string dropout_stream_of_this_cpu() {
  // What dropout of 0.5 keeps of 36 numbers after the seed 123.
  constexpr std::string_view kDefault = "110110000101111101011001010101011110";
  constexpr std::string_view kIntelMkl = "111111010000001010110001100001010000";
  const auto kept = at::empty({36}, at::kFloat).bernoulli_(0.5, at::detail::createCPUGenerator(123));
  std::string drawn;
  for (int64_t i = 0; i < kept.numel(); ++i) drawn += kept.const_data_ptr<float>()[i] != 0 ? '1' : '0';
  return drawn == kDefault ? "default" : drawn == kIntelMkl ? "intel_mkl" : "unknown";
}

bool same_draw(const at::Tensor& got, const at::Tensor& want) {
  if (bit_equal(got, want)) return true;
  const bool rounded = got.scalar_type() == at::kFloat && want.scalar_type() == at::kFloat;
  return !has_vector_kernels() && rounded && got.sizes() == want.sizes() && largest_ulp(got, want) <= 2;
}

std::string draw_rule() {
  return fmt::format("draws compared {} (CPU capability {})",
                     has_vector_kernels() ? "bit for bit" : "within 2 ulp", at::get_cpu_capability());
}

}  // namespace attentive

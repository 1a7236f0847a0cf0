#include "kernels/gemm/few_linear.h"

#include <algorithm>

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "kernels/gemm/gemm.h"
#include "kernels/gemm/scratch.h"
#include "kernels/plain.h"
#include "kernels/simd/simd.h"

namespace attentive::kernels::cpu {
namespace {

constexpr int64_t kRows = 16;
// A weight that stays in a core's caches (256 KiB) is worth turning for a tile product, from so many rows on.
constexpr int64_t kWeightsOfTile = int64_t{1} << 16, kRowsOfTile = 5;
constexpr int64_t kWeightsOfThread = int64_t{1} << 16;  // what a thread is worth waking for

void multiply_by_tile(const float* x, int64_t rows, const float* weight, int64_t outputs, int64_t features,
                      float* out) {
  Scratch& scratch = Scratch::of_this_thread();
  scratch.reset();
  float* right = scratch.take<float>(features * outputs);
  simd().transpose(weight, features, right, outputs, outputs, features);
  gemm(rows, outputs, features, x, features, right, outputs, out, outputs, /*accumulate=*/false);
  gemm_done();
}

void multiply(const at::Tensor& x, int64_t rows, const at::Tensor& weight, float* out) {
  const int64_t outputs = weight.size(0), features = weight.size(1);
  const auto* left = x.const_data_ptr<float>();
  const bool is_bf16 = weight.scalar_type() == at::kBFloat16;
  if (!is_bf16 && rows >= kRowsOfTile && features * outputs <= kWeightsOfTile)
    return multiply_by_tile(left, rows, weight.const_data_ptr<float>(), outputs, features, out);
  const auto* weights = static_cast<const char*>(weight.const_data_ptr());
  const auto row_bytes = features * weight.element_size();
  const auto grain = std::max<int64_t>(kWeightsOfThread / features, 1);
  at::parallel_for(0, outputs, grain, [&](int64_t begin, int64_t end) {
    simd().few_products(left, rows, weights + begin * row_bytes, is_bf16, end - begin, features, out + begin,
                        outputs);
  });
}

// The dtypes that are multiplied here: bfloat16 where the library would multiply number by number.
bool takes(at::ScalarType type) {
  return type == at::kFloat || (type == at::kBFloat16 && !libtorch_multiplies_bf16());
}

}  // namespace

at::Tensor few_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const auto type = x.scalar_type();
  if (at::GradMode::is_enabled() || x.dim() == 0 || weight.dim() != 2 || !takes(type)) return {};
  const int64_t features = weight.size(1), outputs = weight.size(0), numbers = x.numel();
  if (numbers == 0 || numbers > kRows * features || outputs == 0) return {};
  if (x.size(-1) != features || (bias.defined() && (bias.dim() != 1 || bias.size(0) != outputs))) return {};
  if (!is_plain(x, type) || !is_plain(weight, type) || (bias.defined() && !is_plain(bias, type))) return {};
  if (at::autocast::is_autocast_enabled(at::kCPU)) return {};

  at::DimVector sizes(x.sizes());
  sizes.back() = outputs;
  const auto result = at::empty(sizes, x.options().dtype(at::kFloat));
  auto* out = result.mutable_data_ptr<float>();
  multiply(x.to(at::kFloat), numbers / features, weight, out);
  if (bias.defined()) {
    const auto wide = bias.to(at::kFloat);
    for (int64_t r = 0; r < numbers / features; ++r, out += outputs)
      simd().add(wide.const_data_ptr<float>(), out, outputs);
  }
  return result.to(type);
}

}  // namespace attentive::kernels::cpu

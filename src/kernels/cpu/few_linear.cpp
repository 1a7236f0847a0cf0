#include "kernels/cpu/few_linear.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/plain.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd.h"

namespace attentive::kernels::cpu {
namespace {

constexpr int64_t kRows = 16;
constexpr int64_t kRowsOfTile = 5;              // from here on a tile product is worth turning the weight for
constexpr int64_t kWeights = int64_t{1} << 16;  // 256 KiB

void multiply(const float* x, int64_t rows, const float* weight, int64_t outputs, int64_t features,
              float* out) {
  if (rows < kRowsOfTile) {
    simd().few_scores(x, rows, weight, /*is_bf16=*/false, features, outputs, features, out, outputs);
    return;
  }
  Scratch& scratch = Scratch::of_this_thread();
  scratch.reset();
  float* right = scratch.take<float>(features * outputs);
  simd().transpose(weight, features, right, outputs, outputs, features);
  gemm(rows, outputs, features, x, features, right, outputs, out, outputs, /*accumulate=*/false);
  gemm_done();
}

}  // namespace

at::Tensor few_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (at::GradMode::is_enabled() || x.dim() == 0 || weight.dim() != 2) return {};
  const int64_t features = weight.size(1), outputs = weight.size(0), numbers = x.numel();
  if (numbers == 0 || numbers > kRows * features || features * outputs > kWeights) return {};
  if (x.size(-1) != features || (bias.defined() && (bias.dim() != 1 || bias.size(0) != outputs))) return {};
  if (!is_plain(x) || !is_plain(weight) || (bias.defined() && !is_plain(bias))) return {};
  if (at::autocast::is_autocast_enabled(at::kCPU)) return {};

  at::DimVector sizes(x.sizes());
  sizes.back() = outputs;
  auto result = at::empty(sizes, x.options());
  multiply(x.const_data_ptr<float>(), numbers / features, weight.const_data_ptr<float>(), outputs, features,
           result.mutable_data_ptr<float>());
  if (bias.defined()) {
    float* out = result.mutable_data_ptr<float>();
    for (int64_t r = 0; r < numbers / features; ++r, out += outputs)
      simd().add(bias.const_data_ptr<float>(), out, outputs);
  }
  return result;
}

}  // namespace attentive::kernels::cpu

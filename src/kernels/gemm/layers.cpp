#include "kernels/gemm/layers.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "core/large_pages.h"
#include "kernels/plain.h"

namespace attentive::kernels::cpu {

bool may_multiply(const at::Tensor& x, at::ArrayRef<LinearLayer> layers) {
  const auto type = x.scalar_type();
  if (at::GradMode::is_enabled() || x.dim() == 0 || x.numel() == 0) return false;
  if (type != at::kFloat && type != at::kHalf && type != at::kBFloat16) return false;
  if (!is_plain(x, type) || at::autocast::is_autocast_enabled(at::kCPU)) return false;
  const int64_t features = x.size(-1);
  return std::all_of(layers.begin(), layers.end(), [&](const LinearLayer& layer) {
    const auto &weight = layer.weight, &bias = layer.bias;
    if (weight.dim() != 2 || weight.size(1) != features || weight.size(0) == 0) return false;
    if (bias.defined() && (bias.dim() != 1 || bias.size(0) != weight.size(0))) return false;
    return is_plain(weight, type) && (!bias.defined() || is_plain(bias, type));
  });
}

at::Tensor empty_result(const at::Tensor& x, const LinearLayer& layer) {
  at::DimVector sizes(x.sizes());
  sizes.back() = layer.weight.size(0);
  return in_large_pages(at::empty(sizes, x.options()));
}

}  // namespace attentive::kernels::cpu

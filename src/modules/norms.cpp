#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/zeros.h>

#include <attentive/modules/norms.h>

#include "functional/elementwise.h"
#include "modules/checks.h"

namespace attentive {

void LayerNormImpl::reset() {
  check_positive(kName, "emb_dim", options.emb_dim());
  check_eps(kName, options.eps());
  scale = register_parameter("scale", at::ones({options.emb_dim()}));
  if (options.bias()) shift = register_parameter("shift", at::zeros({options.emb_dim()}));
}

at::Tensor LayerNormImpl::forward(const at::Tensor& x) {
  check_norm_input(kName, x, options.emb_dim(), scale);
  return at::layer_norm(x, {options.emb_dim()}, scale, shift, options.eps());
}

void RMSNormImpl::reset() {
  check_positive(kName, "features", options.features());
  check_eps(kName, options.eps());
  weight = register_parameter(
      "weight", options.unit_offset() ? at::zeros({options.features()}) : at::ones({options.features()}));
}

at::Tensor RMSNormImpl::forward(const at::Tensor& x) {
  check_floating(kName, "x", x);
  check_device(kName, "x", x, weight);
  TORCH_CHECK_VALUE(x.dim() > 0 && x.size(-1) == options.features(), kName, ": expected x of shape (..., ",
                    options.features(), "), got ", shape_string(x.sizes()));
  check_dtype(kName, "x", x, weight);
  auto fused = fused_rms_norm(x, weight, options.eps(), options.unit_offset() ? 1.0 : 0.0);
  if (fused.defined()) return fused;
  if (!options.unit_offset()) return at::rms_norm(x, {options.features()}, weight, options.eps());
  const auto wide = at::promote_types(x.scalar_type(), at::kFloat);
  return at::rms_norm(x.to(wide), {options.features()}, weight.to(wide) + 1, options.eps())
      .to(x.scalar_type());
}

}  // namespace attentive

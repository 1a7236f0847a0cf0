#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <attentive/modules/layer_norm.h>

#include "modules/checks.h"

namespace attentive {

LayerNormImpl::LayerNormImpl(LayerNormOptions options_) : options(options_) {
  build();
}

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

}  // namespace attentive

#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <attentive/compat/layer_norm.h>

#include "modules/checks.h"

namespace attentive::compat {

LayerNormImpl::LayerNormImpl(LayerNormOptions options_) : options(std::move(options_)) {
  build();
}

void LayerNormImpl::reset() {
  check_positive(kName, "features", options.features());
  check_eps(kName, options.eps());
  weight = register_parameter("weight", at::ones({options.features()}));
  if (options.bias()) bias = register_parameter("bias", at::zeros({options.features()}));
}

at::Tensor LayerNormImpl::forward(const at::Tensor& x) {
  check_norm_input(kName, x, options.features(), weight);
  return at::layer_norm(x, {options.features()}, weight, bias, options.eps());
}

}  // namespace attentive::compat

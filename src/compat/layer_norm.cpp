#include <cmath>

#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <attentive/compat/layer_norm.h>

#include "core/check.h"
#include "modules/projection.h"

namespace attentive::compat {
namespace {

constexpr const char* kWho = "compat::LayerNorm";

}  // namespace

LayerNormImpl::LayerNormImpl(LayerNormOptions options_) : options(std::move(options_)) {
  build();
}

void LayerNormImpl::reset() {
  check_positive(kWho, "features", options.features());
  TORCH_CHECK_VALUE(std::isfinite(options.eps()) && options.eps() >= 0.0, kWho,
                    ": expected eps to be finite and not negative, got ", options.eps());
  weight = register_parameter("weight", at::ones({options.features()}));
  if (options.bias()) bias = register_parameter("bias", at::zeros({options.features()}));
}

void LayerNormImpl::pretty_print(std::ostream& stream) const {
  stream << std::boolalpha << "attentive::compat::LayerNorm(features=" << options.features()
         << ", eps=" << options.eps() << ", bias=" << options.bias() << ")";
}

at::Tensor LayerNormImpl::forward(const at::Tensor& x) {
  check_norm_input(kWho, x, options.features(), weight);
  return at::layer_norm(x, {options.features()}, weight, bias, options.eps());
}

}  // namespace attentive::compat

#include <cmath>

#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <attentive/modules/layer_norm.h>

#include "core/check.h"
#include "modules/projection.h"

namespace attentive {
namespace {

constexpr const char* kWho = "LayerNorm";

}  // namespace

LayerNormImpl::LayerNormImpl(LayerNormOptions options_) : options(options_) {
  build();
}

void LayerNormImpl::reset() {
  check_positive(kWho, "emb_dim", options.emb_dim());
  TORCH_CHECK_VALUE(std::isfinite(options.eps()) && options.eps() >= 0, kWho, ": expected eps >= 0, got ",
                    options.eps());
  scale = register_parameter("scale", at::ones({options.emb_dim()}));
  if (options.bias()) shift = register_parameter("shift", at::zeros({options.emb_dim()}));
}

void LayerNormImpl::pretty_print(std::ostream& stream) const {
  stream << std::boolalpha << "attentive::LayerNorm(emb_dim=" << options.emb_dim()
         << ", eps=" << options.eps() << ", bias=" << options.bias() << ")";
}

at::Tensor LayerNormImpl::forward(const at::Tensor& x) {
  check_norm_input(kWho, x, options.emb_dim(), scale);
  return at::layer_norm(x, {options.emb_dim()}, scale, shift, options.eps());
}

}  // namespace attentive

#include <cmath>

#include <ATen/ops/ones.h>
#include <ATen/ops/rms_norm.h>

#include <attentive/modules/rms_norm.h>

#include "core/check.h"
#include "modules/projection.h"

namespace attentive {
namespace {

constexpr const char* kWho = "RMSNorm";

}  // namespace

RMSNormImpl::RMSNormImpl(RMSNormOptions options_) : options(options_) {
  build();
}

void RMSNormImpl::reset() {
  check_positive(kWho, "features", options.features());
  TORCH_CHECK_VALUE(std::isfinite(options.eps()) && options.eps() >= 0, kWho, ": expected eps >= 0, got ",
                    options.eps());
  weight = register_parameter("weight", at::ones({options.features()}));
}

void RMSNormImpl::pretty_print(std::ostream& stream) const {
  stream << "attentive::RMSNorm(features=" << options.features() << ", eps=" << options.eps() << ")";
}

at::Tensor RMSNormImpl::forward(const at::Tensor& x) {
  check_floating(kWho, "x", x);
  check_device(kWho, "x", x, weight);
  TORCH_CHECK_VALUE(x.dim() > 0 && x.size(-1) == options.features(), kWho, ": expected x of shape (..., ",
                    options.features(), "), got ", shape_string(x.sizes()));
  return at::rms_norm(x, {options.features()}, weight, options.eps());
}

}  // namespace attentive

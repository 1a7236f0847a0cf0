#include "kernels/native_backward.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

namespace attentive::kernels {

void refuse_second_derivative() {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !at::GradMode::is_enabled(),
      "attention: backend native has no second derivative; differentiate twice through "
      "Backend::Reference");
}

}  // namespace attentive::kernels

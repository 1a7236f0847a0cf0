#include "kernels/native_backward.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

namespace attentive::kernels {

void refuse_second_derivative() {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !at::GradMode::is_enabled(),
      "attention: backend native has no second derivative; differentiate twice through "
      "Backend::Reference");
}

void Changes::watch(const at::Tensor& result) {
  // The counter is shared with every view of the result, whatever becomes of the tensor.
  const auto& version = result.unsafeGetTensorImpl()->version_counter();
  seen_.emplace_back(version, version.current_version());
}

bool Changes::any() const {
  return std::any_of(seen_.begin(), seen_.end(),
                     [](const auto& one) { return one.first.current_version() != one.second; });
}

}  // namespace attentive::kernels

#pragma once

#include <torch/version.h>

#include "kernels/torch/aten_internals.h"

namespace attentive::kernels::pytorch {

// Before 2.11, with head_dim 1 and more than 64 queries, the kernel's gradients in half precision are wrong.
inline constexpr bool kHalfGradientsNeedTwoNumbers = TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 11;

// aten_cpu under autograd. ATen's own graph keeps the output for the backward pass and raises if the
// caller changes it in place; here it is then computed anew. The logsumexp carries no gradient.
aten::FusedResult flash_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                            const std::optional<at::Tensor>& mask, std::optional<double> scale);

}  // namespace attentive::kernels::pytorch

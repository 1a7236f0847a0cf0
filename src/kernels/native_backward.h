#pragma once

// What the backward passes of our own kernels share, on the CPU and on CUDA.

#include <ATen/core/Tensor.h>

namespace attentive::kernels {

// Throws where a gradient is being differentiated again.
void refuse_second_derivative();

// Gradient of the sinks (H): the sink's weight is exp(sink - logsumexp) and its value zero. logsumexp and
// delta: (B, H, L).
at::Tensor sink_gradient(const at::Tensor& sinks, const at::Tensor& logsumexp, const at::Tensor& delta);

}  // namespace attentive::kernels

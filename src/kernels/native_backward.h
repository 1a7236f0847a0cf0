#pragma once

// What the backward passes of our own kernels share, on the CPU and on CUDA.

namespace attentive::kernels {

// Throws where a gradient is being differentiated again.
void refuse_second_derivative();

}  // namespace attentive::kernels

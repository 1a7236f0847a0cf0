#pragma once

// Backend::Native on the CPU: this package's own kernel, with a tiled online softmax in the forward pass and
// recomputed weights in the backward pass. Memory: O(T).

#include "kernels/problem.h"

namespace attentive::kernels::native_cpu {

Verdict verdict(const Problem& problem);
AttentionResult run(const Problem& problem);

}  // namespace attentive::kernels::native_cpu

#pragma once

// Backend::Native on the CPU: this package's own kernel. Tiled online softmax forward, recomputing backward, memory
// O(T).

#include "kernels/problem.h"

namespace attentive::kernels::native_cpu {

Verdict verdict(const Problem& problem);
AttentionResult run(const Problem& problem);

}  // namespace attentive::kernels::native_cpu

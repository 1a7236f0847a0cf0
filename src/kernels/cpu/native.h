#pragma once

// Backend::Native: this package's own CPU kernel. Tiled online softmax forward, recomputing backward, memory
// O(T).

#include "kernels/problem.h"

namespace attentive::kernels::cpu {

Verdict verdict(const Problem& problem);
AttentionResult run(const Problem& problem);

}  // namespace attentive::kernels::cpu

#pragma once

#include "kernels/native_cuda/masked_softmax.h"
#include "kernels/problem.h"

namespace attentive::kernels::native_cuda {

// Backend::Native on CUDA: two matrix products around the fused masked softmax. Every option, O(L S) memory,
// one pass over the scores each way.
Verdict verdict(const Problem& problem);
AttentionResult run(const Problem& problem);

// The same with given kernels, on the device of the tensors.
AttentionResult run_with(const SoftmaxKernels& kernels, const Problem& problem);

}  // namespace attentive::kernels::native_cuda

#pragma once

#include "kernels/native_cuda/masked_softmax.h"
#include "kernels/problem.h"

namespace attentive::kernels::native_cuda {

/// Backend::Native on CUDA: two matrix products around the fused masked softmax. It supports every option,
/// takes O(L S) memory, and makes one pass over the scores forward and one backward.
Verdict verdict(const Problem& problem);
AttentionResult run(const Problem& problem);

/// Runs with the given kernels, on the device of the tensors.
AttentionResult run_with(const SoftmaxKernels& kernels, const Problem& problem);

}  // namespace attentive::kernels::native_cuda

#pragma once

// Backend::Torch: PyTorch's own fused kernels, for the calls that they express exactly.

#include "kernels/problem.h"

namespace attentive::kernels::pytorch {

Verdict verdict(const Problem& problem);
Outcome run(const Problem& problem);

/// The verdict of run() for a problem that verdict() accepts, in most cases without running the kernel.
Verdict verdict_after_all(const Problem& problem);

/// The implementations for one kind of device.
Verdict verdict_cpu(const Problem& problem);
Outcome run_cpu(const Problem& problem);
Verdict verdict_after_all_cpu(const Problem& problem);
Verdict verdict_cuda(const Problem& problem);
AttentionResult run_cuda(const Problem& problem);

/// Whether autograd records operations on q, k or v.
bool needs_gradient(const Problem& problem);

}  // namespace attentive::kernels::pytorch

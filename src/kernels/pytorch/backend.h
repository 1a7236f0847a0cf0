#pragma once

// Backend::Torch: PyTorch's own fused kernels, for the calls that they express exactly. (A namespace of the
// folder's name would hide LibTorch's.)

#include "kernels/problem.h"

namespace attentive::kernels::pytorch {

Verdict verdict(const Problem& problem);
Outcome run(const Problem& problem);

// The verdict of run() for a problem that verdict() takes, in most cases without running it.
Verdict verdict_after_all(const Problem& problem);

// The parts for one kind of device.
Verdict verdict_cpu(const Problem& problem);
Outcome run_cpu(const Problem& problem);
Verdict verdict_after_all_cpu(const Problem& problem);
Verdict verdict_cuda(const Problem& problem);
AttentionResult run_cuda(const Problem& problem);

// True if autograd records an operation on these inputs.
bool needs_gradient(const Problem& problem);

}  // namespace attentive::kernels::pytorch

#pragma once

// The operators under autograd and under autocast.

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/stack.h>

#include "operators/call_arguments.h"

namespace attentive::operators {

/// Kernels of the autograd keys. The backward operator can be differentiated again.
template <Kind kKind>
void forward_with_autograd(const c10::OperatorHandle& op, torch::jit::Stack* stack);
template <Kind kKind>
void backward_with_autograd(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// Kernel of the autocast keys: q, k and v are cast.
template <Kind kKind>
void forward_with_autocast(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace attentive::operators

#pragma once

// The row kernels of the fused masked softmax, run block by block and thread by thread on the CPU: the very
// source that the GPU runs.

#include <ATen/Dispatch.h>

#include "kernels/emulated_block.h"
#include "kernels/native_cuda/masked_softmax.h"

namespace attentive::test {

template <class T>
T* row_of(const at::Tensor& x, int64_t row) {
  return x.defined() ? x.data_ptr<T>() + row * x.size(3) : nullptr;
}

inline void emulated_forward(const kernels::native_cuda::SoftmaxCall& call,
                             const kernels::native_cuda::ForwardTensors& t) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, t.scores.scalar_type(), "emulated", [&] {
    for (int64_t row = 0; row < call.B * call.H * call.L; ++row) {
      EmulatedBlock block(kernels::native_cuda::threads_for(call.S), row % 2 == 1);
      kernels::native_cuda::forward_row<scalar_t>(
          block, call, row, row_of<scalar_t>(t.scores, row), row_of<scalar_t>(t.clean, row),
          row_of<scalar_t>(t.dropped, row), t.logsumexp.data_ptr<float>() + row,
          t.statistics.data_ptr<float>() + 2 * row);
    }
  });
}

inline void emulated_backward(const kernels::native_cuda::SoftmaxCall& call,
                              const kernels::native_cuda::BackwardTensors& t) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, t.scores.scalar_type(), "emulated", [&] {
    for (int64_t row = 0; row < call.B * call.H * call.L; ++row) {
      EmulatedBlock block(kernels::native_cuda::threads_for(call.S), row % 2 == 1);
      kernels::native_cuda::backward_row<scalar_t>(
          block, call, row, row_of<scalar_t>(t.scores, row), t.statistics.data_ptr<float>() + 2 * row,
          row_of<scalar_t>(t.grad_clean, row), row_of<scalar_t>(t.grad_dropped, row),
          t.grad_logsumexp.defined() ? t.grad_logsumexp.data_ptr<float>()[row] : 0.0f,
          row_of<scalar_t>(t.grad_scores, row), row_of<float>(t.grad_logits, row),
          t.sink_terms.defined() ? t.sink_terms.data_ptr<float>() + row : nullptr);
    }
  });
}

inline constexpr kernels::native_cuda::SoftmaxKernels kEmulatedSoftmax = {emulated_forward,
                                                                          emulated_backward};

}  // namespace attentive::test

#pragma once

// The row kernels of the fused masked softmax, run block by block and thread by thread on the CPU, from the
// source that the GPU runs.

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "kernels/emulated_block.h"
#include "kernels/native_cuda/masked_softmax.h"

namespace attentive::test {

/// Calls row(T{}, block, index) for every row of elements of type T.
template <class Row>
void for_each_row(const kernels::Call& call, kernels::Element type, const Row& row) {
  const auto all = [&](auto number) {
    for (int64_t index = 0; index < call.B * call.H * call.L; ++index) {
      EmulatedBlock block(kernels::native_cuda::threads_for(call.S), index % 2 == 1);
      row(number, block, index);
    }
  };
  using kernels::Element;
  if (type == Element::Float32) all(float{});
  if (type == Element::BFloat16) all(c10::BFloat16{});
  if (type == Element::Float16) all(c10::Half{});
}

inline void emulated_forward(const kernels::Call& call, kernels::Element type,
                             const kernels::native_cuda::ForwardRows& rows) {
  for_each_row(call, type, [&](auto number, EmulatedBlock& block, int64_t index) {
    kernels::native_cuda::forward_row<decltype(number)>(block, call, rows, index);
  });
}

inline void emulated_backward(const kernels::Call& call, kernels::Element type,
                              const kernels::native_cuda::BackwardRows& rows) {
  for_each_row(call, type, [&](auto number, EmulatedBlock& block, int64_t index) {
    kernels::native_cuda::backward_row<decltype(number)>(block, call, rows, index);
  });
}

inline constexpr kernels::native_cuda::SoftmaxKernels kEmulatedSoftmax = {emulated_forward,
                                                                          emulated_backward};

}  // namespace attentive::test

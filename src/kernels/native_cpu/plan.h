#pragma once

// A problem whose tensors lie as the loops read them, and the call that the loops get.

#include <ATen/core/ivalue.h>

#include "kernels/attention/call.h"
#include "kernels/lowering.h"
#include "kernels/native_backward.h"

namespace attentive::kernels::native_cpu {

using cpu::Call;
using cpu::Strided;

// It outlives the forward pass for the backward one, which gets its tensors back from autograd.
struct Plan : torch::CustomClassHolder {
  Numbers numbers;
  Terms terms;      // empty once autograd keeps them
  Changes changes;  // of the results
};

// See lower().
c10::intrusive_ptr<Plan> make_plan(const Problem& problem, bool for_backward);

Call make_call(const Numbers& numbers, const Terms& terms, at::ScalarType type);

template <class T>
Strided<const T> read(const at::Tensor& x) {
  return {static_cast<const T*>(x.const_data_ptr()), x.stride(0), x.stride(1), x.stride(2),
          x.size(3) == 1 ? 1 : x.stride(3)};
}

template <class T>
Strided<T> write(const at::Tensor& x) {
  return {static_cast<T*>(x.mutable_data_ptr()), x.stride(0), x.stride(1), x.stride(2), 1};
}

// q, k, v or an incoming gradient with rows that read() can take.
at::Tensor with_unit_stride(const at::Tensor& x);

// (B, H, L, D) that lies as (B, L, H, D): merging the heads afterwards is a view. It is no view itself, so
// that what autograd makes of it may be changed in place.
at::Tensor heads_inside(const at::Tensor& like, int64_t heads, int64_t rows, int64_t dim);

// A gradient that lies as its tensor does, where that has no gaps: a leaf keeps it without a copy.
at::Tensor gradient_of(const at::Tensor& x);

}  // namespace attentive::kernels::native_cpu

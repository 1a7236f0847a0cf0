#pragma once

// Tensors as the views that the native kernel reads and writes.

#include <ATen/core/Tensor.h>

#include "kernels/arguments.h"

namespace attentive::kernels::native_cpu {

template <class T>
Strided<const T> read(const at::Tensor& x) {
  return {static_cast<const T*>(x.const_data_ptr()), x.stride(0), x.stride(1), x.stride(2)};
}

template <class T>
Strided<T> write(const at::Tensor& x) {
  return {static_cast<T*>(x.mutable_data_ptr()), x.stride(0), x.stride(1), x.stride(2)};
}

/// A tensor (B, H, L, S) of any strides; an undefined one has no data.
template <class T>
Strided<const T> read_pairs(const at::Tensor& x) {
  if (!x.defined()) return {};
  auto view = read<T>(x);
  view.col = x.stride(3);
  return view;
}

/// The numbers of a contiguous tensor; null for an undefined one.
template <class T>
T* written_data(const at::Tensor& x) {
  return x.defined() ? static_cast<T*>(x.mutable_data_ptr()) : nullptr;
}
template <class T>
const T* read_data(const at::Tensor& x) {
  return x.defined() ? static_cast<const T*>(x.const_data_ptr()) : nullptr;
}

}  // namespace attentive::kernels::native_cpu

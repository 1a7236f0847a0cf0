#pragma once

// Dense tensors as a row of numbers in the order in which they lie in memory, as kernels walk them that know
// no strides.

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>

namespace attentive {

// Its elements from `begin` to `end`: a view.
inline at::Tensor stretch_of(const at::Tensor& dense, int64_t begin, int64_t end) {
  return dense.as_strided({end - begin}, {1}, dense.storage_offset() + begin);
}

// The tensor with these strides: itself, or a copy.
inline at::Tensor with_strides(const at::Tensor& tensor, at::IntArrayRef strides) {
  if (tensor.strides() == strides) return tensor;
  return at::empty_strided(tensor.sizes(), strides, tensor.options()).copy_(tensor);
}

}  // namespace attentive

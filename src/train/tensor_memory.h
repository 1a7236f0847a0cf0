#pragma once

// Tensors as bytes, and dense ones as a row of numbers in the order in which they lie in memory, as kernels walk
// them that know no strides.

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>

namespace attentive {

// The numbers of a CPU tensor as they lie in memory.
inline std::string bytes_of(const at::Tensor& tensor) {
  const auto flat = tensor.contiguous();
  return {static_cast<const char*>(flat.const_data_ptr()), flat.nbytes()};
}

// A copy of bytes as a tensor of uint8.
inline at::Tensor to_tensor(std::string bytes) {
  return at::from_blob(bytes.data(), {static_cast<int64_t>(bytes.size())}, at::kByte).clone();
}

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

#pragma once

// Views of tensors as bytes, and of dense tensors as a one-dimensional array in memory order, as kernels
// without stride support traverse them.

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>

namespace attentive {

/// The bytes of a CPU tensor, in memory order.
inline std::string bytes_of(const at::Tensor& tensor) {
  const auto flat = tensor.contiguous();
  return {static_cast<const char*>(flat.const_data_ptr()), flat.nbytes()};
}

/// Copies bytes to a uint8 tensor.
inline at::Tensor to_tensor(std::string bytes) {
  return at::from_blob(bytes.data(), {static_cast<int64_t>(bytes.size())}, at::kByte).clone();
}

/// A view of the elements from `begin` to `end`, in memory order.
inline at::Tensor stretch_of(const at::Tensor& dense, int64_t begin, int64_t end) {
  return dense.as_strided({end - begin}, {1}, dense.storage_offset() + begin);
}

/// The tensor with these strides: the tensor itself, or a copy.
inline at::Tensor with_strides(const at::Tensor& tensor, at::IntArrayRef strides) {
  if (tensor.strides() == strides) return tensor;
  return at::empty_strided(tensor.sizes(), strides, tensor.options()).copy_(tensor);
}

}  // namespace attentive

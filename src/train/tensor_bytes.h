#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>
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

}  // namespace attentive

#pragma once

#include <cstddef>
#include <string_view>

#include <c10/core/ScalarType.h>

namespace attentive {

/// A dtype as `torch.save` writes it.
struct TorchDtype {
  std::string_view name;  ///< in module torch: "float32"
  at::ScalarType dtype;
  std::string_view storage;  ///< its storage class in module torch; empty: its storages are untyped
  bool tensors = true;       ///< false: a name alone, of which PyTorch makes no tensor with data
};

/// Null if there is none (quantized ones have none here).
const TorchDtype* find_torch_dtype(std::string_view name);
const TorchDtype* find_torch_dtype(at::ScalarType dtype);
const TorchDtype* find_torch_storage(std::string_view storage);

/// True if every byte is 0 or 1: any other one is no bool in C++.
bool are_bools(const void* data, size_t size);

}  // namespace attentive

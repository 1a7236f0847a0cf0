#pragma once

#include <cstddef>
#include <string_view>

#include <c10/core/ScalarType.h>

namespace attentive {

/// How `torch.save` writes a dtype.
struct TorchDtype {
  std::string_view name;  ///< its name in module torch: "float32"
  at::ScalarType dtype;
  std::string_view storage;  ///< its storage class in module torch; empty: its storages are untyped
  bool tensors = true;       ///< false: PyTorch has the dtype's name but makes no tensors with data of it
};

/// Returns null if there is no such dtype; quantized dtypes are not in the list.
const TorchDtype* find_torch_dtype(std::string_view name);
const TorchDtype* find_torch_dtype(at::ScalarType dtype);
const TorchDtype* find_torch_storage(std::string_view storage);

/// Whether every byte is 0 or 1. Any other byte is not a valid bool in C++.
bool are_bools(const void* data, size_t size);

}  // namespace attentive

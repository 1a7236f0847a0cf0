#pragma once

#include <string_view>

#include <c10/core/ScalarType.h>

namespace attentive {

/// Two numbers of 4 bits a byte. A safetensors file counts the numbers, LibTorch's dtype the bytes.
inline constexpr std::string_view kFloat4 = "F4";

/// How files name a dtype.
struct FileDtype {
  std::string_view name;  ///< in Python's module torch: "float32"
  at::ScalarType dtype;
  std::string_view storage;      ///< its storage class in that module; empty: its storages are untyped
  std::string_view safetensors;  ///< in safetensors files; empty: they do not hold it
  bool tensors = true;           ///< false: PyTorch has the dtype's name but makes no tensors with data of it
};

/// Returns null if there is no such dtype; quantized dtypes are not in the list. The dtypes of safetensors
/// files stand in the order of the tensors there, by descending size, so that every tensor is aligned.
const FileDtype* find_torch_dtype(std::string_view name);
const FileDtype* find_torch_dtype(at::ScalarType dtype);
const FileDtype* find_torch_storage(std::string_view storage);
const FileDtype* find_safetensors_dtype(std::string_view name);

}  // namespace attentive

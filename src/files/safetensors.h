#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>

namespace attentive {

/// Hands the bytes of a safetensors file to `write`, in order. Throws SafetensorsError that begins with
/// `caller`, before the first byte, and what `write` throws.
void write_safetensors(const std::string& caller, const std::map<std::string, at::Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata,
                       const std::function<void(const void*, size_t)>& write);

}  // namespace attentive

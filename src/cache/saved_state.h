#pragma once

// The tensors from which a cache is loaded: its checks, whose errors begin with the cache's name.

#include <map>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include "core/check.h"

namespace attentive {

class SavedState {
 public:
  /// Throws c10::ValueError for a tensor that is not in `known`, except "padding".
  SavedState(const char* caller, const std::map<std::string, at::Tensor>& tensors,
             const std::map<std::string, at::Tensor>& known)
      : caller_(caller), tensors_(tensors) {
    for (const auto& item : tensors) {
      TORCH_CHECK_VALUE(known.count(item.first) || item.first == "padding", caller, ": unknown tensor ",
                        item.first);
    }
  }

  bool has(const std::string& name) const { return tensors_.count(name) > 0; }

  const at::Tensor& find(const std::string& name) const {
    const auto found = tensors_.find(name);
    TORCH_CHECK_VALUE(found != tensors_.end(), caller_, ": missing tensor ", name);
    check_defined(caller_, name, found->second);
    return found->second;
  }

  /// A tensor of the dtype and the sizes, without a copy.
  at::Tensor take(const std::string& name, at::ScalarType type, at::IntArrayRef sizes) const {
    const auto& given = find(name);
    TORCH_CHECK_VALUE(given.sizes() == sizes, caller_, ": expected ", name, " of shape ", shape_string(sizes),
                      ", got ", shape_string(given.sizes()));
    TORCH_CHECK_TYPE(given.scalar_type() == type, caller_, ": expected ", name, " of dtype ", type, ", got ",
                     given.scalar_type());
    return given.detach();
  }

  /// The tensor "positions" of that many layers, on the CPU: numbers that are not negative.
  at::Tensor positions(int64_t layers) const {
    const auto result = take("positions", at::kLong, {layers}).to(at::kCPU).contiguous();
    const auto least = result.min().item<int64_t>();
    TORCH_CHECK_VALUE(least >= 0, caller_, ": expected positions >= 0, got ", least);
    return result;
  }

 private:
  const char* caller_;
  const std::map<std::string, at::Tensor>& tensors_;
};

}  // namespace attentive

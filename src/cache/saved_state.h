#pragma once

// Checks of what a cache is told, whose errors begin with the cache's name: numbers of tokens and sequences,
// and the tensors from which it is loaded.

#include <map>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include "core/check.h"

namespace attentive {

inline void check_size(const char* caller, const char* name, int64_t value) {
  TORCH_CHECK_VALUE(value > 0, caller, ": expected ", name, " > 0, got ", value);
}

/// Returns padding, integers of shape (batch,), as int64 on the device; undefined if there is none in any
/// sequence.
inline at::Tensor checked_padding(const char* caller, const at::Tensor& padding, int64_t batch,
                                  at::Device device) {
  TORCH_CHECK_VALUE(padding.dim() == 1 && padding.size(0) == batch && !padding.is_meta() &&
                        at::isIntegralType(padding.scalar_type(), /*includeBool=*/false),
                    caller, ": expected padding as integers of shape (", batch, ",), got ",
                    describe(padding));
  auto counts = padding.to(device, at::kLong, /*non_blocking=*/false, /*copy=*/true);
  const auto least = counts.min().item<int64_t>();
  TORCH_CHECK_VALUE(least >= 0, caller, ": expected padding >= 0, got ", least);
  return counts.max().item<int64_t>() > 0 ? std::move(counts) : at::Tensor();
}

/// Returns rows, integers in [0, batch), as int64.
inline at::Tensor checked_rows(const char* caller, const at::Tensor& rows, int64_t batch) {
  TORCH_CHECK_VALUE(!rows.is_meta(), caller, ": expected rows with data, got a tensor on the meta device");
  TORCH_CHECK_VALUE(rows.dim() == 1 && rows.size(0) > 0 && at::isIntegralType(rows.scalar_type(), false),
                    caller, ": expected rows as integers of shape (B,), got ", describe(rows));
  const auto index = rows.to(at::kLong);
  const auto low = index.min().item<int64_t>(), high = index.max().item<int64_t>();
  TORCH_CHECK_VALUE(low >= 0 && high < batch, caller, ": expected rows in [0, ", batch, "), got ",
                    low < 0 ? low : high);
  return index;
}

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

  /// A copy of "padding" (batch) on the device; undefined if it was not saved.
  at::Tensor padding(int64_t batch, at::Device device) const {
    if (!tensors_.count("padding")) return {};
    return take("padding", at::kLong, {batch}).to(device, at::kLong, /*non_blocking=*/false, /*copy=*/true);
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

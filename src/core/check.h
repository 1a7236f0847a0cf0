#pragma once

// Checks of shapes and dtypes whose errors have one form: "<caller>: expected <requirement>, got <value>".

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

namespace attentive {

/// "(2, 5, 512)"
std::string shape_string(at::IntArrayRef sizes);

/// "Float tensor of shape (2, 5, 512)", "a nested Float tensor", or "an undefined tensor".
std::string describe(const at::Tensor& tensor);

/// A tensor that may be undefined, as the optional that ATen and autograd functions take.
inline std::optional<at::Tensor> as_optional(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

/// Throws c10::ValueError unless `tensor` is defined, and c10::TypeError unless it is dense: nested ones and
/// layouts other than strided (sparse, MKL-DNN) have no strides that a kernel could follow.
void check_defined(std::string_view caller, std::string_view name, const at::Tensor& tensor);

/// Throws c10::ValueError unless `generator` is defined.
void check_defined(std::string_view caller, std::string_view name, const at::Generator& generator);

/// "dense", "nested", "sparse" or "MKL-DNN".
std::string_view layout_name(const at::Tensor& tensor);

/// Throws c10::ValueError unless `tensor` is on the device of `parameter`.
void check_device(std::string_view caller, std::string_view name, const at::Tensor& tensor,
                  const at::Tensor& parameter);

/// Throws as `check_defined` does, and c10::TypeError unless `tensor` is float64, float32, bfloat16 or
/// float16.
void check_floating(std::string_view caller, std::string_view name, const at::Tensor& tensor);

/// Throws c10::ValueError unless 0 <= p <= 1 (NaN included).
void check_probability(std::string_view caller, std::string_view name, double p);

/// The name of an enumerator, given the names in the order of declaration; "unknown" beyond the last one.
template <class Enum, size_t N>
std::string_view enum_name(Enum value, const std::string_view (&names)[N]) {
  const auto index = static_cast<size_t>(value);
  return index < N ? names[index] : "unknown";
}

}  // namespace attentive

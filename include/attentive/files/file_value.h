#pragma once

#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Layout.h>
#include <c10/core/ScalarType.h>

namespace attentive {

/// A value of a `torch.save` or JSON file: None, bool, int64_t, double, std::complex<double>, std::string
/// (UTF-8), a tensor, dtype, device or layout, or one of the structs below. Copies share tensors and nothing
/// else.
///
///   FileValue value = FileValue::Dict{{{"epoch", 3}, {"model", FileValue::Dict{{{"weight", weight}}}}}};
///   value.at("epoch").as<int64_t>();             // 3
///   value.at("model").at("weight").as<at::Tensor>();
class FileValue {
 public:
  struct None {};
  struct List {
    std::vector<FileValue> items;
  };
  /// Also stands for a torch.Size.
  struct Tuple {
    std::vector<FileValue> items;
  };
  struct Set {
    std::vector<FileValue> items;
  };
  struct Bytes {
    std::string bytes;
  };
  /// A Python int that does not fit in 64 bits, in decimal: "-18446744073709551616".
  struct Integer {
    std::string digits;
  };
  /// Keys and values in the file's order. Keys are distinct; each is None, a number, a string, bytes, or a
  /// tuple of these.
  struct Dict {
    std::vector<std::pair<FileValue, FileValue>> items;
    bool ordered = false;  ///< a collections.OrderedDict
  };
  /// A torch.nn.Parameter; `data` itself does not require a gradient.
  struct Parameter {
    at::Tensor data;
    bool requires_grad = true;
  };

  FileValue() = default;  ///< None
  FileValue(None) {}
  // Templates prevent implicit conversions to a number: no pointer becomes a bool, and no size a double.
  template <std::same_as<bool> T>
  FileValue(T value) : value_(value) {}
  template <std::signed_integral T>
  FileValue(T value) : value_(static_cast<int64_t>(value)) {}
  template <std::floating_point T>
  FileValue(T value) : value_(static_cast<double>(value)) {}
  template <std::same_as<std::complex<double>> T>
  FileValue(T value) : value_(value) {}
  FileValue(std::string text) : value_(std::move(text)) {}
  FileValue(const char* text) : value_(std::string(text)) {}
  FileValue(at::Tensor tensor) : value_(std::move(tensor)) {}
  FileValue(Parameter parameter) : value_(std::move(parameter)) {}
  FileValue(at::ScalarType dtype) : value_(dtype) {}
  FileValue(c10::Device device) : value_(device) {}
  FileValue(at::Layout layout) : value_(layout) {}
  FileValue(Bytes bytes) : value_(std::move(bytes)) {}
  FileValue(Integer integer) : value_(std::move(integer)) {}
  FileValue(List list) : value_(std::move(list)) {}
  FileValue(Tuple tuple) : value_(std::move(tuple)) {}
  FileValue(Set set) : value_(std::move(set)) {}
  FileValue(Dict dict) : value_(std::move(dict)) {}

  template <class T>
  bool is() const {
    return std::holds_alternative<T>(value_);
  }

  /// The value as a T. Throws c10::ValueError naming the expected and the actual kind.
  template <class T>
  const T& as() const& {
    if (!is<T>()) refuse(kind_of<T>());
    return *std::get_if<T>(&value_);
  }
  template <class T>
  T as() && {
    if (!is<T>()) refuse(kind_of<T>());
    return std::move(*std::get_if<T>(&value_));
  }

  /// The kind of value, as a word for messages: "OrderedDict", "float", "tensor".
  std::string_view kind() const;

  /// The value under a string key of a dict, or null. Throws c10::ValueError if this is not a dict.
  const FileValue* find(std::string_view key) const;
  /// Returns the value under a string key. Throws c10::ValueError naming the key if it is absent.
  const FileValue& at(std::string_view key) const;

 private:
  using Variant =
      std::variant<None, bool, int64_t, double, std::complex<double>, std::string, at::Tensor, Parameter,
                   at::ScalarType, c10::Device, at::Layout, Bytes, Integer, List, Tuple, Set, Dict>;

  static std::string_view kind_name(size_t alternative);
  template <class T>
  static std::string_view kind_of() {
    return []<size_t... I>(std::index_sequence<I...>) {
      return kind_name(((std::is_same_v<T, std::variant_alternative_t<I, Variant>> ? I : 0) + ...));
    }
    (std::make_index_sequence<std::variant_size_v<Variant>>());
  }
  [[noreturn]] void refuse(std::string_view expected) const;

  Variant value_;
};

}  // namespace attentive

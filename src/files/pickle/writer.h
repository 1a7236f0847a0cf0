#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <fmt/format.h>

#include <attentive/files/file_value.h>

#include "base/refusal.h"

namespace attentive::pickle {

/// Writes a value as `torch.save` does: pickle protocol 2, tensors over storages that are numbered "0", "1",
/// … in the order in which they occur. Throws Refusal, naming the path of the value, for a tensor or number
/// that cannot be represented, and for containers nested deeper than 1000.
class Writer {
 public:
  /// Writes the pickle of a value. May be called once.
  std::string write(const FileValue& value);

  /// The storages that the pickle refers to, by key.
  const std::vector<c10::Storage>& storages() const { return storages_; }

 private:
  void put(const FileValue& value);
  bool put_leaf(const FileValue& value);
  void put_container(const FileValue& value);
  void put_items(const std::vector<FileValue>& items);
  void put_list(const std::vector<FileValue>& items);
  void put_tuple(const std::vector<FileValue>& items);
  void put_dict(const FileValue::Dict& dict);
  void put_bool(bool value);
  void put_integer(int64_t value);
  void put_long(std::string_view bytes);
  void put_float(double value);
  void put_text(std::string_view text);
  void put_bytes(std::string_view bytes);
  void put_device(c10::Device device);
  void put_dtype(at::ScalarType dtype);

  void put_tensor(const at::Tensor& tensor);
  void put_parameter(const FileValue::Parameter& parameter);
  void put_storage(const at::Tensor& tensor, std::string_view type, at::ScalarType dtype);
  void put_sizes(at::IntArrayRef sizes);
  void put_metadata(const at::Tensor& tensor);
  void check(const at::Tensor& tensor) const;

  void op(int opcode) { out_ += static_cast<char>(opcode); }
  template <class T>
  void number(T value) {
    out_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void global(std::string_view module, std::string_view name);
  void common_text(const std::string& text);
  bool get(const std::string& key);
  void remember(const std::string& key);
  template <class... Arguments>
  [[noreturn]] void fail(fmt::format_string<Arguments...> format, Arguments&&... arguments) const {
    refuse("{}: {}", place_.empty() ? "the value" : place_,
           fmt::format(format, std::forward<Arguments>(arguments)...));
  }

  std::string out_;
  std::string place_;  // the keys and indices that lead to the current value
  int depth_ = 0;
  std::unordered_map<std::string, uint32_t> memo_;
  std::unordered_map<const c10::StorageImpl*, std::pair<size_t, at::ScalarType>> keys_;
  std::vector<c10::Storage> storages_;
};

}  // namespace attentive::pickle

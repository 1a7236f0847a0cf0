#include <array>

#include <c10/util/Exception.h>

#include <attentive/files/file_value.h>

#include "base/refusal.h"

namespace attentive {

std::string_view FileValue::kind_name(size_t alternative) {
  // In the order of Variant's alternatives.
  static constexpr std::array<std::string_view, std::variant_size_v<Variant>> kNames = {"None",
                                                                                        "bool",
                                                                                        "int",
                                                                                        "float",
                                                                                        "complex",
                                                                                        "str",
                                                                                        "tensor",
                                                                                        "Parameter",
                                                                                        "dtype",
                                                                                        "device",
                                                                                        "layout",
                                                                                        "bytes",
                                                                                        "int beyond 64 bits",
                                                                                        "list",
                                                                                        "tuple",
                                                                                        "set",
                                                                                        "dict"};
  return kNames[alternative];
}

std::string_view FileValue::kind() const {
  const auto* dict = std::get_if<Dict>(&value_);
  return dict != nullptr && dict->ordered ? "OrderedDict" : kind_name(value_.index());
}

void FileValue::refuse(std::string_view expected) const {
  C10_THROW_ERROR(ValueError, c10::str("FileValue: expected ", expected, ", got ", kind()));
}

const FileValue* FileValue::find(std::string_view key) const {
  for (const auto& [name, value] : as<Dict>().items) {
    if (name.is<std::string>() && name.as<std::string>() == key) return &value;
  }
  return nullptr;
}

const FileValue& FileValue::at(std::string_view key) const {
  const auto* value = find(key);
  TORCH_CHECK_VALUE(value != nullptr, "FileValue: no key ", quoted_name(key), " in the ", kind(), " of ",
                    as<Dict>().items.size());
  return *value;
}

}  // namespace attentive

#include <array>

#include <c10/util/Exception.h>

#include <attentive/io/torch_value.h>

#include "io/safetensors_header.h"

namespace attentive {

std::string_view TorchValue::kind_name(size_t alternative) {
  // In the order of Variant.
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

std::string_view TorchValue::kind() const {
  const auto* dict = std::get_if<Dict>(&value_);
  return dict != nullptr && dict->ordered ? "OrderedDict" : kind_name(value_.index());
}

void TorchValue::refuse(std::string_view expected) const {
  C10_THROW_ERROR(ValueError, c10::str("TorchValue: expected ", expected, ", got ", kind()));
}

const TorchValue* TorchValue::find(std::string_view key) const {
  for (const auto& [name, value] : as<Dict>().items) {
    if (name.is<std::string>() && name.as<std::string>() == key) return &value;
  }
  return nullptr;
}

const TorchValue& TorchValue::at(std::string_view key) const {
  const auto* value = find(key);
  TORCH_CHECK_VALUE(value != nullptr, "TorchValue: no key ", quoted_name(key), " in the ", kind(), " of ",
                    as<Dict>().items.size());
  return *value;
}

}  // namespace attentive

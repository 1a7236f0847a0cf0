#include "files/file_value_truth.h"

#include <algorithm>
#include <bit>
#include <map>
#include <string_view>

#include <fmt/format.h>

namespace attentive::test {
namespace {

using nlohmann::json;

json object_of(const char* kind, json value) {
  json object = json::object();
  object[kind] = std::move(value);
  return object;
}

std::string hexadecimal(const char* data, size_t size) {
  std::string text;
  for (size_t i = 0; i < size; ++i) text += fmt::format("{:02x}", static_cast<unsigned char>(data[i]));
  return text;
}

std::string float_bits(double number) {
  return fmt::format("{:016x}", std::bit_cast<uint64_t>(number));
}

std::string dtype_name(at::ScalarType dtype) {
  return std::string(c10::getDtypeNames(dtype).first);  // a view in LibTorch 2.15
}

// The values in row-major order. By bytes: not every dtype has a kernel that copies it.
std::string contiguous_values(const at::Tensor& lazy) {
  const auto tensor = lazy.detach().resolve_conj().resolve_neg();
  const size_t item = tensor.itemsize();
  const auto* data = static_cast<const char*>(tensor.const_data_ptr());
  std::vector<int64_t> index(static_cast<size_t>(tensor.dim()));
  std::string text;
  for (int64_t count = tensor.numel(); count > 0; --count) {
    int64_t offset = 0;
    for (size_t d = 0; d < index.size(); ++d) offset += index[d] * tensor.stride(static_cast<int64_t>(d));
    text += hexadecimal(data + static_cast<size_t>(offset) * item, item);
    for (size_t d = index.size(); d-- > 0;) {
      if (++index[d] < tensor.size(static_cast<int64_t>(d))) break;
      index[d] = 0;
    }
  }
  return text;
}

class Truth {
 public:
  json describe(const FileValue& value) {
    if (value.is<FileValue::None>()) return nullptr;
    if (value.is<bool>()) return value.as<bool>();
    if (value.is<int64_t>()) return value.as<int64_t>();
    if (value.is<std::string>()) return value.as<std::string>();
    if (value.is<double>()) return object_of("float", float_bits(value.as<double>()));
    if (value.is<std::complex<double>>()) {
      const auto number = value.as<std::complex<double>>();
      return object_of("complex", {float_bits(number.real()), float_bits(number.imag())});
    }
    if (value.is<FileValue::Integer>()) return object_of("int", value.as<FileValue::Integer>().digits);
    if (value.is<FileValue::Bytes>()) {
      const auto& bytes = value.as<FileValue::Bytes>().bytes;
      return object_of("bytes", hexadecimal(bytes.data(), bytes.size()));
    }
    if (value.is<at::ScalarType>()) return object_of("dtype", dtype_name(value.as<at::ScalarType>()));
    if (value.is<c10::Device>()) return object_of("device", value.as<c10::Device>().str());
    if (value.is<at::Layout>()) return object_of("layout", layout_name(value.as<at::Layout>()));
    if (value.is<at::Tensor>()) {
      const auto& tensor = value.as<at::Tensor>();
      return object_of("tensor", describe_tensor(tensor, tensor.requires_grad()));
    }
    if (value.is<FileValue::Parameter>()) {
      const auto& parameter = value.as<FileValue::Parameter>();
      return object_of("parameter", describe_tensor(parameter.data, parameter.requires_grad));
    }
    return describe_container(value);
  }

 private:
  static std::string layout_name(at::Layout layout) {
    static const std::map<at::Layout, std::string> names = {
        {at::kStrided, "strided"},      {at::kSparse, "sparse_coo"},    {at::kSparseCsr, "sparse_csr"},
        {at::kSparseCsc, "sparse_csc"}, {at::kSparseBsr, "sparse_bsr"}, {at::kSparseBsc, "sparse_bsc"}};
    return names.at(layout);
  }

  json describe_container(const FileValue& value) {
    if (value.is<FileValue::List>()) return items(value.as<FileValue::List>().items);
    if (value.is<FileValue::Tuple>()) return object_of("tuple", items(value.as<FileValue::Tuple>().items));
    if (value.is<FileValue::Set>()) {
      auto members = items(value.as<FileValue::Set>().items);
      std::sort(members.begin(), members.end());
      return object_of("set", std::move(members));
    }
    const auto& dict = value.as<FileValue::Dict>();
    json pairs = json::array();
    for (const auto& [key, item] : dict.items) {
      json pair = json::array({describe(key)});  // first the key: it may hold numbered things
      pair.push_back(describe(item));
      pairs.push_back(std::move(pair));
    }
    return object_of(dict.ordered ? "ordered_dict" : "dict", std::move(pairs));
  }

  json items(const std::vector<FileValue>& values) {
    json result = json::array();
    for (const auto& value : values) result.push_back(describe(value));
    return result;
  }

  json describe_tensor(const at::Tensor& tensor, bool requires_grad) {
    return {{"dtype", dtype_name(tensor.scalar_type())},
            {"shape", tensor.sizes().vec()},
            {"stride", tensor.strides().vec()},
            {"offset", tensor.storage_offset()},
            {"object", objects_.emplace(tensor.unsafeGetTensorImpl(), objects_.size()).first->second},
            {"storage",
             storages_.emplace(tensor.storage().unsafeGetStorageImpl(), storages_.size()).first->second},
            {"storage_bytes", tensor.storage().nbytes()},
            {"requires_grad", requires_grad},
            {"values", contiguous_values(tensor)}};
  }

  std::map<const void*, size_t> objects_;
  std::map<const void*, size_t> storages_;
};

}  // namespace

json truth_of(const FileValue& value) {
  return Truth().describe(value);
}

json without_python_kinds(const json& truth) {
  if (!truth.is_structured()) return truth;
  json result = truth.is_array() ? json::array() : json::object();
  if (truth.is_array()) {
    for (const auto& item : truth) result.push_back(without_python_kinds(item));
    return result;
  }
  const std::map<std::string_view, const char*> merged = {
      {"size", "tuple"}, {"bytearray", "bytes"}, {"frozenset", "set"}};
  for (const auto& [kind, value] : truth.items()) {
    const auto known = merged.find(kind);
    result[known == merged.end() ? kind : known->second] = without_python_kinds(value);
  }
  return result;
}

}  // namespace attentive::test

#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include <attentive/files/torch_file.h>

namespace attentive::test {

/// Describes a value as tools/generators/torch_file_truth.py describes Python's values. Tensors and storages
/// are numbered in the order in which they occur, so that equal JSON means equal sharing.
nlohmann::json truth_of(const FileValue& value);

/// Merges the kinds that a FileValue does not distinguish: a torch.Size becomes a tuple, a bytearray bytes, a
/// frozenset a set.
nlohmann::json without_python_kinds(const nlohmann::json& truth);

inline FileValue parse_bytes(const std::string& bytes) {
  return parse_torch(bytes.data(), bytes.size());
}

}  // namespace attentive::test

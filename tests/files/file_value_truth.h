#pragma once

#include <nlohmann/json.hpp>

#include <attentive/files/file_value.h>

namespace attentive::test {

/// Describes a value as tools/generators/torch_file_truth.py describes Python's values. Tensors and storages
/// are numbered in the order in which they occur, so that equal JSON means equal sharing.
nlohmann::json truth_of(const FileValue& value);

/// Merges the kinds that a FileValue does not distinguish: a torch.Size becomes a tuple, a bytearray bytes, a
/// frozenset a set.
nlohmann::json without_python_kinds(const nlohmann::json& truth);

}  // namespace attentive::test

#pragma once

#include <nlohmann/json.hpp>

#include <attentive/files/file_value.h>

namespace attentive::test {

/// What a value is, in the form that tools/torch_file_truth.py gives for Python's. Tensors and storages are
/// numbered in the order in which they are met, so that equal JSON means equal sharing.
nlohmann::json truth_of(const FileValue& value);

/// The same with what a FileValue does not tell apart made one: a torch.Size is a tuple, a bytearray bytes,
/// a frozenset a set.
nlohmann::json without_python_kinds(const nlohmann::json& truth);

}  // namespace attentive::test

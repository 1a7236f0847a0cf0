#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <attentive/files/file_value.h>
#include <attentive/files/state_dict.h>

namespace attentive {

/// A dict of a `torch.save` file that is a state dict: its keys are strings, it holds tensors, and no
/// container in it holds further tensors.
struct StateEntry {
  std::string path;  ///< keys separated by '/'; "" for the whole value
  const FileValue* dict;
};

/// All state dicts that can be reached through dicts with string keys, in the order of the file.
std::vector<StateEntry> state_entries(const FileValue& value);

/// Copies the value without its tensors: dict entries that are tensors are omitted; in lists and tuples, None
/// replaces each tensor.
FileValue without_tensors(const FileValue& value);

/// The reason why a tensor's values cannot be read (nested, sparse, quantized, without data); empty if they
/// can.
std::string refuse_source(const at::Tensor& got);

/// The reason why `got` cannot be copied into `want`; empty if it can. A copy may convert the dtype or the
/// device, but does not broadcast or densify.
std::string refuse_tensor(const at::Tensor& got, const at::Tensor& want);

/// Throws the error that a strict `load_state_dict` would throw, but changes nothing.
void check_state_dict(const torch::nn::Module& module, const StateDict& state);

}  // namespace attentive

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
/// container in it holds any.
struct StateEntry {
  std::string path;  ///< keys separated by '/'; "" for the whole value
  const FileValue* dict;
};

/// All of them that dicts with string keys lead to, in the order of the file.
std::vector<StateEntry> state_entries(const FileValue& value);

/// The value without its tensors: entries of dicts that are tensors are left out, in lists and tuples None
/// stands for one.
FileValue without_tensors(const FileValue& value);

/// Why the numbers of a tensor cannot be read (nested, sparse, quantized, without data); empty if they can.
std::string refuse_source(const at::Tensor& got);

/// Why `got` cannot be copied into `want`; empty if it can. What is copied may be cast and moved, but not
/// broadcast or made dense.
std::string refuse_tensor(const at::Tensor& got, const at::Tensor& want);

/// Throws what a strict `load_state_dict` would throw, and changes nothing.
void check_state_dict(const torch::nn::Module& module, const StateDict& state);

}  // namespace attentive

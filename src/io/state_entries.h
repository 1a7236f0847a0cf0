#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <attentive/io/torch_value.h>

namespace attentive {

/// A dict of a `torch.save` file that is a state dict: its keys are strings, it holds tensors, and no
/// container in it holds any.
struct StateEntry {
  std::string path;  ///< keys separated by '/'; "" for the whole value
  const TorchValue* dict;
};

/// All of them that dicts with string keys lead to, in the order of the file.
std::vector<StateEntry> state_entries(const TorchValue& value);

/// The value without its tensors: entries of dicts that are tensors are left out, in lists and tuples None
/// stands for one.
TorchValue without_tensors(const TorchValue& value);

}  // namespace attentive

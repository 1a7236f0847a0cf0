#pragma once

#include <cstddef>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

namespace attentive {

/// Tensors by their Python state-dict names, such as "heads.0.W_query.weight".
using StateDict = std::map<std::string, at::Tensor>;

struct LoadStateOptions {
  /// Any key that is missing, unexpected or misshapen is an error, and then nothing is changed.
  bool strict = true;
  /// Keys to pass over on both sides. `*` stands for any run of characters: {"out_proj.*", "*.bias"}.
  std::vector<std::string> ignore = {};
};

/// What did not fit when a state dict was loaded; each list is sorted.
struct LoadStateReport {
  std::vector<std::string> missing;     ///< the module has it, the dict lacks it
  std::vector<std::string> unexpected;  ///< the dict has it, the module lacks it
  /// "key: expected ..., got ...": another shape, or a tensor that cannot be copied (quantized, sparse,
  /// nested, without data, of a dtype that does not convert)
  std::vector<std::string> misshapen;

  bool empty() const { return missing.empty() && unexpected.empty() && misshapen.empty(); }
  /// One line per key; empty if everything fits. Of each list at most `most` keys, then how many more.
  std::string to_string(size_t most = std::numeric_limits<size_t>::max()) const;
};

/// Copies a state dict into a module's parameters and buffers, casting to their dtype and moving to their
/// device.
///
/// The parameters stay the same tensors, so optimizers and tied weights keep working. The `mask` buffer of
/// the chapter-3 classes is not state here (see `CausalMaskBuffer`): it is checked for its size and for ones
/// strictly above the diagonal, then dropped; it may also be absent. With `strict = false` whatever fits is
/// loaded and the rest is reported; a misshapen tensor is never loaded.
///
/// Throws c10::ValueError listing what does not fit (strict; of each kind at most ten keys), with the module
/// unchanged: everything is checked before the first number is copied. Memory: none beyond one cast tensor.
///
///   attentive::load_state_dict(*mha, attentive::read_state_dict("mha.safetensors"));
LoadStateReport load_state_dict(torch::nn::Module& module, const StateDict& state,
                                const LoadStateOptions& options = {});

struct StateDictOptions {
  /// Also write the `mask` buffers that the Python classes expect, in the dtype of the module's parameters.
  bool causal_mask_buffers = false;
};

/// The parameters and buffers of a module by their Python names, detached, sharing the module's memory as in
/// Python.
///
/// Throws c10::ValueError if mask buffers are asked for and a module's context_length is not limited.
/// Memory: context_length squared numbers for each mask buffer.
///
///   attentive::save_safetensors("mha.safetensors", attentive::state_dict(*mha, {.causal_mask_buffers =
///   true}));
StateDict state_dict(const torch::nn::Module& module, const StateDictOptions& options = {});

/// Reads a state dict from a safetensors file, or from a plain dict of tensors that Python's `torch.save`
/// wrote. The format is told by the file's content.
///
/// An OrderedDict (what `module.state_dict()` returns) cannot be read by LibTorch, nor can files older than
/// PyTorch 1.6: the error says what to write instead. Throws SafetensorsError for a bad safetensors file,
/// c10::ValueError for anything else. Memory: the tensors; for a `torch.save` file also the file.
///
///   auto state = attentive::read_state_dict("weights.pt");  // torch.save(dict(module.state_dict()),
///   "weights.pt")
StateDict read_state_dict(const std::filesystem::path& path);

}  // namespace attentive

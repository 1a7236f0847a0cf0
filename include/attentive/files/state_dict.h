#pragma once

#include <cstddef>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <attentive/core/module_state.h>
#include <attentive/files/torch_file.h>

namespace attentive {

struct LoadStateOptions {
  /// If true, any key that is missing, unexpected or misshapen is an error, and nothing is changed.
  bool strict = true;
  /// Keys to skip on both sides. `*` matches any run of characters: {"out_proj.*", "*.bias"}.
  std::vector<std::string> ignore = {};
};

/// Lists what did not fit when a state dict was loaded. Each list is sorted.
struct LoadStateReport {
  std::vector<std::string> missing;     ///< in the module, not in the dict
  std::vector<std::string> unexpected;  ///< in the dict, not in the module
  /// "key: expected ..., got ...": another shape, or a tensor that cannot be copied (quantized, sparse,
  /// nested, without data, of a dtype that does not convert)
  std::vector<std::string> misshapen;

  bool empty() const { return missing.empty() && unexpected.empty() && misshapen.empty(); }
  /// One line per key; empty if everything fits. At most `most` keys of each list are named, followed by the
  /// number of the remaining ones.
  std::string to_string(size_t most = std::numeric_limits<size_t>::max()) const;
};

/// Copies a state dict into a module's parameters and buffers, converting each tensor to their dtype and
/// device.
///
/// The parameters stay the same tensors, so optimizers and tied weights keep working. The `mask` buffer of
/// the chapter-3 classes is not part of the state here (see `CausalMaskBuffer`): if present, its size is
/// checked, and that it has ones strictly above the diagonal, and it is then dropped. With `strict = false`,
/// whatever fits is loaded and the rest is reported; a misshapen tensor is never loaded.
///
/// Throws c10::ValueError listing what does not fit (if strict; at most ten keys of each kind), with the
/// module unchanged: everything is checked before the first number is copied. If keys hold parts that
/// wrappers add (`without_wrappers`), the message says so.
/// Memory: one converted tensor at a time.
///
///   attentive::load_state_dict(*mha, attentive::read_state_dict("mha.safetensors"));
LoadStateReport load_state_dict(torch::nn::Module& module, const StateDict& state,
                                const LoadStateOptions& options = {});

struct StateDictOptions {
  /// Also writes the `mask` buffers that the Python classes expect, in the dtype of the module's parameters.
  bool causal_mask_buffers = false;
};

/// The parameters and buffers of a module by their Python names, detached. They share the module's memory, as
/// in Python.
///
/// Throws c10::ValueError if mask buffers are requested and a module's context_length is not limited.
/// Memory: context_length squared numbers for each mask buffer.
///
///   const auto state = attentive::state_dict(*mha, {.causal_mask_buffers = true});
///   attentive::save_safetensors("mha.safetensors", state);
StateDict state_dict(const torch::nn::Module& module, const StateDictOptions& options = {});

struct ReadStateOptions {
  /// The path of the state dict within the file, keys separated by '/': "ema/model". If empty, the state dict
  /// is searched for.
  std::string entry = {};
  /// `map`: whether tensors refer to a mapping of the file, in either format. The other members are for
  /// `torch.save` files.
  TorchFileOptions file = {};
};

/// A state dict as read from a file, with the other contents of the file.
struct StateDictFile {
  StateDict state;
  /// Where the state dict was found: "" for the whole file, otherwise a path such as "model" or "ema/model".
  std::string entry;
  /// What wrappers (`without_wrappers`) put before every key: "module.", "_orig_mod.", or several of them. The
  /// keys keep the prefix; `without_prefix` removes it.
  std::string prefix;
  /// The content of the file without its tensors: dict entries that are tensors are left out, and in lists
  /// and tuples None replaces them. For a safetensors file, a dict of its metadata.
  FileValue values;
};

/// Reads a state dict, and everything else in the file, from a safetensors file, from a file that Python's
/// `torch.save` wrote, or from several such files with an index. The file's content decides the format.
///
/// A state dict is a dict with string keys that holds tensors but no nested container with tensors. If the
/// whole file is not one, the state dict is the entry "state_dict", "model" or "model_state_dict", provided
/// that exactly one of them is one; otherwise the error lists all state dicts in the file, and `entry`
/// selects one. Parameters are returned as tensors, and no tensor requires a gradient.
///
/// `path` may be `model.safetensors.index.json` or `pytorch_model.bin.index.json`, or a folder with exactly
/// one of these, `model.safetensors` and `pytorch_model.bin`. Every shard must be in the folder of its index,
/// under a plain file name, and hold exactly the tensors that the index lists for it.
///
/// Throws SafetensorsError or TorchFileError for a bad file, and c10::ValueError for anything else.
/// Memory: the tensors of the file (none with `file.map`).
///
///   auto file = attentive::read_state_dict_file("checkpoint.pt");
///   attentive::load_state_dict(*model, attentive::without_prefix(file.state, file.prefix));
///   auto epoch = file.values.at("epoch").as<int64_t>();
StateDictFile read_state_dict_file(const std::filesystem::path& path, const ReadStateOptions& options = {});

/// Reads only the state dict of a file.
///
///   auto state = attentive::read_state_dict("weights.pt");  // torch.save(module.state_dict(), "weights.pt")
StateDict read_state_dict(const std::filesystem::path& path, const ReadStateOptions& options = {});

/// Copies a state dict with `prefix` removed from every key; tensors are shared. Throws c10::ValueError
/// naming a key that does not begin with `prefix`.
StateDict without_prefix(const StateDict& state, std::string_view prefix);

/// Copies a state dict without the parts that wrappers put into keys, wherever they stand: "module."
/// (DataParallel), "_orig_mod." (torch.compile), "_checkpoint_wrapped_module." and "_fsdp_wrapped_module."
/// (FSDP); tensors are shared. Throws c10::ValueError naming a key if two become one.
///
///   auto state = attentive::without_wrappers(attentive::read_state_dict("compiled.pt"));
StateDict without_wrappers(const StateDict& state);

}  // namespace attentive

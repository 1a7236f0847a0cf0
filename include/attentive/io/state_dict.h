#pragma once

#include <cstddef>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <attentive/io/torch_file.h>

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
/// unchanged: everything is checked before the first number is copied. Where all keys have a prefix of
/// DataParallel or torch.compile too many, it says so. Memory: none beyond one cast tensor.
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
///   const auto state = attentive::state_dict(*mha, {.causal_mask_buffers = true});
///   attentive::save_safetensors("mha.safetensors", state);
StateDict state_dict(const torch::nn::Module& module, const StateDictOptions& options = {});

struct ReadStateOptions {
  /// Where the state dict is in the file, keys separated by '/': "ema/model". Empty: it is looked for.
  std::string entry = {};
  /// For `torch.save` files: limits, and whether tensors refer to a mapping of the file.
  TorchFileOptions file = {};
};

/// A state dict as a file holds it, and what else is there.
struct StateDictFile {
  StateDict state;
  /// Where it was: "" for the whole file, else such as "model" or "ema/model".
  std::string entry;
  /// "module." if every key begins with it, as DataParallel writes them, "_orig_mod." if torch.compile did,
  /// or both. The keys keep it; `without_prefix` takes it off.
  std::string prefix;
  /// The file's value without tensors: entries of dicts that are tensors are left out, in lists and tuples
  /// None stands for one. For a safetensors file a dict of its metadata.
  TorchValue values;
};

/// Reads a state dict, and what stands beside it, from a safetensors file, from a file that Python's
/// `torch.save` wrote, or from several of them with an index. The format is told by the file's content.
///
/// A state dict is a dict with string keys that holds tensors, and holds none in a container within it. If
/// the whole file is none, it is the entry "state_dict", "model" or "model_state_dict", if exactly one of
/// them is one; otherwise the error lists every one that the file holds, and `entry` names it. Parameters
/// come as tensors; no tensor requires a gradient.
///
/// `path` may be `model.safetensors.index.json` or `pytorch_model.bin.index.json`, or the folder of exactly
/// one of these, `model.safetensors` or `pytorch_model.bin`. Every shard must lie beside its index under a
/// plain name and hold exactly the tensors that the index lists for it.
///
/// Throws SafetensorsError or TorchFileError for a bad file, c10::ValueError for anything else. Memory: the
/// tensors of the file.
///
///   auto file = attentive::read_state_dict_file("checkpoint.pt");
///   attentive::load_state_dict(*model, attentive::without_prefix(file.state, file.prefix));
///   auto epoch = file.values.at("epoch").as<int64_t>();
StateDictFile read_state_dict_file(const std::filesystem::path& path, const ReadStateOptions& options = {});

/// The state dict alone.
///
///   auto state = attentive::read_state_dict("weights.pt");  // torch.save(module.state_dict(), "weights.pt")
StateDict read_state_dict(const std::filesystem::path& path, const ReadStateOptions& options = {});

/// The same tensors under keys without their first characters. Throws c10::ValueError, naming the key, for
/// one that does not begin with `prefix`.
StateDict without_prefix(const StateDict& state, std::string_view prefix);

}  // namespace attentive

#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <attentive/io/torch_value.h>

namespace attentive {

/// A `torch.save` file that is malformed, that exceeds a limit, that holds something which is not read here,
/// or that could not be opened or written. The message reads `<function>: <path>: <reason>`; from memory,
/// `<function>: <reason>`.
class TorchFileError : public c10::ValueError {
 public:
  using c10::ValueError::ValueError;
};

/// What reading may cost. A file beyond a limit is refused before anything of that size is allocated, and the
/// error names the limit.
struct TorchFileLimits {
  /// All storages together.
  uint64_t max_tensor_bytes = uint64_t{1} << 40;
  /// The pickled description, without tensor data: its bytes in the file, the memory that it takes while it
  /// is read, and the bytes of all strings that come out of it, each of the three.
  uint64_t max_pickle_bytes = uint64_t{48} << 20;
  /// Containers within containers, at most 1000 of them.
  int64_t max_depth = 100;
  int64_t max_tensors = 1'000'000;
  /// Numbers, strings, tensors and containers that come out, together; what the file mentions twice counts
  /// twice.
  int64_t max_values = 10'000'000;
};

struct TorchFileOptions {
  TorchFileLimits limits = {};
  /// Tensors refer to a private mapping of the file instead of owning memory: nothing is copied, writes to a
  /// tensor do not reach the file, and the mapping lives as long as a tensor of it. Nobody may truncate the
  /// file or write into it while it lives; replacing it by a rename is safe. What the file holds unaligned
  /// for its dtype is copied nevertheless. Only for `load_torch`.
  bool map = false;
  /// Compare the CRC-32 of every record of a zip file with its bytes. Off, with `map`: tensor data are not
  /// read before they are used, except those of bool tensors. (The format before PyTorch 1.6 has no
  /// checksums.)
  bool checksums = true;
};

/// Reads what Python's `torch.save` wrote: the zip format, and the one before PyTorch 1.6. Strictly: nothing
/// in the file is executed or looked up, only the values that `TorchValue` names are built, and what
/// `torch.save` would not have written is refused with its reason.
///
/// Tensors come to the CPU, whatever device they were saved from, with their dtype, sizes, strides and
/// requires_grad; tensors that shared a storage share it, and one tensor mentioned twice is one tensor. The
/// state of an OrderedDict (`_metadata` of a module's state dict) and of a parameter is dropped; a Counter
/// comes as a dict, a frozenset as a set, a bytearray as bytes, a torch.Size as a tuple. Pickle protocols 2
/// to 5. Quantized, sparse, nested and meta tensors, TorchScript archives, big-endian files and any other
/// class or function are refused by name.
///
/// Throws TorchFileError. Memory: the tensors (with `map`: none), the values and, while it is read, the
/// description; a file that is refused costs at most 64 MiB more than its size under the default limits.
///
///   auto value = attentive::load_torch("checkpoint.pt");
///   auto epoch = value.at("epoch").as<int64_t>();
TorchValue load_torch(const std::filesystem::path& path, const TorchFileOptions& options = {});

/// The same for a file that already lies in memory; `data` is only read, and no tensor refers to it
/// afterwards.
TorchValue parse_torch(const void* data, size_t size, const TorchFileOptions& options = {});

/// Writes a file that Python's `torch.load(weights_only=True)` reads, all or nothing as `save_safetensors`
/// does.
///
/// The zip format with pickle protocol 2, laid out as PyTorch 2.11 does. Tensors keep dtype, sizes, strides
/// and requires_grad; those that share a storage share it in the file, where the whole storage is written, as
/// Python does. Tensors on another device are written as CPU tensors. The bytes depend only on the content.
///
/// Throws TorchFileError for a tensor that is undefined, not dense, quantized, or without data (meta device),
/// text that is not UTF-8, a dict key that Python cannot hash or that comes twice, values nested deeper than
/// 1000, and when the disk refuses. Memory: the description, and one storage that has to be copied to the
/// CPU.
///
///   attentive::save_torch("checkpoint.pt", attentive::TorchValue::Dict{{{"epoch", 3}, {"lr", 0.1}}});
void save_torch(const std::filesystem::path& path, const TorchValue& value);

/// The same for a state dict: an OrderedDict of tensors, detached, in the order of the map.
///
///   attentive::save_torch("model.pt", attentive::state_dict(*model));
void save_torch(const std::filesystem::path& path, const std::map<std::string, at::Tensor>& state);

}  // namespace attentive

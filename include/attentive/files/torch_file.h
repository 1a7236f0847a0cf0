#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <attentive/files/file_value.h>

namespace attentive {

/// A `torch.save` file that is malformed, exceeds a limit, holds something this package does not read, or
/// could not be opened or written. The message reads `<function>: <path>: <reason>`, or `<function>:
/// <reason>` for data in memory.
class TorchFileError : public c10::ValueError {
 public:
  using c10::ValueError::ValueError;
};

/// Limits on the cost of reading a file. A file beyond a limit is refused before anything of that size is
/// allocated, and the error names the limit.
struct TorchFileLimits {
  /// The bytes of all storages together.
  uint64_t max_tensor_bytes = uint64_t{1} << 40;
  /// The pickled description, without tensor data. The limit applies to each of three quantities: its bytes
  /// in the file, the memory it takes while it is read, and the bytes of all resulting strings together.
  uint64_t max_pickle_bytes = uint64_t{48} << 20;
  /// The depth to which containers may be nested, at most 1000.
  int64_t max_depth = 100;
  int64_t max_tensors = 1'000'000;
  /// The number of resulting numbers, strings, tensors and containers together; an object that the file
  /// mentions twice counts twice.
  int64_t max_values = 10'000'000;
};

struct TorchFileOptions {
  TorchFileLimits limits = {};
  /// If true, tensors refer to a private mapping of the file instead of owning memory. Nothing is copied,
  /// writes to a tensor do not reach the file, and the mapping lives as long as any of its tensors. The file
  /// must not be truncated or written to during that time; replacing it by a rename is safe. Data that are
  /// not aligned for their dtype in the file are copied nevertheless. Only for `load_torch`.
  bool map = false;
  /// If true, the CRC-32 of every record of a zip file is compared with its bytes, if the file states any:
  /// after `torch.serialization.set_crc32_options(False)`, PyTorch writes none, and the format before PyTorch
  /// 1.6 has none. If false, with `map`, tensor data are not read before they are used, except those of bool
  /// tensors.
  bool checksums = true;
};

/// Reads a file that Python's `torch.save` wrote, in the zip format or the one before PyTorch 1.6. Reading is
/// strict: nothing in the file is executed or imported, only the values that `FileValue` names are built,
/// and anything that `torch.save` would not have written is refused with the reason.
///
/// Tensors are placed on the CPU, whatever device they were saved from, with their dtype, sizes, strides and
/// requires_grad. Tensors that shared a storage share it again, and one tensor mentioned twice is one tensor.
/// The state of an OrderedDict (`_metadata` of a module's state dict) and of a parameter is dropped. A
/// Counter becomes a dict, a frozenset a set, a bytearray bytes, and a torch.Size a tuple. Pickle protocols 2
/// to 5 are read. Quantized, sparse, nested and meta tensors, TorchScript archives, big-endian files and any
/// other class or function are refused by name.
///
/// Throws TorchFileError.
/// Memory: the tensors (none with `map`), the values and, during the call, the description. Under the default
/// limits, a file that is refused costs at most 64 MiB more than its size.
///
///   auto value = attentive::load_torch("checkpoint.pt");
///   auto epoch = value.at("epoch").as<int64_t>();
FileValue load_torch(const std::filesystem::path& path, const TorchFileOptions& options = {});

/// Reads a file that is already in memory. `data` is only read, and no tensor refers to it afterwards.
FileValue parse_torch(const void* data, size_t size, const TorchFileOptions& options = {});

/// Writes a file that Python's `torch.load(weights_only=True)` reads, all or nothing as `save_safetensors`
/// does.
///
/// The format is zip with pickle protocol 2, in the layout of PyTorch 2.11. Tensors keep their dtype, sizes,
/// strides and requires_grad. Tensors that share a storage share it in the file, where the whole storage is
/// written, as in Python. Tensors on another device are written as CPU tensors. The bytes depend only on the
/// content.
///
/// Throws TorchFileError for a tensor that is undefined, not dense, quantized, or without data (meta device);
/// for text that is not UTF-8; for a dict key that Python cannot hash or that occurs twice; for values nested
/// deeper than 1000; and if the file cannot be written.
/// Memory: the description, and one storage that has to be copied to the CPU.
///
///   attentive::save_torch("checkpoint.pt", attentive::FileValue::Dict{{{"epoch", 3}, {"lr", 0.1}}});
void save_torch(const std::filesystem::path& path, const FileValue& value);

/// Writes a state dict: an OrderedDict of detached tensors, in the order of the map.
///
///   attentive::save_torch("model.pt", attentive::state_dict(*model));
void save_torch(const std::filesystem::path& path, const std::map<std::string, at::Tensor>& state);

}  // namespace attentive

#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

namespace attentive {

/// A safetensors file that is malformed, or that could not be read or written. The message reads
/// `<function>: <path>: <reason>` and names the tensor at fault.
class SafetensorsError : public c10::ValueError {
 public:
  using c10::ValueError::ValueError;
};

/// The content of a safetensors file: named CPU tensors, and the strings of its `__metadata__`.
struct SafetensorsFile {
  std::map<std::string, std::string> metadata = {};
  std::map<std::string, at::Tensor> tensors = {};
};

struct SafetensorsOptions {
  /// If true, tensors refer to a private mapping of the file instead of owning memory. Nothing is copied or
  /// read before it is used (except bool tensors), writes to a tensor do not reach the file, and the mapping
  /// lives as long as any of its tensors. The file must not be truncated or written to during that time;
  /// replacing it by a rename is safe. Data that are not aligned for their dtype are copied nevertheless.
  bool map = false;
};

/// Reads a safetensors file strictly: anything that the format does not allow is refused with the reason.
///
/// The file is mapped, and each tensor is copied out of the mapping once, unless `options.map` is set. The
/// tensors therefore own their memory, are aligned and writable, and the file may afterwards be changed,
/// deleted or overwritten. (While the call runs, another process must not truncate the file in place, as with
/// every mapped file.) Dtypes:
/// F64 F32 F16 BF16 F8_E4M3 F8_E5M2 F8_E4M3FNUZ F8_E5M2FNUZ F8_E8M0 F4 I64 I32 I16 I8 U64 U32 U16 U8 C64
/// BOOL; F4, two numbers a byte, with LibTorch 2.8 or newer.
///
/// Throws SafetensorsError if the file cannot be read; if its header is longer than 100,000,000 bytes or than
/// the file, is not UTF-8 or not JSON, or has a duplicate, missing, unknown or mistyped key; if a size
/// overflows or does not match its dtype and shape; if byte ranges overlap, leave a gap or do not end with
/// the file; and if a bool is neither 0 nor 1.
/// Memory: the tensors (none with `map`).
/// Source: the format description of huggingface/safetensors.
///
///   auto file = attentive::load_safetensors("model.safetensors");
///   auto weight = file.tensors.at("W_query.weight");
SafetensorsFile load_safetensors(const std::filesystem::path& path, const SafetensorsOptions& options = {});

/// Reads a safetensors file that is already in memory. `data` is only read, and no tensor refers to it
/// afterwards.
///
///   auto file = attentive::parse_safetensors(bytes.data(), bytes.size());
SafetensorsFile parse_safetensors(const void* data, size_t size);

/// Writes tensors and metadata as a safetensors file, all or nothing.
///
/// The bytes are written to a temporary file in the same folder and synced to the disk, and a rename then
/// replaces `path`. After an error, or after a crash at any moment, the old file is intact. Saving over a
/// file that was loaded is safe. A symbolic link is followed, and an existing file keeps its permissions. The
/// bytes depend only on the content: tensors are ordered by descending item size, then by name.
/// Non-contiguous tensors and tensors on another device are copied one at a time; each of several tensors
/// that share memory is written in full.
///
/// Throws SafetensorsError, naming the tensor, for one that is undefined, not dense, without data (meta
/// device) or of a dtype that the format lacks; for the name `__metadata__`; for text that is not UTF-8; and
/// if the file cannot be written.
/// Memory: the largest tensor that has to be copied.
///
///   attentive::save_safetensors("model.safetensors", {{"weight", weight}}, {{"torch", "2.11.0"}});
void save_safetensors(const std::filesystem::path& path, const std::map<std::string, at::Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace attentive

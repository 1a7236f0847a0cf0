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

/// What a safetensors file holds: named CPU tensors, and the strings of its `__metadata__`.
struct SafetensorsFile {
  std::map<std::string, std::string> metadata = {};
  std::map<std::string, at::Tensor> tensors = {};
};

/// Reads a safetensors file, strictly: what the format does not allow is refused with its reason.
///
/// The file is mapped and each tensor copied out of the mapping once, so the tensors own their memory: they
/// are aligned and writable, and the file may then be changed, deleted or saved over. (While the call runs,
/// another process must not truncate it in place, as with every mapped file.) Dtypes: F64 F32 F16 BF16
/// F8_E4M3 F8_E5M2 I64 I32 I16 I8 U64 U32 U16 U8 C64 BOOL.
///
/// Throws SafetensorsError if the file cannot be read; if its header is longer than 100,000,000 bytes or than
/// the file, not UTF-8, not JSON, or holds a duplicate, missing, unknown or mistyped key; if a size overflows
/// or differs from its dtype and shape; if byte ranges overlap, leave a hole or do not end with the file; and
/// if a bool is not 0 or 1. Memory: the tensors. Source: the format description of huggingface/safetensors.
///
///   auto file = attentive::load_safetensors("model.safetensors");
///   auto weight = file.tensors.at("W_query.weight");
SafetensorsFile load_safetensors(const std::filesystem::path& path);

/// The same for a file that already lies in memory; `data` is only read, and no tensor refers to it
/// afterwards.
///
///   auto file = attentive::parse_safetensors(bytes.data(), bytes.size());
SafetensorsFile parse_safetensors(const void* data, size_t size);

/// Writes tensors and metadata as a safetensors file, all or nothing.
///
/// The bytes go to a temporary file in the same folder, are synced to the disk, and replace `path` by a
/// rename. After an error, and after a crash at any moment, the old file is whole. Saving onto a file that
/// was loaded is safe. A symbolic link is followed; an existing file keeps its permissions. The bytes depend
/// only on the content: tensors lie by descending item size, then by name. Strided tensors and tensors on
/// another device are copied one at a time; tensors that share memory are written once each.
///
/// Throws SafetensorsError, naming the tensor, for one that is undefined, not dense, without data (meta
/// device) or of a dtype the format lacks; for the name `__metadata__`; for text that is not UTF-8; and when
/// the disk refuses. Memory: the largest tensor that has to be copied.
///
///   attentive::save_safetensors("model.safetensors", {{"weight", weight}}, {{"torch", "2.11.0"}});
void save_safetensors(const std::filesystem::path& path, const std::map<std::string, at::Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace attentive

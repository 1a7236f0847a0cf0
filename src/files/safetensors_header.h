#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

namespace attentive {

/// One tensor of a safetensors header: its bytes are [begin, end) of the data after the header.
struct SafetensorsEntry {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::map<std::string, SafetensorsEntry> entries;
};

inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

/// The name of a dtype in the format; empty if the format lacks it.
std::string_view safetensors_dtype(at::ScalarType dtype);

/// The position of a dtype in a file: descending item size, so that every tensor is aligned.
int safetensors_rank(at::ScalarType dtype);

/// Parses the JSON text of a header and checks it against `data_size`, the number of bytes after it.
/// Returns the reason why it is refused, or nothing.
std::optional<std::string> parse_safetensors_header(std::string_view text, uint64_t data_size,
                                                    SafetensorsHeader& header);

/// Hands the bytes of a safetensors file to `write`, in order. Throws SafetensorsError that begins with
/// `caller`, before the first byte, and what `write` throws.
void write_safetensors(const std::string& caller, const std::map<std::string, at::Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata,
                       const std::function<void(const void*, size_t)>& write);

}  // namespace attentive

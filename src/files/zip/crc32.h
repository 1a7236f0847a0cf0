#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace attentive {

/// Extends the CRC-32 of zip archives (polynomial 0xEDB88320, reflected) by more bytes. `before` is the
/// CRC-32 of the preceding bytes: crc32(crc32(0, a), b) is the CRC-32 of a followed by b.
uint32_t crc32(uint32_t before, const void* data, size_t size);

/// One implementation of CRC-32.
struct Crc32Method {
  const char* name;
  uint32_t (*run)(uint32_t before, const void* data, size_t size);
};

/// The methods that this processor supports, beginning with the portable one, which is the slowest.
const std::vector<Crc32Method>& crc32_methods();

/// The method that `crc32` uses: the last of them, or the portable one under ATEN_CPU_CAPABILITY=default,
/// which restricts the kernels too.
const Crc32Method& crc32_method();

}  // namespace attentive

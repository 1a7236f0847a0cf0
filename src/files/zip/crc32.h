#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace attentive {

/// The CRC-32 of zip archives (polynomial 0xEDB88320, reflected) of bytes that follow bytes with the CRC-32
/// `before`: crc32(crc32(0, a), b) is that of a and b together. Runs the fastest way of this processor, or
/// the portable one under ATEN_CPU_CAPABILITY=default.
uint32_t crc32(uint32_t before, const void* data, size_t size);

/// One way to compute it.
struct Crc32Method {
  const char* name;
  uint32_t (*run)(uint32_t before, const void* data, size_t size);
};

/// The ways that this processor can take, the slowest and most portable first.
const std::vector<Crc32Method>& crc32_methods();

}  // namespace attentive

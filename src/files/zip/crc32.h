#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/cpu_features.h"

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
std::vector<Crc32Method> crc32_methods();

/// The fastest method of a CPU within `limit`, as `kernels::cpu::select` chooses the kernels: "default"
/// leaves the portable one. `crc32` uses that of `this_cpu` within `cpu_limit`.
const Crc32Method& select_crc32(const CpuFeatures& cpu, std::string_view limit);

}  // namespace attentive

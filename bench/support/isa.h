#pragma once

#include <string>

namespace bench {

/// The instruction sets that LibTorch and this package use on this machine: those of the CPU, restricted by
/// ATEN_CPU_CAPABILITY.
struct Isa {
  std::string capability;  ///< LibTorch's name for its vector instructions
  bool avx2 = false;       ///< with FMA
  bool avx512 = false;
  bool newest = false;  ///< bfloat16 vectors and the matrix unit, if the CPU has them
};

Isa isa_in_use();

}  // namespace bench

#pragma once

#include <string>

namespace bench {

/// The instruction sets that LibTorch and this package use here: those of the CPU, as far as
/// ATEN_CPU_CAPABILITY does not forbid them.
struct Isa {
  std::string capability;  ///< LibTorch's name of the vectors that it uses
  bool avx2 = false;       ///< with FMA
  bool avx512 = false;
  bool newest = false;  ///< bfloat16 vectors and the matrix unit, as far as the CPU has them
};

Isa isa_in_use();

}  // namespace bench

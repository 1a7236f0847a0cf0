#pragma once

// Which vector code and which products a CPU gets.

#include <string_view>

#include "kernels/simd/cpu_features.h"
#include "kernels/simd/simd.h"

namespace attentive::kernels::cpu {

enum class Bf16Product {
  Widened,     // operands are widened to float32, which is exact, and multiplied as such
  Pairs,       // vdpbf16ps
  MatrixUnit,  // AMX
};

struct Selection {
  const Simd* simd;
  Bf16Product bf16;
};

// `limit` as ATEN_CPU_CAPABILITY has it, which limits PyTorch's own kernels to an instruction set: it limits
// these too ("avx512": without bfloat16 instructions and matrix unit). It never makes them wider than the
// CPU.
Selection select(const CpuFeatures& cpu, std::string_view limit);

// What this process uses: that of this CPU and of the variable, unless a test forces another.
const Selection& selection();

// For tests: forces a selection that this CPU can run, for all threads, until the end of the scope.
class SelectionGuard {
 public:
  explicit SelectionGuard(const Selection& selection);
  ~SelectionGuard();
  SelectionGuard(const SelectionGuard&) = delete;
  SelectionGuard& operator=(const SelectionGuard&) = delete;

 private:
  Selection selection_;
  const Selection* before_;
};

}  // namespace attentive::kernels::cpu

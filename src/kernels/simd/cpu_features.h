#pragma once

namespace attentive::kernels::cpu {

// Instruction sets that a CPU and its operating system run.
struct CpuFeatures {
  bool avx2 = false;         // with FMA
  bool avx512 = false;       // F, BW, DQ, VL, with FMA
  bool avx512_bf16 = false;  // the same and its products of bfloat16
  // Such a product takes no longer than one of float32 of half the numbers: Zen 4 and 5. Intel's cores take
  // several cycles: on Sapphire Rapids it runs at half float32's rate.
  bool fast_pairs = false;
  bool amx = false;  // with bfloat16 tiles, and the system lets this process use them
};

// This CPU's, whatever ATEN_CPU_CAPABILITY asks for: that variable may name a set that the CPU lacks, and
// PyTorch believes it.
const CpuFeatures& this_cpu();

}  // namespace attentive::kernels::cpu

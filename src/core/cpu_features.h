#pragma once

#include <string_view>

namespace attentive {

/// The instruction sets that a CPU and its operating system support.
struct CpuFeatures {
  bool pclmul = false;       ///< carry-less products, with SSE 4.1
  bool avx2 = false;         ///< with FMA and F16C
  bool avx512 = false;       ///< F, BW, DQ, VL, with avx2
  bool avx512_bf16 = false;  ///< avx512 and its products of bfloat16
  bool avx512_fp16 = false;  ///< avx512_bf16 and products of float16
  bool avx512_vbmi = false;  ///< avx512 and permutations of bytes
  /// Whether an instruction that multiplies pairs of bfloat16 takes no longer than one of float32, as on Zen
  /// 4 and 5. Intel's cores take several cycles: on Sapphire Rapids such products run at half float32's rate.
  bool fast_pairs = false;
  bool neon = false;       ///< every 64-bit ARM
  bool neon_bf16 = false;  ///< neon and its products of bfloat16 (bfmmla)
  bool amx = false;        ///< with bfloat16 tiles, and permission of the system to use them
  /// Whether keys and values come from memory faster if they are prefetched into the L2 cache rather than
  /// into L1, which can wait for few lines at a time. On Zen 4 and Sapphire Rapids they do, on Zen 5 they do
  /// not.
  bool prefetch_to_l2 = false;
};

/// The features of this CPU, without regard to ATEN_CPU_CAPABILITY: that variable may name a set that the CPU
/// lacks, which PyTorch does not check.
const CpuFeatures& this_cpu();

/// The value of ATEN_CPU_CAPABILITY, which limits PyTorch's kernels to an instruction set and therefore
/// limits this package's code too; empty if it is not set. It is read once.
std::string_view cpu_limit();

}  // namespace attentive

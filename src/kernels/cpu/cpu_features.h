#pragma once

namespace attentive::kernels::cpu {

// Instruction sets that this CPU and its operating system run, whatever ATEN_CPU_CAPABILITY asks for: that
// variable may name a set that the CPU lacks, and PyTorch believes it.
bool cpu_runs_avx2();         // with FMA
bool cpu_runs_avx512();       // F, BW, DQ, VL, with FMA
bool cpu_runs_avx512_bf16();  // the same and its products of bfloat16

}  // namespace attentive::kernels::cpu

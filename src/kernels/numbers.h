#pragma once

// What a problem says without tensors, as our own kernels read it, on the CPU and on CUDA.

#include "kernels/band.h"

namespace attentive::kernels {

struct Numbers {
  int64_t B = 0, H = 0, Hkv = 0, L = 0, S = 0, D = 0, Dv = 0;
  Band band;
  float scale = 1.0f;
  float softcap = 0.0f;  // 0: none
  bool dropout = false;
  uint64_t dropout_key = 0;
  uint32_t threshold = 65536;  // 16 random bits below it survive
  float survivor_scale = 1.0f;
  int64_t batch_offset = 0;
};

}  // namespace attentive::kernels

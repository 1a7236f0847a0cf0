#pragma once

// A problem as our own kernels read it, on the CPU and on CUDA: numbers, and the tensors beside q, k and v.

#include "kernels/band.h"

namespace attentive::kernels {

struct Scalars {
  int64_t B = 0, H = 0, Hkv = 0, L = 0, S = 0, D = 0, Dv = 0;
  Band band;
  float scale = 1.0f;
  float softcap = 0.0f;  // 0: none
  bool dropout = false;
  uint64_t dropout_key = 0;
  uint32_t threshold = 65536;  // 16 random bits below it survive
  float survivor_scale = 1.0f;
  int64_t batch_offset = 0, head_offset = 0;
};

// A tensor of rank 4 or less; a broadcast dimension has stride 0.
template <class T>
struct Strided {
  T* data = nullptr;
  int64_t b = 0, h = 0, row = 0, col = 1;

  ATTENTIVE_HOST_DEVICE T* at(int64_t ib, int64_t ih, int64_t ir = 0, int64_t ic = 0) const {
    return data + ib * b + ih * h + ir * row + ic * col;
  }
  ATTENTIVE_HOST_DEVICE explicit operator bool() const { return data != nullptr; }
};

// Null pointers: no such term. Who makes a call keeps its tensors.
struct KernelArguments : Scalars {
  Strided<const bool> keep = {};         // (B, H, L, S)
  Strided<const float> bias = {};        // (B, H, L, S)
  const int64_t* key_lengths = nullptr;  // (B)
  Strided<const float> slopes = {};      // ALiBi: (B, H)
  const float* sinks = nullptr;          // (H)
};

}  // namespace attentive::kernels

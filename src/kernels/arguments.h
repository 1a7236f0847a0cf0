#pragma once

// The form of a problem that this package's own kernels read, on the CPU and on CUDA: its numbers, and its
// tensors other than q, k and v.

#include "kernels/band.h"

namespace attentive::kernels {

/// The element types of q, k and v.
enum class Element { Float32, BFloat16, Float16 };

struct Scalars {
  int64_t B = 0, H = 0, Hkv = 0, L = 0, S = 0, D = 0, Dv = 0;
  Band band;
  float scale = 1.0f;
  float softcap = 0.0f;  ///< 0: none
  bool dropout = false;
  uint64_t dropout_key = 0;
  uint32_t threshold = 65536;  ///< a weight survives if its 16 random bits are below it
  float survivor_scale = 1.0f;
  int64_t batch_offset = 0, head_offset = 0;
  int64_t key_offset = 0, whole_queries = 0, whole_keys = 0;  ///< for score and mask functions; 0: L, S
};

/// A view of a tensor of rank 4 or less; a broadcast dimension has stride 0.
template <class T>
struct Strided {
  T* data = nullptr;
  int64_t b = 0, h = 0, row = 0, col = 1;

  ATTENTIVE_HOST_DEVICE T* at(int64_t ib, int64_t ih, int64_t ir = 0, int64_t ic = 0) const {
    return data + ib * b + ih * h + ir * row + ic * col;
  }
  ATTENTIVE_HOST_DEVICE explicit operator bool() const { return data != nullptr; }
};

/// A view of a bias (B, H, L, S) in its own element type; a broadcast dimension has stride 0.
struct BiasView {
  const void* data = nullptr;
  Element element = Element::Float32;
  int64_t b = 0, h = 0, row = 0, col = 1;

  /// The view as one of numbers of type T, which must be that of `element`.
  template <class T>
  ATTENTIVE_HOST_DEVICE Strided<const T> as() const {
    return {static_cast<const T*>(data), b, h, row, col};
  }
  ATTENTIVE_HOST_DEVICE explicit operator bool() const { return data != nullptr; }
};

/// Null means that the term is absent. The caller keeps the tensors alive.
struct KernelArguments : Scalars {
  Strided<const bool> keep = {};         ///< (B, H, L, S)
  BiasView bias = {};                    ///< (B, H, L, S); float32 on CUDA
  const int64_t* key_lengths = nullptr;  ///< (B)
  Strided<const float> slopes = {};      ///< ALiBi: (B, H)
  const float* sinks = nullptr;          ///< (H)
};

}  // namespace attentive::kernels

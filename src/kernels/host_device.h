#pragma once

// What a function needs that the CPU and the GPU run alike. It is always inlined: units of vector code may include it.

#if defined(__CUDACC__)
#define ATTENTIVE_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define ATTENTIVE_HOST_DEVICE __attribute__((always_inline)) inline
#endif

namespace attentive::kernels {

// The product itself: nvcc would make it part of a fused sum, where passes that must come to the same number
// may not.
ATTENTIVE_HOST_DEVICE float product(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

}  // namespace attentive::kernels

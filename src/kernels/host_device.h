#pragma once

// The attributes of a function that both the CPU and the GPU run. It is always inlined, so that vector code
// may include it.

#if defined(__CUDACC__)
#define ATTENTIVE_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define ATTENTIVE_HOST_DEVICE __attribute__((always_inline)) inline
#endif

namespace attentive::kernels {

/// A rounded product. nvcc could fuse it with a following sum in one pass and not in another, but the passes
/// must compute the same bits.
ATTENTIVE_HOST_DEVICE float product(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

}  // namespace attentive::kernels

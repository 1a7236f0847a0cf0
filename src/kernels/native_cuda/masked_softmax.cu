// The row kernels on the GPU, with one thread block per row.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/native_cuda/masked_softmax.h"

namespace attentive::kernels::native_cuda {
namespace {

constexpr int kMostThreads = 1024;

// The interface of a block (softmax_rows.h) by means of the GPU.
class DeviceBlock {
 public:
  __device__ explicit DeviceBlock(float* shared) : shared_(shared) {}

  template <class T, int N>
  class PerThread {
   public:
    __device__ __forceinline__ T* operator()(int) { return numbers_; }

   private:
    T numbers_[N];
  };

  __device__ __forceinline__ int size() const { return static_cast<int>(blockDim.x); }
  template <class F>
  __device__ __forceinline__ void phase(const F& f) {
    f(static_cast<int>(threadIdx.x));
    __syncthreads();
  }
  __device__ __forceinline__ float read(int, int offset) const { return shared_[offset]; }
  __device__ __forceinline__ void write(int, int offset, float value) { shared_[offset] = value; }

 private:
  float* shared_;
};

template <class T>
__global__ void __launch_bounds__(kMostThreads) forward_kernel(Call call, ForwardRows rows) {
  __shared__ float shared[kMostThreads];
  DeviceBlock block(shared);
  for (int64_t row = blockIdx.x; row < call.B * call.H * call.L; row += gridDim.x)
    forward_row<T>(block, call, rows, row);
}

template <class T>
__global__ void __launch_bounds__(kMostThreads) backward_kernel(Call call, BackwardRows rows) {
  __shared__ float shared[kMostThreads];
  DeviceBlock block(shared);
  for (int64_t row = blockIdx.x; row < call.B * call.H * call.L; row += gridDim.x)
    backward_row<T>(block, call, rows, row);
}

template <class Rows>
int launch(void (*float32)(Call, Rows), void (*bfloat16)(Call, Rows), void (*float16)(Call, Rows),
           const Call& call, Element type, const Rows& rows, void* stream) {
  const auto kernel = type == Element::Float32 ? float32 : type == Element::BFloat16 ? bfloat16 : float16;
  const auto blocks = static_cast<unsigned>(least(call.B * call.H * call.L, INT32_MAX)),
             threads = static_cast<unsigned>(threads_for(call.S));
  kernel<<<blocks, threads, 0, static_cast<cudaStream_t>(stream)>>>(call, rows);
  return cudaGetLastError();
}

}  // namespace

int launch_forward(const Call& call, Element type, const ForwardRows& rows, void* stream) {
  return launch(forward_kernel<float>, forward_kernel<__nv_bfloat16>, forward_kernel<__half>, call, type,
                rows, stream);
}

int launch_backward(const Call& call, Element type, const BackwardRows& rows, void* stream) {
  return launch(backward_kernel<float>, backward_kernel<__nv_bfloat16>, backward_kernel<__half>, call, type,
                rows, stream);
}

}  // namespace attentive::kernels::native_cuda

// The row kernels on the GPU: one thread block a row.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/native_cuda/launch.h"

namespace attentive::kernels::native_cuda {
namespace {

constexpr int kMostThreads = 1024;

// What block.h asks for, by the hardware's own means.
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
  __device__ __forceinline__ float read(int, int at) const { return shared_[at]; }
  __device__ __forceinline__ void write(int, int at, float value) { shared_[at] = value; }

 private:
  float* shared_;
};

template <class T, class Pointer>
__device__ T* row_of(Pointer* tensor, int64_t row, int64_t width) {
  return tensor ? static_cast<T*>(tensor) + row * width : nullptr;
}

template <class T>
__global__ void __launch_bounds__(kMostThreads) forward_kernel(SoftmaxCall call, ForwardRows rows) {
  __shared__ float shared[kMostThreads];
  DeviceBlock block(shared);
  for (int64_t row = blockIdx.x; row < call.B * call.H * call.L; row += gridDim.x) {
    forward_row<T>(block, call, row, row_of<const T>(rows.scores, row, call.S),
                   row_of<T>(rows.clean, row, call.S), row_of<T>(rows.dropped, row, call.S),
                   rows.logsumexp + row, rows.statistics + 2 * row);
  }
}

template <class T>
__global__ void __launch_bounds__(kMostThreads) backward_kernel(SoftmaxCall call, BackwardRows rows) {
  __shared__ float shared[kMostThreads];
  DeviceBlock block(shared);
  for (int64_t row = blockIdx.x; row < call.B * call.H * call.L; row += gridDim.x) {
    backward_row<T>(
        block, call, row, row_of<const T>(rows.scores, row, call.S), rows.statistics + 2 * row,
        row_of<const T>(rows.grad_clean, row, call.S), row_of<const T>(rows.grad_dropped, row, call.S),
        rows.grad_logsumexp ? rows.grad_logsumexp[row] : 0.0f, row_of<T>(rows.grad_scores, row, call.S),
        rows.grad_logits ? rows.grad_logits + row * call.S : nullptr,
        rows.sink_terms ? rows.sink_terms + row : nullptr);
  }
}

template <class Rows>
int launch(void (*float32)(SoftmaxCall, Rows), void (*bfloat16)(SoftmaxCall, Rows),
           void (*float16)(SoftmaxCall, Rows), const SoftmaxCall& call, Element type, const Rows& rows,
           int threads, void* stream) {
  const auto kernel = type == Element::Float32 ? float32 : type == Element::BFloat16 ? bfloat16 : float16;
  const int64_t blocks = least(call.B * call.H * call.L, INT32_MAX);
  kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), 0,
           static_cast<cudaStream_t>(stream)>>>(call, rows);
  return cudaGetLastError();
}

}  // namespace

int launch_forward(const SoftmaxCall& call, Element type, const ForwardRows& rows, int threads,
                   void* stream) {
  return launch(forward_kernel<float>, forward_kernel<__nv_bfloat16>, forward_kernel<__half>, call, type,
                rows, threads, stream);
}

int launch_backward(const SoftmaxCall& call, Element type, const BackwardRows& rows, int threads,
                    void* stream) {
  return launch(backward_kernel<float>, backward_kernel<__nv_bfloat16>, backward_kernel<__half>, call, type,
                rows, threads, stream);
}

}  // namespace attentive::kernels::native_cuda

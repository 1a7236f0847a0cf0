// The device's implementation of SoftmaxKernels: one block a row.

#include <ATen/Dispatch.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "kernels/cuda/masked_softmax.h"

namespace attentive::kernels::cuda {
namespace {

// A phase runs the calling thread's part and waits for the others; what belongs to a thread is in its registers.
class DeviceBlock {
 public:
  __device__ explicit DeviceBlock(float* shared) : shared_(shared) {}

  template <class T, int N>
  class PerThread {
   public:
    __device__ T* operator()(int) { return numbers_; }

   private:
    T numbers_[N];
  };

  __device__ int size() const { return static_cast<int>(blockDim.x); }

  template <class F>
  __device__ void phase(const F& f) {
    f(static_cast<int>(threadIdx.x));
    __syncthreads();
  }

  __device__ float read(int, int at) const { return shared_[at]; }
  __device__ void write(int, int at, float value) { shared_[at] = value; }

 private:
  float* shared_;
};

constexpr int kMostThreads = 1024;

template <class T>
__global__ void __launch_bounds__(kMostThreads)
    forward_kernel(SoftmaxCall call, const T* scores, T* clean, T* dropped, float* logsumexp) {
  __shared__ float shared[kMostThreads];
  DeviceBlock block(shared);
  const int64_t row = blockIdx.x, at = row * call.S;
  forward_row<T>(block, call, row, scores + at, clean ? clean + at : nullptr, dropped ? dropped + at : nullptr,
                 logsumexp + row);
}

template <class T>
__global__ void __launch_bounds__(kMostThreads)
    backward_kernel(SoftmaxCall call, const T* scores, const float* logsumexp, const T* grad_clean,
                    const T* grad_dropped, const float* grad_logsumexp, T* grad_scores, float* grad_logits,
                    float* delta) {
  __shared__ float shared[kMostThreads];
  DeviceBlock block(shared);
  const int64_t row = blockIdx.x, at = row * call.S;
  backward_row<T>(block, call, row, scores + at, logsumexp[row], grad_clean ? grad_clean + at : nullptr,
                  grad_dropped ? grad_dropped + at : nullptr, grad_logsumexp ? grad_logsumexp[row] : 0.0f,
                  grad_scores + at, grad_logits ? grad_logits + at : nullptr, delta + row);
}

template <class T>
T* pointer(const at::Tensor& x) {
  return x.defined() ? x.data_ptr<T>() : nullptr;
}

unsigned blocks_for(const SoftmaxCall& call) {
  return static_cast<unsigned>(call.B * call.H * call.L);
}

void forward(const SoftmaxCall& call, const ForwardTensors& t) {
  const c10::cuda::CUDAGuard device(t.scores.device());
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, t.scores.scalar_type(), "masked_softmax", [&] {
    forward_kernel<scalar_t><<<blocks_for(call), threads_for(call.S), 0, at::cuda::getCurrentCUDAStream()>>>(
        call, pointer<scalar_t>(t.scores), pointer<scalar_t>(t.clean), pointer<scalar_t>(t.dropped),
        pointer<float>(t.logsumexp));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
}

void backward(const SoftmaxCall& call, const BackwardTensors& t) {
  const c10::cuda::CUDAGuard device(t.scores.device());
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, t.scores.scalar_type(), "masked_softmax_backward", [&] {
    backward_kernel<scalar_t><<<blocks_for(call), threads_for(call.S), 0, at::cuda::getCurrentCUDAStream()>>>(
        call, pointer<scalar_t>(t.scores), pointer<float>(t.logsumexp), pointer<scalar_t>(t.grad_clean),
        pointer<scalar_t>(t.grad_dropped), pointer<float>(t.grad_logsumexp), pointer<scalar_t>(t.grad_scores),
        pointer<float>(t.grad_logits), pointer<float>(t.delta));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
}

constexpr SoftmaxKernels kKernels = {forward, backward};

}  // namespace

const SoftmaxKernels* device_kernels() {
  return &kKernels;
}

}  // namespace attentive::kernels::cuda

#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include "kernels/native_cuda/launch.h"
#include "kernels/native_cuda/masked_softmax.h"

namespace attentive::kernels::native_cuda {
namespace {

Element element(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kFloat:
      return Element::Float32;
    case at::kBFloat16:
      return Element::BFloat16;
    case at::kHalf:
      return Element::Float16;
    default:
      TORCH_INTERNAL_ASSERT(false, "masked softmax: ", x.scalar_type());
  }
}

const void* in(const at::Tensor& x) {
  return x.defined() ? x.const_data_ptr() : nullptr;
}

void* out(const at::Tensor& x) {
  return x.defined() ? x.mutable_data_ptr() : nullptr;
}

void forward(const SoftmaxCall& call, const ForwardTensors& t) {
  const c10::DeviceGuard guard(t.scores.device());
  const ForwardRows rows{in(t.scores), out(t.clean), out(t.dropped), static_cast<float*>(out(t.logsumexp)),
                         static_cast<float*>(out(t.statistics))};
  const auto error = launch_forward(call, element(t.scores), rows, threads_for(call.S),
                                    c10::cuda::getCurrentCUDAStream().stream());
  C10_CUDA_CHECK(static_cast<cudaError_t>(error));
}

void backward(const SoftmaxCall& call, const BackwardTensors& t) {
  const c10::DeviceGuard guard(t.scores.device());
  const BackwardRows rows{in(t.scores),
                          static_cast<const float*>(in(t.statistics)),
                          in(t.grad_clean),
                          in(t.grad_dropped),
                          static_cast<const float*>(in(t.grad_logsumexp)),
                          out(t.grad_scores),
                          static_cast<float*>(out(t.grad_logits)),
                          static_cast<float*>(out(t.sink_terms))};
  const auto error = launch_backward(call, element(t.scores), rows, threads_for(call.S),
                                     c10::cuda::getCurrentCUDAStream().stream());
  C10_CUDA_CHECK(static_cast<cudaError_t>(error));
}

constexpr SoftmaxKernels kKernels = {forward, backward};

}  // namespace

const SoftmaxKernels* device_kernels() {
  return &kKernels;
}

}  // namespace attentive::kernels::native_cuda

#include "functional/gelu.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/plain.h"
#include "kernels/simd/elementwise.h"

namespace attentive {
namespace {

constexpr int64_t kGeluGrain = 1 << 14;

class Gelu : public torch::autograd::Function<Gelu> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x) {
    ctx->save_for_backward({x});
    auto y = at::empty_like(x);
    const auto* from = x.const_data_ptr<float>();
    auto* to = y.mutable_data_ptr<float>();
    at::parallel_for(0, x.numel(), kGeluGrain, [&](int64_t begin, int64_t end) {
      kernels::cpu::elementwise().gelu(from + begin, to + begin, end - begin);
    });
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const auto x = ctx->get_saved_variables()[0];
    // A second derivative needs an operation that autograd sees.
    if (at::GradMode::is_enabled()) return {at::gelu_backward(grads[0], x, "tanh")};
    const auto grad = grads[0].resolve_neg().contiguous();
    auto out = at::empty_like(x);
    const auto *at_x = x.const_data_ptr<float>(), *at_grad = grad.const_data_ptr<float>();
    auto* to = out.mutable_data_ptr<float>();
    at::parallel_for(0, x.numel(), kGeluGrain, [&](int64_t begin, int64_t end) {
      kernels::cpu::elementwise().gelu_gradient(at_x + begin, at_grad + begin, to + begin, end - begin);
    });
    return {out};
  }
};

}  // namespace

at::Tensor gelu_tanh(const at::Tensor& x) {
  return kernels::is_plain(x) ? Gelu::apply(x) : at::gelu(x, "tanh");
}

}  // namespace attentive

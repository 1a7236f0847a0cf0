#include "modules/gelu.h"

#include <bit>
#include <cstdint>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/vector_clones.h"

namespace attentive {
namespace {

constexpr float kCubic = 0.044715f;
constexpr float kTwoSqrt2OverPi = 1.5957691216057308f;  // 2 sqrt(2 / pi)
constexpr int64_t kGrain = 1 << 14;

// exp(x) to about one unit in the last place: 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2]. Without
// branches and calls, so that loops around it vectorise.
inline float exponential(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 87.0f ? 87.0f : x;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, in its low bits
  const float shifted = x * 1.44269504088896341f + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two parts
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const auto exponent = (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound) + 127u) << 23;
  return p * std::bit_cast<float>(exponent);
}

inline float sigmoid_of(float x) {
  return 1.0f / (1.0f + exponential(-kTwoSqrt2OverPi * (x + kCubic * x * x * x)));
}

ATTENTIVE_VECTOR_CLONES
void forward_range(const float* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] * sigmoid_of(x[i]);
}

ATTENTIVE_VECTOR_CLONES
void backward_range(const float* x, const float* dy, float* dx, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float s = sigmoid_of(x[i]);
    const float slope = kTwoSqrt2OverPi * (1.0f + 3.0f * kCubic * x[i] * x[i]);
    dx[i] = dy[i] * (s + x[i] * s * (1.0f - s) * slope);
  }
}

class Gelu : public torch::autograd::Function<Gelu> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x) {
    ctx->save_for_backward({x});
    auto y = at::empty_like(x);
    const auto* from = x.const_data_ptr<float>();
    auto* to = y.mutable_data_ptr<float>();
    at::parallel_for(0, x.numel(), kGrain, [&](int64_t begin, int64_t end) {
      forward_range(from + begin, to + begin, end - begin);
    });
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const auto x = ctx->get_saved_variables()[0];
    // A second derivative needs an operation that autograd sees.
    if (at::GradMode::is_enabled()) return {at::gelu_backward(grads[0], x, "tanh")};
    const auto grad = grads[0].contiguous();
    auto out = at::empty_like(x);
    const auto *at_x = x.const_data_ptr<float>(), *at_grad = grad.const_data_ptr<float>();
    auto* to = out.mutable_data_ptr<float>();
    at::parallel_for(0, x.numel(), kGrain, [&](int64_t begin, int64_t end) {
      backward_range(at_x + begin, at_grad + begin, to + begin, end - begin);
    });
    return {out};
  }
};

}  // namespace

at::Tensor gelu_tanh(const at::Tensor& x) {
  const bool plain = x.is_cpu() && x.scalar_type() == at::kFloat && x.is_contiguous();
  return plain ? Gelu::apply(x) : at::gelu(x, "tanh");
}

}  // namespace attentive

#include "inputs.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

namespace bench {

std::string type_name(at::ScalarType type) {
  return type == at::kBFloat16 ? "bf16" : "fp32";
}

Limit limit_of(at::ScalarType type) {
  return type == at::kBFloat16 ? Limit::Bf16 : Limit::Fp32;
}

std::string token_count(int64_t tokens) {
  return tokens % 1024 == 0 ? fmt::format("{}k", tokens / 1024) : fmt::format("{}", tokens);
}

Qkv make_qkv(const Shape& shape, at::ScalarType type, bool gradients) {
  at::manual_seed(20240);
  const auto one = [&] {
    return at::randn({shape.B, shape.H, shape.T, shape.D}).to(type).requires_grad_(gradients);
  };
  Qkv out;
  out.q = one();
  out.k = one();
  out.v = one();
  return out;
}

double attention_flops(const Shape& shape, bool causal) {
  const auto T = static_cast<double>(shape.T);
  const double pairs = causal ? T * (T + 1) / 2 : T * T;
  return 4.0 * static_cast<double>(shape.B * shape.H * shape.D) * pairs;
}

double window_flops(const Shape& shape, int64_t width) {
  const auto T = static_cast<double>(shape.T), W = static_cast<double>(width);
  if (width >= shape.T) return attention_flops(shape, true);
  return 4.0 * static_cast<double>(shape.B * shape.H * shape.D) * (W * (W + 1) / 2 + (T - W) * W);
}

std::function<Tensors()> with_backward(const Qkv& inputs, const at::Tensor& grad_output,
                                       std::function<at::Tensor()> forward) {
  return [inputs, grad_output, forward = std::move(forward)] {
    const auto output = forward();
    auto results = torch::autograd::grad({output}, {inputs.q, inputs.k, inputs.v}, {grad_output});
    results.insert(results.begin(), output);
    return results;
  };
}

at::Tensor composed(const Qkv& inputs, bool causal, double dropout_p) {
  const auto T = inputs.q.size(-2), S = inputs.k.size(-2);
  auto scores = at::matmul(inputs.q, inputs.k.transpose(-2, -1));
  if (causal) {
    const auto hidden = at::ones({T, S}, at::kBool).triu(1);
    scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  }
  auto weights = at::softmax(scores / std::sqrt(static_cast<double>(inputs.q.size(-1))), -1);
  if (dropout_p > 0) weights = at::dropout(weights, dropout_p, /*train=*/true);
  return at::matmul(weights, inputs.v);
}

at::Tensor sdpa(const Qkv& inputs, bool causal, double dropout_p) {
  return at::scaled_dot_product_attention(inputs.q, inputs.k, inputs.v, {}, dropout_p, causal);
}

}  // namespace bench

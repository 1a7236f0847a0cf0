#include "suites.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

namespace bench {

Limit limit_of(at::ScalarType type) {
  return type == at::kBFloat16 ? Limit::Bf16 : Limit::Fp32;
}

double allowed_error(at::ScalarType type) {
  return type == at::kBFloat16 ? 3e-2 : 1e-4;
}

std::string token_count(int64_t tokens) {
  return tokens % 1024 == 0 ? fmt::format("{}k", tokens / 1024) : fmt::format("{}", tokens);
}

Qkv make_qkv(const Shape& shape, at::ScalarType type, bool gradients, at::Device device) {
  at::manual_seed(20240);
  const auto one = [&] {
    return at::randn({shape.B, shape.H, shape.T, shape.D}).to(device, type).requires_grad_(gradients);
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

at::Tensor hidden_by(int64_t tokens, std::optional<int64_t> width, at::Device device) {
  const auto all = at::ones({tokens, tokens}, at::TensorOptions(device).dtype(at::kBool));
  return width ? all.tril().triu_(1 - *width).logical_not_() : all.triu(1);
}

at::Tensor alibi_bias(const at::Tensor& slopes, int64_t tokens) {
  const auto place = at::arange(tokens, slopes.options().dtype(at::kFloat));
  return (-slopes.view({1, -1, 1, 1})) * (place.unsqueeze(1) - place.unsqueeze(0)).abs();
}

at::Tensor composed(const Qkv& inputs, const Composition& composition) {
  auto scores = at::matmul(inputs.q, inputs.k.transpose(-2, -1));
  const double divisor = std::sqrt(static_cast<double>(inputs.q.size(-1)));
  const bool plain =
      composition.softcap == 0.0 && !composition.bias.defined() && !composition.sinks.defined();
  if (!plain) scores = scores * (1.0 / divisor);
  if (composition.softcap > 0) scores = at::tanh(scores / composition.softcap) * composition.softcap;
  if (composition.bias.defined()) scores = scores + composition.bias.to(scores.scalar_type());
  if (composition.hidden.defined())
    scores = scores.masked_fill(composition.hidden, -std::numeric_limits<double>::infinity());
  if (plain) scores = scores / divisor;  // the notebook masks before it scales
  if (composition.sinks.defined()) {
    const auto sinks = composition.sinks.to(scores.scalar_type()).view({1, -1, 1, 1});
    scores = at::cat({scores, sinks.expand({scores.size(0), -1, scores.size(2), 1})}, -1);
  }
  auto weights = at::softmax(scores, -1);
  if (composition.sinks.defined()) weights = weights.narrow(-1, 0, inputs.k.size(-2));
  if (composition.dropout_p > 0) weights = at::dropout(weights, composition.dropout_p, /*train=*/true);
  return at::matmul(weights, inputs.v);
}

at::Tensor composed(const Qkv& inputs, bool causal, double dropout_p) {
  Composition composition{.dropout_p = dropout_p};
  if (causal) composition.hidden = hidden_by(inputs.q.size(-2), {}, inputs.q.device());
  return composed(inputs, composition);
}

at::Tensor sdpa(const Qkv& inputs, bool causal, double dropout_p) {
  return at::scaled_dot_product_attention(inputs.q, inputs.k, inputs.v, {}, dropout_p, causal);
}

}  // namespace bench

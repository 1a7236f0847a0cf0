#include "modules/projection.h"

#include <optional>

#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/square.h>

#include <attentive/functional/heads_and_windows.h>

#include "functional/elementwise.h"
#include "functional/linear.h"

namespace attentive {

at::Tensor project(const torch::nn::Linear& layer, const at::Tensor& x) {
  return attentive::linear(x, layer->weight, layer->bias);
}

at::Tensor batched(const at::Tensor& x) {
  return x.dim() == 2 ? x.unsqueeze(0) : x;
}

std::pair<at::Tensor, at::Tensor> unbatched_like(const at::Tensor& x, const at::Tensor& output,
                                                 const at::Tensor& weights) {
  if (x.dim() != 2) return {output, weights};
  return {output.squeeze(0), weights.defined() ? weights.squeeze(0) : weights};
}

at::Tensor project_heads(const torch::nn::Linear& layer, const at::Tensor& x, int64_t head_dim) {
  const auto projected = project(layer, batched(x));
  return split_heads(projected, projected.size(-1) / head_dim);
}

std::vector<at::Tensor> project_heads(std::initializer_list<torch::nn::Linear> layers, const at::Tensor& x,
                                      int64_t head_dim) {
  std::vector<LinearLayer> all;
  for (const auto& layer : layers) all.push_back({layer->weight, layer->bias});
  auto projected = linears(batched(x), all);
  for (auto& y : projected) y = split_heads(y, y.size(-1) / head_dim);
  return projected;
}

std::pair<at::Tensor, at::Tensor> project_out(const torch::nn::Linear& layer,
                                              const std::pair<at::Tensor, at::Tensor>& attended,
                                              const at::Tensor& x) {
  const auto& [context, weights] = attended;
  return unbatched_like(x, project(layer, merge_heads(context)), weights);
}

namespace {

std::optional<LinearFunction> linear_function(Activation activation) {
  if (activation == Activation::GeluTanh) return LinearFunction::GeluTanh;
  if (activation == Activation::Silu) return LinearFunction::Silu;
  return std::nullopt;
}

}  // namespace

at::Tensor activate(Activation activation, const at::Tensor& x) {
  switch (activation) {
    case Activation::GeluTanh:
      return gelu_tanh(x);
    case Activation::Gelu:
      return at::gelu(x);
    case Activation::Silu:
      return at::silu(x);
    case Activation::QuickGelu:
      return x * at::sigmoid(x * 1.702);
    case Activation::Relu2:
      return at::square(at::relu(x));
    default:
      return at::relu(x);
  }
}

at::Tensor project_activated(Activation activation, const torch::nn::Linear& layer, const at::Tensor& x) {
  if (const auto function = linear_function(activation)) {
    auto fused = fused_linear(*function, x, {layer->weight, layer->bias});
    if (fused.defined()) return fused;
  }
  return activate(activation, project(layer, x));
}

at::Tensor project_gated(Activation activation, const torch::nn::Linear& gate, const torch::nn::Linear& up,
                         const at::Tensor& x) {
  if (const auto function = linear_function(activation)) {
    auto fused = fused_gated_linear(*function, x, {gate->weight, gate->bias}, {up->weight, up->bias});
    if (fused.defined()) return fused;
  }
  return activate(activation, project(gate, x)) * project(up, x);
}

}  // namespace attentive

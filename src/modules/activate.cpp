#include "modules/activate.h"

#include <optional>

#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/square.h>

#include "functional/elementwise.h"
#include "functional/linear.h"
#include "modules/projection.h"

namespace attentive {
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

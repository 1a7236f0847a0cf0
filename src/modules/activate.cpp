#include "modules/activate.h"

#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/square.h>

#include "functional/elementwise.h"

namespace attentive {

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

}  // namespace attentive

#include "functional/linear.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>

#include "kernels/cpu/few_linear.h"
#include "kernels/cpu/gemm.h"

namespace attentive {

bool widens_products(const at::Tensor& x) {
  return x.is_cpu() && x.scalar_type() == at::kBFloat16 && !at::autocast::is_autocast_enabled(at::kCPU) &&
         !kernels::cpu::libtorch_multiplies_bf16();
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const auto few = kernels::cpu::few_linear(x, weight, bias);
  if (few.defined()) return few;
  if (!widens_products(x)) return at::linear(x, weight, bias);
  const auto wide_bias = bias.defined() ? bias.to(at::kFloat) : bias;
  return at::linear(x.to(at::kFloat), weight.to(at::kFloat), wide_bias).to(x.scalar_type());
}

at::Tensor matrix_product(const at::Tensor& a, const at::Tensor& b) {
  if (!widens_products(a)) return at::mm(a, b);
  return at::mm(a.to(at::kFloat), b.to(at::kFloat)).to(a.scalar_type());
}

}  // namespace attentive

#include "support/gradcheck.h"

#include <cmath>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/rand_like.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

namespace attentive::test {

std::string gradcheck_leaves(const std::function<at::Tensor()>& f, const std::vector<at::Tensor>& leaves) {
  constexpr double kEps = 1e-6;
  for (const auto& leaf : leaves) {
    if (leaf.scalar_type() != at::kDouble || !leaf.is_contiguous() || !leaf.requires_grad()) {
      return "gradcheck: every leaf must be a contiguous float64 tensor that requires grad";
    }
  }
  const auto output = f();
  const auto direction = at::rand_like(output) + 0.5;
  const auto gradients = torch::autograd::grad({output}, leaves, {direction}, /*retain_graph=*/false,
                                               /*create_graph=*/false, /*allow_unused=*/true);
  const at::NoGradGuard no_grad;
  for (size_t n = 0; n < leaves.size(); ++n) {
    double* x = leaves[n].mutable_data_ptr<double>();
    at::Tensor analytic;
    if (gradients[n].defined()) analytic = gradients[n].contiguous();
    for (int64_t i = 0; i < leaves[n].numel(); ++i) {
      const double saved = x[i];
      x[i] = saved + kEps;
      const double up = (f() * direction).sum().item<double>();
      x[i] = saved - kEps;
      const double down = (f() * direction).sum().item<double>();
      x[i] = saved;
      const double numeric = (up - down) / (2 * kEps);
      const double got = analytic.defined() ? analytic.const_data_ptr<double>()[i] : 0.0;
      if (!(std::abs(got - numeric) <= 1e-5 + 1e-3 * std::abs(numeric))) {
        return fmt::format("tensor {} element {}: gradient {:.9g}, central difference {:.9g}", n, i, got,
                           numeric);
      }
    }
  }
  return "";
}

std::string gradcheck(const std::function<at::Tensor(const std::vector<at::Tensor>&)>& f,
                      std::vector<at::Tensor> inputs) {
  for (auto& input : inputs) {
    if (input.scalar_type() != at::kDouble) return "gradcheck: every input must be float64";
    input = input.detach().clone(at::MemoryFormat::Contiguous).requires_grad_(true);
  }
  return gradcheck_leaves([&] { return f(inputs); }, inputs);
}

}  // namespace attentive::test

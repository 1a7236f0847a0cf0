#include "support/gradcheck.h"

#include <algorithm>
#include <cmath>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/rand_like.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

namespace attentive::test {

namespace {

constexpr double kEps = 1e-6;

// The function and its gradients at the leaves, for one random gradient of its output.
class Differences {
 public:
  Differences(const std::function<at::Tensor()>& f, const std::vector<at::Tensor>& leaves)
      : f_(f), leaves_(leaves) {
    const auto output = f();
    incoming_ = at::rand_like(output) + 0.5;
    gradients_ = torch::autograd::grad({output}, leaves, {incoming_}, /*retain_graph=*/false,
                                       /*create_graph=*/false, /*allow_unused=*/true);
  }

  double value() const { return (f_() * incoming_).sum().item<double>(); }

  at::Tensor gradient(size_t leaf) const {
    return gradients_[leaf].defined() ? gradients_[leaf].contiguous() : at::zeros_like(leaves_[leaf]);
  }

 private:
  const std::function<at::Tensor()>& f_;
  const std::vector<at::Tensor>& leaves_;
  at::Tensor incoming_;
  std::vector<at::Tensor> gradients_;
};

bool usable(const std::vector<at::Tensor>& leaves) {
  return std::all_of(leaves.begin(), leaves.end(), [](const at::Tensor& leaf) {
    return leaf.scalar_type() == at::kDouble && leaf.is_contiguous() && leaf.requires_grad();
  });
}

constexpr const char* kUnusable =
    "gradcheck: every leaf must be a contiguous float64 tensor that requires grad";

// Compares the derivative `got` with the central difference of two steps, which `move` makes from where the
// leaf was; returns a message if they differ by more than rounding does.
template <class Move>
std::string disagreement(const Differences& differences, const std::string& where, double got,
                         const Move& move) {
  move(kEps);
  const double up = differences.value();
  move(-kEps);
  const double down = differences.value();
  move(0);
  const double numeric = (up - down) / (2 * kEps);
  if (std::abs(got - numeric) <= 1e-5 + 1e-3 * std::abs(numeric)) return "";
  return fmt::format("{}: gradient {:.9g}, central difference {:.9g}", where, got, numeric);
}

}  // namespace

std::string gradcheck_leaves(const std::function<at::Tensor()>& f, const std::vector<at::Tensor>& leaves) {
  if (!usable(leaves)) return kUnusable;
  const Differences differences(f, leaves);
  const at::NoGradGuard no_grad;
  for (size_t n = 0; n < leaves.size(); ++n) {
    double* x = leaves[n].mutable_data_ptr<double>();
    const auto gradient = differences.gradient(n);
    for (int64_t i = 0; i < leaves[n].numel(); ++i) {
      const auto found = disagreement(differences, fmt::format("tensor {} element {}", n, i),
                                      gradient.const_data_ptr<double>()[i],
                                      [=, saved = x[i]](double step) { x[i] = saved + step; });
      if (!found.empty()) return found;
    }
  }
  return "";
}

std::string gradcheck_directions(const std::function<at::Tensor()>& f,
                                 const std::vector<at::Tensor>& leaves) {
  if (!usable(leaves)) return kUnusable;
  const Differences differences(f, leaves);
  const at::NoGradGuard no_grad;
  for (size_t n = 0; n < leaves.size(); ++n) {
    const auto saved = leaves[n].clone();
    const auto gradient = differences.gradient(n);
    for (int number = 0; number < 3; ++number) {
      const auto direction = at::rand_like(saved).ge_(0.5).mul_(2).sub_(1);
      const auto found = disagreement(differences, fmt::format("tensor {} direction {}", n, number),
                                      (gradient * direction).sum().item<double>(),
                                      [&](double step) { leaves[n].copy_(saved + step * direction); });
      if (!found.empty()) return found;
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

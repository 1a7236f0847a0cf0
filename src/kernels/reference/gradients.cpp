#include "kernels/reference/gradients.h"

#include <array>

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>

#include "kernels/reference/backend.h"

namespace attentive::kernels::reference {

GraphGradients gradients_with_graph(Problem problem, const at::Tensor& grad_output,
                                    const at::Tensor& grad_logsumexp) {
  // As in the forward pass: products keep the precision of their operands.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  // One tensor may be queries, keys and values at once; a view of each tells their gradients apart.
  constexpr std::array kInputs = {&Problem::q, &Problem::k, &Problem::v, &Problem::sinks};
  torch::autograd::variable_list wanted;
  for (const auto input : kInputs) {
    auto& x = problem.*input;
    if (!requires_gradient(x)) continue;
    x = x.view_as(x);
    wanted.push_back(x);
  }
  problem.weights = Weights::None;
  problem.logsumexp = true;
  const auto computed = run(problem);
  const auto found = torch::autograd::grad({computed.output, computed.logsumexp}, wanted,
                                           {grad_output, grad_logsumexp.to(computed.logsumexp.scalar_type())},
                                           /*retain_graph=*/true, /*create_graph=*/true);
  std::array<at::Tensor, kInputs.size()> gradients;
  for (size_t i = 0, next = 0; i < kInputs.size(); ++i) {
    if (requires_gradient(problem.*kInputs[i])) gradients[i] = found[next++];
  }
  return {gradients[0], gradients[1], gradients[2], gradients[3]};
}

}  // namespace attentive::kernels::reference

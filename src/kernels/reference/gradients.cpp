#include "kernels/reference/gradients.h"

#include <array>
#include <utility>

#include <ATen/ops/zeros_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>

#include "kernels/reference/backend.h"

namespace attentive::kernels::reference {

GraphGradients gradients_by_autograd(Problem problem, const AttentionResult& incoming,
                                     const std::function<AttentionResult(const Problem&)>& run,
                                     bool create_graph) {
  // As in the forward pass: products keep the precision of their operands.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  // One tensor may be queries, keys and values at once; a view of each tells their gradients apart.
  constexpr std::array kInputs = {&Problem::q,     &Problem::k,    &Problem::v,
                                  &Problem::sinks, &Problem::bias, &Problem::alibi_slopes};
  torch::autograd::variable_list wanted;
  for (const auto input : kInputs) {
    auto& x = problem.*input;
    if (!requires_gradient(x)) continue;
    x = x.view_as(x);
    wanted.push_back(x);
  }
  for (auto& [owner, tensor] : problem.captured) {
    if (!requires_gradient(tensor)) continue;
    tensor = tensor.view_as(tensor);
    wanted.push_back(tensor);
  }
  if (!incoming.weights.defined()) problem.weights = Weights::None;
  problem.logsumexp = incoming.logsumexp.defined();
  const auto computed = run(problem);
  torch::autograd::variable_list results, given;
  for (const auto result :
       {&AttentionResult::output, &AttentionResult::weights, &AttentionResult::logsumexp}) {
    const auto& gradient = incoming.*result;
    if (!gradient.defined()) continue;
    results.push_back(computed.*result);
    given.push_back(gradient.to((computed.*result).scalar_type()));
  }
  // Weights and logsumexp do not depend on the values.
  const auto found =
      torch::autograd::grad(results, wanted, given, /*retain_graph=*/create_graph, create_graph,
                            /*allow_unused=*/true);
  size_t next = 0;
  const auto gradient_of = [&](const at::Tensor& input) {
    const auto& gradient = found[next++];
    return gradient.defined() ? gradient : at::zeros_like(input);
  };
  std::array<at::Tensor, kInputs.size()> gradients;
  for (size_t i = 0; i < kInputs.size(); ++i) {
    const auto& input = problem.*kInputs[i];
    if (requires_gradient(input)) gradients[i] = gradient_of(input);
  }
  GraphGradients result{gradients[0], gradients[1], gradients[2], gradients[3], gradients[4], gradients[5]};
  for (const auto& [owner, tensor] : problem.captured)
    result.captured.push_back(requires_gradient(tensor) ? gradient_of(tensor) : at::Tensor());
  return result;
}

GraphGradients gradients_with_graph(Problem problem, const AttentionResult& incoming) {
  return gradients_by_autograd(std::move(problem), incoming, run, /*create_graph=*/true);
}

}  // namespace attentive::kernels::reference

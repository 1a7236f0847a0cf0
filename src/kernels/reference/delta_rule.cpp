#include "kernels/delta_rule.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/triu.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "kernels/native_backward.h"

namespace attentive::kernels::reference {
namespace {

// The number of tokens of a chunk. With gates per channel, each pair of a chunk has Dk decays.
constexpr int64_t kChunk = 64, kChannelChunk = 16;
constexpr int64_t kFewTokens = 8;  // up to which one follows another

// The tokens [begin, end) of (B, H, T, ...).
DeltaTensors tokens(const DeltaTensors& x, int64_t begin, int64_t end) {
  const auto cut = [&](const at::Tensor& some) { return some.slice(2, begin, end); };
  return {cut(x.q), cut(x.k), cut(x.v), cut(x.gate), cut(x.beta), x.state};
}

// One chunk. Sums of gates are those of a run of tokens, never differences of longer sums: infinite gates
// would make these NaN, and large ones would cost digits.
DeltaResult chunk(const DeltaTensors& x, bool delta) {
  const auto n = x.v.size(2);
  // runs(i, j) = gate_{j+1} + ... + gate_i, in (B, H, n, n, 1 or Dk)
  const auto not_later = at::ones({n, n}, x.gate.options().dtype(at::kBool)).triu();
  const auto runs = at::cumsum(x.gate.unsqueeze(3).masked_fill(not_later.unsqueeze(2), 0.0), 2);
  const auto decays = at::exp(runs), from_start = at::exp(at::cumsum(x.gate, 2));
  const auto to_end = decays.select(2, n - 1);
  const auto products = [&](const at::Tensor& left) {
    if (decays.size(4) == 1) return at::matmul(left, x.k.transpose(2, 3)) * decays.squeeze(4);
    return (left.unsqueeze(3) * decays * x.k.unsqueeze(2)).sum(4);
  };
  auto added = x.beta * x.v;
  if (delta) {
    const auto system = at::tril(x.beta * products(x.k), -1);
    added = added - x.beta * at::matmul(from_start * x.k, x.state);
    added =
        at::linalg_solve_triangular(system, added, /*upper=*/false, /*left=*/true, /*unitriangular=*/true);
  }
  return {
      at::matmul(from_start * x.q, x.state) + at::matmul(at::tril(products(x.q)), added),
      from_start.select(2, n - 1).unsqueeze(3) * x.state + at::matmul((to_end * x.k).transpose(2, 3), added)};
}

// One token: the definition of the gated delta rule.
DeltaResult token(const DeltaTensors& x, bool delta) {
  auto state = at::exp(x.gate).transpose(2, 3) * x.state;
  const auto v = delta ? x.v - at::matmul(x.k, state) : x.v;
  state = state + (x.beta * x.k).transpose(2, 3) * v;
  return {at::matmul(x.q, state), state};
}

// One sequence. All tensors are defined and in the dtype of sums; keys are normalised, queries scaled, both
// with a head for each of v; gate is (B, Hv, T, 1) or (B, Hv, T, Dk), beta (B, Hv, T, 1).
DeltaResult by_parts(DeltaTensors x, bool delta) {
  const bool few = x.v.size(2) <= kFewTokens;
  const auto size = few ? 1 : x.gate.size(3) == 1 ? kChunk : kChannelChunk;
  std::vector<at::Tensor> outputs;
  for (int64_t begin = 0; begin < x.v.size(2); begin += size) {
    const auto part = tokens(x, begin, begin + size);
    auto [output, state] = few ? token(part, delta) : chunk(part, delta);
    outputs.push_back(std::move(output));
    x.state = std::move(state);
  }
  return {outputs.empty() ? at::matmul(x.q, x.state) + x.v : at::cat(outputs, 2), x.state};
}

}  // namespace

DeltaResult delta_rule(const DeltaRule& rule, const DeltaTensors& tensors) {
  const c10::impl::ExcludeDispatchKeyGuard full_precision(c10::autocast_dispatch_keyset);
  const auto type = tensors.sums();
  const auto rows_of = [&](const at::Tensor& x) {
    auto rows = x.to(type);
    if (rule.normalize_eps)
      rows = rows * at::rsqrt((rows * rows).sum(-1, /*keepdim=*/true) + *rule.normalize_eps);
    return tensors.groups() == 1 ? rows : at::repeat_interleave(rows, tensors.groups(), 1);
  };
  const auto v = tensors.v.to(type), one = at::ones({v.size(0), v.size(1), v.size(2), 1}, v.options());
  const auto numbers_of = [&](const at::Tensor& x) { return (x.dim() == 3 ? x.unsqueeze(3) : x).to(type); };
  const auto sequences = rule.sequences(v.size(0));
  const DeltaTensors x{rows_of(tensors.q) * rule.scale,
                       rows_of(tensors.k),
                       v,
                       tensors.gate.defined() ? numbers_of(tensors.gate) : at::zeros_like(one),
                       tensors.beta.defined() ? numbers_of(tensors.beta) : one,
                       tensors.state.defined()
                           ? tensors.state
                           : at::zeros({sequences, v.size(1), tensors.k.size(3), v.size(3)}, v.options())};
  const auto type_of_v = tensors.v.scalar_type();
  if (rule.offsets.empty()) {
    auto [output, state] = by_parts(x, rule.delta);
    return {output.to(type_of_v), state};
  }
  std::vector<at::Tensor> outputs{v.slice(2, 0, 0)}, states{x.state.slice(0, 0, 0)};
  for (int64_t n = 0; n < sequences; ++n) {
    auto part = tokens(x, rule.offsets[static_cast<size_t>(n)], rule.offsets[static_cast<size_t>(n) + 1]);
    part.state = x.state.slice(0, n, n + 1);
    auto [output, state] = by_parts(part, rule.delta);
    outputs.push_back(std::move(output));
    states.push_back(std::move(state));
  }
  return {at::cat(outputs, 2).to(type_of_v), at::cat(states, 0)};
}

DeltaGradients delta_rule_gradients(const DeltaRule& rule, const DeltaTensors& tensors,
                                    const DeltaResult& incoming, bool create_graph) {
  auto x = tensors;
  // One tensor may be several inputs; a view of each tells their gradients apart.
  std::vector<at::Tensor> leaves;
  const std::array some{&x.q, &x.k, &x.v, &x.gate, &x.beta, &x.state};
  for (auto* one : some) {
    if (!one->defined()) continue;
    *one = create_graph && one->requires_grad() ? one->view_as(*one) : one->detach().set_requires_grad(true);
    leaves.push_back(*one);
  }
  const auto [output, last] = reference::delta_rule(rule, x);
  auto gradients =
      gradients_of_leaves({output, last}, {incoming.output, incoming.state}, leaves, create_graph);
  DeltaGradients found;
  for (size_t n = 0, leaf = 0; n < found.size(); ++n) {
    if (some[n]->defined()) found[n] = std::move(gradients[leaf++]);
  }
  return found;
}

}  // namespace attentive::kernels::reference

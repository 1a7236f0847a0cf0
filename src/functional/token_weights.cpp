#include "functional/token_weights.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/unique_dim.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/plain.h"

namespace attentive {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kNoPadding = -1;

// The gradient of the table as a sparse tensor: each row that was looked up, once, summed in the order in
// which a dense gradient would be.
at::Tensor sparse_gradient(const at::Tensor& grad, const at::Tensor& ids, at::IntArrayRef sizes) {
  const auto [rows, places, counts] =
      at::unique_dim(ids.reshape({-1}), 0, /*sorted=*/true, /*return_inverse=*/true);
  const auto sums = at::embedding_dense_backward(grad, places.view(ids.sizes()), rows.numel(), kNoPadding,
                                                 /*scale_grad_by_freq=*/false);
  return at::sparse_coo_tensor(rows.unsqueeze(0), sums, sizes, sums.options().layout(at::kSparse),
                               /*is_coalesced=*/true);
}

// Whether nobody else holds the gradient or its memory. A transposed product is a view, which holds its base.
bool may_change(const at::Tensor& gradient) {
  if (at::GradMode::is_enabled() || gradient.use_count() != 1 || !gradient.is_non_overlapping_and_dense() ||
      !kernels::is_ordinary(gradient)) {
    return false;
  }
  const auto holders = gradient.storage().use_count();
  return holders == 1 || (holders == 2 && gradient.is_view() && gradient._base().use_count() == 1);
}

// Two tensors over the weight's memory.
class TwoUses : public torch::autograd::Function<TwoUses> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& weight) {
    context->set_materialize_grads(false);  // a use without a gradient needs no zeros
    return {weight.view_as(weight), weight.view_as(weight)};
  }

  static variable_list backward(AutogradContext*, const variable_list& grads) {
    const auto &rows = grads[0], &head = grads[1];
    if (!rows.defined()) return {head};
    if (!rows.is_sparse()) return {head.defined() ? head + rows : rows};
    if (!head.defined()) return {rows.to_dense()};
    return {may_change(head) ? head.add_(rows) : head + rows};
  }
};

class LookedUp : public torch::autograd::Function<LookedUp> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& table, const at::Tensor& ids) {
    context->save_for_backward({ids});
    context->saved_data["sizes"] = table.sizes().vec();
    return at::embedding(table, ids);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto ids = context->get_saved_variables()[0];
    const auto sizes = context->saved_data["sizes"].toIntVector();
    if (!kernels::is_ordinary(grads[0])) {
      return {at::embedding_dense_backward(grads[0], ids, sizes[0], kNoPadding, false), {}};
    }
    return {sparse_gradient(grads[0], ids, sizes), {}};
  }
};

}  // namespace

TokenWeights::TokenWeights(const at::Tensor& table, const at::Tensor& head, const at::Tensor& ids)
    : table_(table),
      head_(head),
      split_(table.is_same(head) && at::GradMode::is_enabled() && table.requires_grad() && table.is_cpu() &&
             kernels::is_ordinary(table) && ids.numel() > 0 && ids.numel() < table.size(0)) {
  if (!split_) return;
  const auto uses = TwoUses::apply(table);
  table_ = uses[0];
  head_ = uses[1];
}

at::Tensor TokenWeights::rows_of(const at::Tensor& ids) const {
  return split_ ? LookedUp::apply(table_, ids) : at::embedding(table_, ids);
}

}  // namespace attentive

#include "functional/linear.h"

#include <algorithm>
#include <optional>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/unique_dim.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/autocast_modes.h"
#include "core/check.h"
#include "functional/adapters.h"
#include "kernels/gemm/linear.h"
#include "kernels/gemm/products.h"
#include "kernels/simd/elementwise.h"

namespace attentive {
namespace {

// The number of rows widened at a time, which bounds the memory. Blocks that fit in the caches are slower,
// because threads wait at the end of each.
constexpr int64_t kRowsOfChunk = 8192;

// Widens blocks of rows of a matrix of a half type, one after the other, into the same memory.
class WidenedRows {
 public:
  explicit WidenedRows(const at::Tensor& matrix)
      : matrix_(matrix),
        buffer_(at::empty({std::min(matrix.size(0), kRowsOfChunk), matrix.size(1)},
                          matrix.options().dtype(at::kFloat))) {}

  at::Tensor at(int64_t row, int64_t rows) {
    return buffer_.narrow(0, 0, rows).copy_(matrix_.narrow(0, row, rows));
  }

 private:
  at::Tensor matrix_, buffer_;
};

template <class Work>
void for_each_rows_block(int64_t rows, const Work& work) {
  for (int64_t row = 0; row < rows; row += kRowsOfChunk) work(row, std::min(rows - row, kRowsOfChunk));
}

}  // namespace

at::Tensor widened_product(const at::Tensor& x, const at::Tensor& right, const at::Tensor& bias) {
  const at::NoGradGuard no_grad;
  auto sizes = x.sizes().vec();
  sizes.back() = right.size(1);
  auto result = at::empty(sizes, x.options());
  const auto left = x.reshape({-1, x.size(-1)}), out = result.view({-1, right.size(1)});
  const auto wide_bias = bias.defined() ? bias.to(at::kFloat) : bias;
  WidenedRows widened(left);
  const auto buffer = at::empty({std::min(left.size(0), kRowsOfChunk), right.size(1)}, right.options());
  for_each_rows_block(left.size(0), [&](int64_t row, int64_t rows) {
    auto product = buffer.narrow(0, 0, rows);
    if (bias.defined()) {
      at::addmm_out(product, wide_bias, widened.at(row, rows), right);
    } else {
      at::mm_out(product, widened.at(row, rows), right);
    }
    out.narrow(0, row, rows).copy_(product);
  });
  return result;
}

at::Tensor widened_sum_of_rows(const at::Tensor& a, const at::Tensor& b) {
  const at::NoGradGuard no_grad;
  auto sum = at::zeros({a.size(1), b.size(1)}, a.options().dtype(at::kFloat));
  WidenedRows left(a), right(b);
  for_each_rows_block(
      a.size(0), [&](int64_t row, int64_t rows) { sum.addmm_(left.at(row, rows).t(), right.at(row, rows)); });
  return sum.to(a.scalar_type());
}

bool widens_products(const at::Tensor& x) {
  return x.is_cpu() && !at::autocast::is_autocast_enabled(at::kCPU) && widens_products(x.scalar_type());
}

bool widens_products(at::ScalarType type) {
  return (type == at::kBFloat16 && !kernels::cpu::has_gemm_bf16()) ||
         (type == at::kHalf && !kernels::cpu::library_has_gemm_f16());
}

namespace {

// Computes the product by operations that autograd records, for derivatives of any order and forward mode.
at::Tensor composed_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const auto wide_bias = bias.defined() ? bias.to(at::kFloat) : bias;
  return at::linear(x.to(at::kFloat), weight.to(at::kFloat), wide_bias).to(x.scalar_type());
}

class WidenedLinear : public torch::autograd::Function<WidenedLinear> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
    context->save_for_backward({x, weight, bias.value_or(at::Tensor())});
    return widened_product(x, weight.to(at::kFloat).t(), bias.value_or(at::Tensor()));
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &weight = saved[1], &bias = saved[2];
    const auto grad = grads[0].reshape({-1, weight.size(0)});
    torch::autograd::variable_list out(3);
    if (context->needs_input_grad(0)) out[0] = matrix_product(grad, weight).view(x.sizes());
    if (context->needs_input_grad(1)) out[1] = sum_of_rows(grad, x.reshape({-1, x.size(-1)}));
    if (bias.defined() && context->needs_input_grad(2)) out[2] = grad.sum(0);
    return out;
  }
};

// Whether WidenedLinear may compute with x.
bool is_dense(const at::Tensor& x) {
  return !x.defined() || (x.layout() == at::kStrided && is_not_subclass(x));
}

// function(x W^T + b) by this package's own products, or an undefined tensor.
at::Tensor own_product(const at::Tensor& x, const LinearLayer& layer,
                       kernels::cpu::RowFunction function = nullptr) {
  auto few = kernels::cpu::few_linear(x, layer, function);
  return few.defined() ? few : kernels::cpu::many_linear(x, layer, function);
}

// Whether autocast would multiply x by LibTorch's slow products of a half type.
bool widens_under_autocast(const at::Tensor& x) {
  return x.is_cpu() && is_autocast(x.device()) && widens_products(autocast_type(x.scalar_type(), x.device()));
}

at::Tensor base_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// Casts as autocast does, with its cache, and multiplies outside autocast.
at::Tensor linear_under_autocast(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const auto cast = [type = autocast_type(x.scalar_type(), x.device())](const at::Tensor& tensor) {
    return tensor.defined() ? at::autocast::cached_cast(type, tensor, at::kCPU) : tensor;
  };
  const auto narrow_x = cast(x), narrow_weight = cast(weight), narrow_bias = cast(bias);
  const auto is_cast = [&](const at::Tensor& tensor) {
    return !tensor.defined() || tensor.scalar_type() == narrow_x.scalar_type();
  };
  if (!is_cast(narrow_weight) || !is_cast(narrow_bias)) return at::linear(x, weight, bias);  // an error
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  return base_linear(narrow_x, narrow_weight, narrow_bias);
}

// The product without what adapters add.
at::Tensor base_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  auto own = own_product(x, {weight, bias});
  if (own.defined()) return own;
  if (widens_under_autocast(x)) return linear_under_autocast(x, weight, bias);
  if (!widens_products(x)) return at::linear(x, weight, bias);
  const bool same =
      weight.scalar_type() == x.scalar_type() && (!bias.defined() || bias.scalar_type() == x.scalar_type());
  const bool fits = weight.dim() == 2 && x.dim() > 0 && x.size(-1) == weight.size(1) && x.numel() > 0 &&
                    (!bias.defined() || (bias.dim() == 1 && bias.size(0) == weight.size(0)));
  if (!same || !fits || !is_dense(x) || !is_dense(weight) || !is_dense(bias))
    return composed_linear(x, weight, bias);
  return WidenedLinear::apply(x, weight, as_optional(bias));
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const auto y = base_linear(x, weight, bias);
  const LinearLayer layer{weight, bias};
  return is_adapted(layer) ? with_addition(y, adapter_products(x, layer)[0]) : y;
}

std::vector<at::Tensor> linears(const at::Tensor& x, at::ArrayRef<LinearLayer> layers) {
  auto results = kernels::cpu::few_linears(x, layers);
  if (results.empty()) {
    for (const auto& layer : layers) results.push_back(base_linear(x, layer.weight, layer.bias));
  }
  if (!is_adapted(layers)) return results;
  const auto additions = adapter_products(x, layers);
  for (size_t i = 0; i < results.size(); ++i) results[i] = with_addition(results[i], additions[i]);
  return results;
}

namespace {

kernels::cpu::RowFunction row_function(LinearFunction function) {
  const auto& functions = kernels::cpu::elementwise();
  return function == LinearFunction::Silu ? functions.silu : functions.gelu;
}

}  // namespace

at::Tensor fused_linear(LinearFunction function, const at::Tensor& x, const LinearLayer& layer) {
  if (is_adapted(layer)) return {};
  return own_product(x, layer, row_function(function));
}

at::Tensor fused_gated_linear(LinearFunction function, const at::Tensor& x, const LinearLayer& gate,
                              const LinearLayer& up) {
  if (is_adapted({gate, up})) return {};
  auto few = kernels::cpu::few_gated_linear(x, gate, up, row_function(function));
  return few.defined() ? few : kernels::cpu::many_gated_linear(x, gate, up, row_function(function));
}

at::Tensor matrix_product(const at::Tensor& a, const at::Tensor& b) {
  if (!widens_products(a)) return at::mm(a, b);
  if (at::GradMode::is_enabled()) return at::mm(a.to(at::kFloat), b.to(at::kFloat)).to(a.scalar_type());
  return widened_product(a, b.to(at::kFloat));
}

at::Tensor sum_of_rows(const at::Tensor& a, const at::Tensor& b) {
  if (!widens_products(a)) return at::mm(a.t(), b);
  if (at::GradMode::is_enabled()) return matrix_product(a.t(), b);
  return widened_sum_of_rows(a, b);
}

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
      !is_not_subclass(gradient)) {
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
    if (!is_not_subclass(grads[0])) {
      return {at::embedding_dense_backward(grads[0], ids, sizes[0], kNoPadding, false), {}};
    }
    return {sparse_gradient(grads[0], ids, sizes), {}};
  }
};

}  // namespace

TiedEmbedding::TiedEmbedding(const at::Tensor& table, const at::Tensor& head, const at::Tensor& ids)
    : table_(table),
      head_(head),
      split_(table.is_same(head) && at::GradMode::is_enabled() && table.requires_grad() && table.is_cpu() &&
             is_not_subclass(table) && ids.numel() > 0 && ids.numel() < table.size(0)) {
  if (!split_) return;
  const auto uses = TwoUses::apply(table);
  table_ = uses[0];
  head_ = uses[1];
}

at::Tensor TiedEmbedding::rows_of(const at::Tensor& ids) const {
  return split_ ? LookedUp::apply(table_, ids) : at::embedding(table_, ids);
}

}  // namespace attentive

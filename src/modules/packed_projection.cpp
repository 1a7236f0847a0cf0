#include "modules/packed_projection.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <attentive/functional/heads_and_windows.h>

#include "core/check.h"
#include "core/kept_tensors.h"
#include "core/modes.h"
#include "functional/adapters.h"
#include "functional/linear.h"
#include "modules/projection.h"

namespace attentive {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Whether b starts in memory where a ends.
bool follows(const at::Tensor& a, const at::Tensor& b) {
  return a.is_contiguous() && b.is_contiguous() && a.is_alias_of(b) && a.scalar_type() == b.scalar_type() &&
         static_cast<const char*>(a.const_data_ptr()) + a.nbytes() == b.const_data_ptr();
}

bool adjacent(const QkvLayers& layers) {
  const auto& [q, k, v] = layers;
  const bool biases = q->bias.defined();
  if (k->bias.defined() != biases || v->bias.defined() != biases) return false;
  return follows(q->weight, k->weight) && follows(k->weight, v->weight) &&
         (!biases || (follows(q->bias, k->bias) && follows(k->bias, v->bias)));
}

// One view of the memory of three adjacent tensors: (rows, ...).
at::Tensor joined(const at::Tensor& first, int64_t rows) {
  auto sizes = first.sizes().vec();
  sizes[0] = rows;
  return first.as_strided(sizes, first.strides());
}

// Queries, keys and values (B, heads, T, head_dim) by one product with adjacent weights of `rows` outputs.
std::vector<at::Tensor> packed_heads(const at::Tensor& x, const std::array<int64_t, 3>& rows,
                                     const at::Tensor& weight, const at::Tensor& bias, int64_t head_dim) {
  const auto all = rows[0] + rows[1] + rows[2];
  const auto y = attentive::linear(x, joined(weight, all), bias.defined() ? joined(bias, all) : at::Tensor());
  const auto heads = y.unflatten(2, {all / head_dim, head_dim}).transpose(1, 2);
  return heads.unsafe_split_with_sizes({rows[0] / head_dim, rows[1] / head_dim, rows[2] / head_dim}, 1);
}

class PackedProjection : public torch::autograd::Function<PackedProjection> {
 public:
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& wq,
                               const at::Tensor& wk, const at::Tensor& wv,
                               const std::optional<at::Tensor>& bq, const std::optional<at::Tensor>& bk,
                               const std::optional<at::Tensor>& bv, int64_t head_dim) {
    ctx->save_for_backward({x, wq, wk, wv});
    ctx->saved_data["head_dim"] = head_dim;
    ctx->saved_data["biases"] = bq.has_value();
    (void)bk, (void)bv;  // they are adjacent to bq and read through it
    return packed_heads(x, {wq.size(0), wk.size(0), wv.size(0)}, wq, bq.value_or(at::Tensor()), head_dim);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const auto &x = saved[0], &wq = saved[1], &wk = saved[2], &wv = saved[3];
    const auto head_dim = ctx->saved_data["head_dim"].toInt();
    const std::array<int64_t, 3> rows{wq.size(0), wk.size(0), wv.size(0)};
    const auto all = rows[0] + rows[1] + rows[2];
    const auto batch = x.size(0), tokens = x.size(1);
    for (size_t i = 0; i < 3; ++i) {
      if (!grads[i].defined())
        grads[i] = at::zeros({batch, rows[i] / head_dim, tokens, head_dim}, x.options());
    }
    // A second derivative needs operations that autograd records; otherwise the weights are read in place.
    const bool differentiable = at::GradMode::is_enabled();
    at::Tensor grad;
    if (differentiable) {
      grad = at::cat({merge_heads(grads[0]), merge_heads(grads[1]), merge_heads(grads[2])}, 2);
    } else {
      grad = at::empty({batch, tokens, all}, x.options());
      int64_t at = 0;
      for (size_t i = 0; i < 3; at += rows[i++]) {
        split_heads(grad.narrow(2, at, rows[i]), rows[i] / head_dim).copy_(grads[i]);
      }
    }
    const auto flat = grad.flatten(0, 1);
    variable_list out(8);
    if (ctx->needs_input_grad(0)) {
      const auto weight = differentiable ? at::cat({wq, wk, wv}) : joined(wq, all);
      out[0] = matrix_product(flat, weight).view(x.sizes());
    }
    if (ctx->needs_input_grad(1) || ctx->needs_input_grad(2) || ctx->needs_input_grad(3)) {
      const auto parts =
          sum_of_rows(flat, x.reshape({-1, x.size(2)})).split_with_sizes({rows[0], rows[1], rows[2]});
      std::copy(parts.begin(), parts.end(), out.begin() + 1);
    }
    const bool biases = ctx->saved_data["biases"].toBool();
    if (biases && (ctx->needs_input_grad(4) || ctx->needs_input_grad(5) || ctx->needs_input_grad(6))) {
      const auto parts = flat.sum(0).split_with_sizes({rows[0], rows[1], rows[2]});
      std::copy(parts.begin(), parts.end(), out.begin() + 4);
    }
    return out;
  }
};

// Whether forward-mode differentiation is in use, which PackedProjection does not support but three separate
// projections do.
bool differentiated_forward(const QkvLayers& layers, const at::Tensor& x) {
  const auto layer_has_tangent = [](const torch::nn::Linear& layer) {
    return has_tangent(layer->weight) || has_tangent(layer->bias);
  };
  return has_tangent(x) || std::any_of(layers.begin(), layers.end(), layer_has_tangent);
}

// The projections by one product, without what adapters add.
std::vector<at::Tensor> packed_projections(const QkvLayers& layers, const at::Tensor& x, int64_t head_dim) {
  const auto& [q, k, v] = layers;
  if (!at::GradMode::is_enabled()) {  // without the overhead of a custom function
    return packed_heads(x, {q->weight.size(0), k->weight.size(0), v->weight.size(0)}, q->weight, q->bias,
                        head_dim);
  }
  // A custom function accepts an absent optional tensor, but not an undefined tensor.
  const auto bias = [](const torch::nn::Linear& layer) { return as_optional(layer->bias); };
  return PackedProjection::apply(x, q->weight, k->weight, v->weight, bias(q), bias(k), bias(v), head_dim);
}

}  // namespace

void make_adjacent(const QkvLayers& layers, bool values) {
  const KeptTensors kept;
  const auto pack = [&](std::vector<at::Tensor> tensors) {
    int64_t all = 0;
    for (const auto& tensor : tensors) {
      if (!tensor.defined() || tensor.device() != tensors[0].device() ||
          tensor.scalar_type() != tensors[0].scalar_type()) {
        return;
      }
      all += tensor.size(0);
    }
    auto sizes = tensors[0].sizes().vec();
    sizes[0] = all;
    const auto memory = values ? at::cat(tensors) : at::empty(sizes, tensors[0].options());
    int64_t at = 0;
    for (auto& tensor : tensors) {
      const auto rows = tensor.size(0);
      tensor.set_data(memory.narrow(0, at, rows));
      at += rows;
    }
  };
  const auto& [q, k, v] = layers;
  pack({q->weight, k->weight, v->weight});
  pack({q->bias, k->bias, v->bias});
}

std::array<at::Tensor, 3> project_qkv(const QkvLayers& layers, const at::Tensor& x, int64_t head_dim) {
  const auto& [q, k, v] = layers;
  const bool packed =
      !x.is_meta() && !is_autocast(x.device()) && !differentiated_forward(layers, x) && adjacent(layers);
  if (!packed) {
    const auto heads = project_heads({q, k, v}, x, head_dim);
    return {heads[0], heads[1], heads[2]};
  }
  const auto heads = packed_projections(layers, x, head_dim);
  const LinearLayer all[] = {{q->weight, q->bias}, {k->weight, k->bias}, {v->weight, v->bias}};
  if (!is_adapted(all)) return {heads[0], heads[1], heads[2]};
  const auto additions = adapter_products(x, all);
  const auto with_adapters = [&](size_t i) {
    if (!additions[i].defined()) return heads[i];
    return with_addition(heads[i], split_heads(additions[i], all[i].weight.size(0) / head_dim));
  };
  return {with_adapters(0), with_adapters(1), with_adapters(2)};
}

}  // namespace attentive

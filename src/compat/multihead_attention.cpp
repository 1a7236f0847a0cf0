#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/init.h>

#include <attentive/compat/multihead_attention.h>
#include <attentive/functional/attention.h>

#include "compat/inputs.h"
#include "functional/linear.h"
#include "modules/attend.h"
#include "modules/checks.h"
#include "modules/first_weights.h"
#include "modules/projection.h"

namespace attentive::compat {
namespace {

at::Tensor part(const at::Tensor& tensor, int64_t start, int64_t length) {
  return tensor.defined() ? tensor.narrow(0, start, length) : tensor;
}

}  // namespace

bool MultiheadAttentionImpl::packed() const {
  const int64_t features = options.embed_dim();
  return options.kdim().value_or(features) == features && options.vdim().value_or(features) == features;
}

void MultiheadAttentionImpl::reset() {
  const int64_t features = options.embed_dim();
  check_positive(kName, "embed_dim", features);
  check_heads(kName, "embed_dim", features, options.num_heads());
  check_positive(kName, "kdim", options.kdim().value_or(features));
  check_positive(kName, "vdim", options.vdim().value_or(features));
  check_probability(kName, "dropout", options.dropout());

  if (packed()) {
    in_proj_weight = register_parameter("in_proj_weight", at::empty({3 * features, features}));
  } else {
    q_proj_weight = register_parameter("q_proj_weight", at::empty({features, features}));
    k_proj_weight =
        register_parameter("k_proj_weight", at::empty({features, options.kdim().value_or(features)}));
    v_proj_weight =
        register_parameter("v_proj_weight", at::empty({features, options.vdim().value_or(features)}));
  }
  if (options.bias()) in_proj_bias = register_parameter("in_proj_bias", at::empty({3 * features}));
  if (options.add_bias_kv()) {
    bias_k = register_parameter("bias_k", at::empty({1, 1, features}));
    bias_v = register_parameter("bias_v", at::empty({1, 1, features}));
  }
  // Python builds this layer before it draws the input projections, so its draws come first.
  out_proj = register_module("out_proj", linear_layer(features, features, options.bias()));
  if (draws_first_weights()) reset_parameters();
}

void MultiheadAttentionImpl::reset_parameters() {
  for (const auto& weight : {in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight}) {
    if (weight.defined()) torch::nn::init::xavier_uniform_(weight);
  }
  if (in_proj_bias.defined()) {
    torch::nn::init::zeros_(in_proj_bias);
    torch::nn::init::zeros_(out_proj->bias);
  }
  if (bias_k.defined()) {
    torch::nn::init::xavier_normal_(bias_k);
    torch::nn::init::xavier_normal_(bias_v);
  }
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> MultiheadAttentionImpl::project_inputs(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) const {
  const int64_t features = options.embed_dim();
  const auto bias = [&](int64_t n) { return part(in_proj_bias, n * features, features); };
  if (!packed()) {
    return {attentive::linear(query, q_proj_weight, bias(0)), attentive::linear(key, k_proj_weight, bias(1)),
            attentive::linear(value, v_proj_weight, bias(2))};
  }
  // With packed weights, inputs that are the same tensor need only one product. The tensors are compared by
  // identity, not by content.
  if (!key.is_same(value)) {
    const auto weight = [&](int64_t n) { return part(in_proj_weight, n * features, features); };
    return {attentive::linear(query, weight(0), bias(0)), attentive::linear(key, weight(1), bias(1)),
            attentive::linear(value, weight(2), bias(2))};
  }
  if (query.is_same(key)) {
    const auto all = attentive::linear(query, in_proj_weight, in_proj_bias).chunk(3, -1);
    return {all[0], all[1], all[2]};
  }
  const auto both = attentive::linear(key, part(in_proj_weight, features, 2 * features),
                                      part(in_proj_bias, features, 2 * features))
                        .chunk(2, -1);
  return {attentive::linear(query, part(in_proj_weight, 0, features), bias(0)), both[0], both[1]};
}

std::tuple<at::Tensor, at::Tensor> MultiheadAttentionImpl::forward(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& key_padding_mask, bool need_weights, const at::Tensor& attn_mask,
    bool average_attn_weights, bool is_causal) {
  const int64_t features = options.embed_dim();
  const int64_t heads = options.num_heads();
  const auto& parameter = out_proj->weight;
  check_sequences(kName, "query", query, features, options.batch_first());
  check_input(kName, "query", query, query.dim(), features, parameter);
  check_input(kName, "key", key, query.dim(), options.kdim().value_or(features), parameter);
  check_input(kName, "value", value, query.dim(), options.vdim().value_or(features), parameter);
  const auto sizes = mask_sizes(query, key, heads, options.batch_first());
  const int64_t batch = sizes.batch;
  const bool batched = sizes.batched;
  const int64_t token_dim = batched && options.batch_first() ? 1 : 0;
  TORCH_CHECK_VALUE(key.sizes().slice(0, key.dim() - 1) == value.sizes().slice(0, value.dim() - 1), kName,
                    ": expected key and value of the same length and batch, got key ",
                    shape_string(key.sizes()), ", value ", shape_string(value.sizes()));
  TORCH_CHECK_VALUE(!batched || key.size(1 - token_dim) == batch, kName, ": expected key of batch ", batch,
                    " like query ", shape_string(query.sizes()), ", got ", shape_string(key.sizes()));
  check_attention_mask(kName, "attn_mask", attn_mask, sizes);
  check_padding_mask(kName, "key_padding_mask", key_padding_mask, sizes);
  TORCH_CHECK_VALUE(!is_causal || attn_mask.defined(), kName,
                    ": expected an attn_mask with is_causal, which is a hint about it, got none");

  const int64_t appended = (options.add_bias_kv() ? 1 : 0) + (options.add_zero_attn() ? 1 : 0);
  AttentionOptions call;
  call.dropout_p = dropout_now(*this);
  AttentionExtras extras;
  extras.weights = need_weights ? Weights::Dropped : Weights::None;
  extras.caller = this;
  if (is_causal && !need_weights && !key_padding_mask.defined()) {
    // As in Python, SDPA's causal flag, which is aligned top-left, replaces the mask.
    call.causal = Causal::TopLeft;
  } else {
    extras.mask =
        attention_mask(attn_mask, sizes, appended) & padding_mask(key_padding_mask, sizes, appended);
  }

  // Returns x, in any of the three layouts, as a view (N, H, T, d).
  const auto by_head = [&](const at::Tensor& x) {
    const auto split = x.unflatten(-1, {heads, features / heads});
    if (!batched) return split.transpose(0, 1).unsqueeze(0);
    return token_dim == 1 ? split.transpose(1, 2) : split.permute({1, 2, 0, 3});
  };
  const auto [q, k_sequence, v_sequence] = project_inputs(query, key, value);
  const auto append = [&](const at::Tensor& sequence, const at::Tensor& learned) {
    std::vector<at::Tensor> keys = {by_head(sequence)};
    const at::DimVector one = {batch, heads, 1, features / heads};
    if (learned.defined()) {
      keys.push_back(learned.view({1, heads, 1, features / heads}).expand(one).to(sequence.scalar_type()));
    }
    if (options.add_zero_attn()) keys.push_back(at::zeros(one, sequence.options()));
    return keys.size() == 1 ? keys.front() : at::cat(keys, 2);
  };
  const auto result =
      attention(by_head(q), append(k_sequence, bias_k), append(v_sequence, bias_v), call, extras);

  // In training a batch-first output lies in memory as (T, N, E), as in Python: dropout that follows draws in
  // the order of memory, so that it drops the same elements for a seed.
  const bool by_token = token_dim == 0 || is_training();
  auto context = result.output;
  if (!batched) {
    context = context.squeeze(0).transpose(0, 1).flatten(1);
  } else {
    context = (by_token ? context.permute({2, 0, 1, 3}) : context.transpose(1, 2)).flatten(2);
  }
  auto weights = result.weights;
  if (need_weights && average_attn_weights) weights = weights.mean(1);
  if (need_weights && !batched) weights = weights.squeeze(0);
  const auto output = project(out_proj, context);
  return {token_dim == 1 && by_token ? output.transpose(0, 1) : output, weights};
}

}  // namespace attentive::compat

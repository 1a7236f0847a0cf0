#include <cmath>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>

#include <attentive/notebooks/chapter_3.h>

#include "core/check.h"
#include "modules/attend.h"
#include "modules/checks.h"
#include "modules/first_weights.h"
#include "modules/projection.h"

namespace attentive {

std::string_view to_string(MatrixInit value) {
  return enum_name(value, {"uniform", "normal", "kaiming_uniform"});
}

at::Tensor draw_matrix(int64_t d_in, int64_t d_out, MatrixInit init) {
  if (!draws_first_weights()) return at::empty({d_in, d_out});
  switch (init) {
    case MatrixInit::Uniform:
      return at::rand({d_in, d_out});
    case MatrixInit::Normal:
      return at::randn({d_in, d_out});
    case MatrixInit::KaimingUniform:
      break;
  }
  const double bound = 1.0 / std::sqrt(static_cast<double>(d_in));
  return at::empty({d_in, d_out}).uniform_(-bound, bound);
}

void SelfAttentionV1Impl::reset() {
  check_positive(kName, "d_in", options.d_in());
  check_positive(kName, "d_out", options.d_out());
  check_attention_options(kName, options);

  const auto draw = [&] { return draw_matrix(options.d_in(), options.d_out(), options.init()); };
  W_query = register_parameter("W_query", draw());
  W_key = register_parameter("W_key", draw());
  W_value = register_parameter("W_value", draw());
}

std::pair<at::Tensor, at::Tensor> SelfAttentionV1Impl::forward_with_weights(const at::Tensor& x,
                                                                            const Mask& mask, Weights which) {
  check_sequence(kName, "x", x, options.d_in(), W_query);
  return attend(*this, at::matmul(x, W_query), at::matmul(x, W_key), at::matmul(x, W_value), mask, which);
}

void MatrixSelfAttentionImpl::reset() {
  check_positive(kName, "d_model", options.d_model());
  check_positive(kName, "d_k", options.d_k());
  check_attention_options(kName, options);

  const auto draw = [&] { return draw_matrix(options.d_model(), options.d_k(), options.init()); };
  W_Q = register_parameter("W_Q", draw());
  W_K = register_parameter("W_K", draw());
  W_V = register_parameter("W_V", draw());
}

std::pair<at::Tensor, at::Tensor> MatrixSelfAttentionImpl::forward_with_weights(const at::Tensor& x,
                                                                                const Mask& mask,
                                                                                Weights which) {
  check_sequence(kName, "x", x, options.d_model(), W_Q);
  return attend(*this, at::matmul(x, W_Q), at::matmul(x, W_K), at::matmul(x, W_V), mask, which);
}

namespace {

void check_same_sizes(const SelfAttentionV1Impl& v1, const SelfAttentionV2Impl& v2) {
  TORCH_CHECK_VALUE(v1.options.d_in() == v2.options.d_in() && v1.options.d_out() == v2.options.d_out(),
                    "copy_weights: expected equal d_in and d_out, got SelfAttentionV1 (", v1.options.d_in(),
                    ", ", v1.options.d_out(), "), SelfAttentionV2 (", v2.options.d_in(), ", ",
                    v2.options.d_out(), ")");
}

}  // namespace

void SelfAttentionV2Impl::reset() {
  check_positive(kName, "d_in", options.d_in());
  check_positive(kName, "d_out", options.d_out());
  check_attention_options(kName, options);

  const auto projection = torch::nn::LinearOptions(options.d_in(), options.d_out()).bias(options.qkv_bias());
  W_query = register_module("W_query", linear_layer(projection));
  W_key = register_module("W_key", linear_layer(projection));
  W_value = register_module("W_value", linear_layer(projection));
}

std::pair<at::Tensor, at::Tensor> SelfAttentionV2Impl::forward_with_weights(const at::Tensor& x,
                                                                            const Mask& mask, Weights which) {
  check_sequence(kName, "x", x, options.d_in(), W_query->weight);
  return attend(*this, project(W_query, x), project(W_key, x), project(W_value, x), mask, which);
}

void copy_weights(const SelfAttentionV1Impl& from, SelfAttentionV2Impl& to) {
  check_same_sizes(from, to);
  const at::NoGradGuard no_grad;
  const auto copy = [](const at::Tensor& matrix, torch::nn::Linear& layer) {
    layer->weight.copy_(matrix.t());
    if (layer->bias.defined()) layer->bias.zero_();
  };
  copy(from.W_query, to.W_query);
  copy(from.W_key, to.W_key);
  copy(from.W_value, to.W_value);
}

void copy_weights(const SelfAttentionV2Impl& from, SelfAttentionV1Impl& to) {
  check_same_sizes(to, from);
  TORCH_CHECK_VALUE(
      !from.options.qkv_bias(),
      "copy_weights: expected a SelfAttentionV2 without biases, for which SelfAttentionV1 has no "
      "place, got qkv_bias = true");
  const at::NoGradGuard no_grad;
  to.W_query.copy_(from.W_query->weight.t());
  to.W_key.copy_(from.W_key->weight.t());
  to.W_value.copy_(from.W_value->weight.t());
}

void CausalAttentionImpl::reset() {
  check_positive(kName, "d_in", options.d_in());
  check_positive(kName, "d_out", options.d_out());
  check_attention_options(kName, options);

  const auto projection = torch::nn::LinearOptions(options.d_in(), options.d_out()).bias(options.qkv_bias());
  W_query = register_module("W_query", linear_layer(projection));
  W_key = register_module("W_key", linear_layer(projection));
  W_value = register_module("W_value", linear_layer(projection));
}

std::pair<at::Tensor, at::Tensor> CausalAttentionImpl::forward_with_weights(const at::Tensor& x,
                                                                            const Mask& mask, Weights which) {
  check_sequence(kName, "x", x, options.d_in(), W_query->weight);
  check_context(kName, x.size(-2), options.context_length());
  return attend(*this, project(W_query, x), project(W_key, x), project(W_value, x), mask, which);
}

void MultiHeadAttentionWrapperImpl::reset() {
  check_positive(kName, "d_in", options.d_in());
  check_positive(kName, "d_out", options.d_out());
  check_count(kName, "num_heads", options.num_heads());
  check_attention_options(kName, options);

  const auto head = CausalAttentionOptions(options.d_in(), options.d_out(), options.context_length(),
                                           options.dropout(), options.qkv_bias())
                        .attention(options.attention());
  heads = register_module("heads", torch::nn::ModuleList());
  for (int64_t n = 0; n < options.num_heads(); ++n) heads->push_back(CausalAttention(head));
}

std::pair<at::Tensor, at::Tensor> MultiHeadAttentionWrapperImpl::forward_with_weights(const at::Tensor& x,
                                                                                      const Mask& mask,
                                                                                      Weights which) {
  check_sequence(kName, "x", x, options.d_in(), heads->at<CausalAttentionImpl>(0).W_query->weight);
  check_context(kName, x.size(-2), options.context_length());
  std::vector<at::Tensor> outputs, weights;
  for (size_t n = 0; n < heads->size(); ++n) {
    auto [output, w] = heads->at<CausalAttentionImpl>(n).forward_with_weights(x, mask, which);
    outputs.push_back(std::move(output));
    weights.push_back(std::move(w));
  }
  return {at::cat(outputs, -1), which == Weights::None ? at::Tensor() : at::stack(weights, -3)};
}

}  // namespace attentive

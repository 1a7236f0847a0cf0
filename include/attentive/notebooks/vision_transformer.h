#pragma once

#include <array>
#include <utility>

#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/linear.h>

#include <attentive/core/mask.h>
#include <attentive/core/options.h>
#include <attentive/modules/module.h>

namespace attentive {

/// Options of `FusedSelfAttention`, in the order of the vision-transformer document's constructor.
struct FusedSelfAttentionOptions {
  explicit FusedSelfAttentionOptions(int64_t embed_dim, int64_t num_heads = 8)
      : embed_dim_(embed_dim), num_heads_(num_heads) {}

  TORCH_ARG(int64_t, embed_dim);  ///< features of a token, in and out; num_heads divides it
  TORCH_ARG(int64_t, num_heads);
  TORCH_ARG(double, dropout) = 0.0;  ///< probability of dropping an attention weight in training
  /// How the heads attend. Its `dropout_p` must stay 0: `dropout` applies, in training only.
  TORCH_ARG(AttentionOptions, attention) = {};
  TORCH_ARG(bool, qkv_bias) = true;

  ATTENTIVE_OPTIONS(embed_dim_, num_heads_, dropout_, attention_, qkv_bias_);
};

/// Multi-head self-attention with a single projection for queries, keys and values.
///
///   x (B, T, embed_dim) or (T, embed_dim) -> the same shape, dtype and device of the parameters
///
/// Parameters qkv (3 * embed_dim rows, packed as [3][head][head_dim]) and proj, both with biases unless
/// qkv_bias is false: names and random draws of the document. Queries, keys and values are views of the
/// packed projection; nothing is copied. A query that a mask leaves without keys yields the bias of proj.
/// Throws c10::ValueError if x has another shape, c10::TypeError for another dtype. Memory: O(B T embed_dim)
/// for the packed projection with a fused backend, O(B H T T) more with the reference. Source: the
/// self-attention document, `SelfAttention(embed_dim, num_heads)`.
///
///   attentive::FusedSelfAttention attention(768);  // 8 heads
///   auto y = attention->forward(patches);          // (32, 196, 768)
class FusedSelfAttentionImpl : public Module<FusedSelfAttentionImpl> {
 public:
  static constexpr const char* kName = "FusedSelfAttention";
  explicit FusedSelfAttentionImpl(int64_t embed_dim, int64_t num_heads = 8)
      : FusedSelfAttentionImpl(FusedSelfAttentionOptions(embed_dim, num_heads)) {}
  explicit FusedSelfAttentionImpl(FusedSelfAttentionOptions options_) : options(std::move(options_)) {
    build();
  }

  void reset() override;

  at::Tensor forward(const at::Tensor& x, const Mask& mask = {}) {
    return forward_with_weights(x, mask, Weights::None).first;
  }
  /// Output and attention weights (B, H, T, T) or (H, T, T); costs O(B H T T) memory.
  std::pair<at::Tensor, at::Tensor> forward_with_weights(const at::Tensor& x, const Mask& mask = {},
                                                         Weights which = Weights::Clean);

  FusedSelfAttentionOptions options;
  torch::nn::Linear qkv{nullptr};
  torch::nn::Linear proj{nullptr};

 private:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(Mask())})
};
using FusedSelfAttention = ModuleHolder<FusedSelfAttentionImpl>;

/// Packs the weights (C, d_in) or biases (C) of three projections into those of one, (3 C, d_in) or (3 C).
/// Throws c10::ValueError unless all three have the same shape. Memory: the result.
///
///   fused->qkv->weight.set_data(attentive::pack_qkv(W_query->weight, W_key->weight, W_value->weight));
at::Tensor pack_qkv(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value);

/// Inverse of `pack_qkv`: views of query, key and value. Throws c10::ValueError unless 3 divides the first
/// size.
///
///   auto [query, key, value] = attentive::unpack_qkv(fused->qkv->weight);
std::array<at::Tensor, 3> unpack_qkv(const at::Tensor& packed);

}  // namespace attentive

#pragma once

#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <attentive/compat/layer_norm.h>
#include <attentive/compat/multihead_attention.h>
#include <attentive/compat/transformer_layer_options.h>

namespace attentive::compat {

using TransformerEncoderLayerOptions = TransformerLayerOptions;

/// Python's `torch.nn.TransformerEncoderLayer`: self-attention, then a feed-forward block, each with a
/// residual sum and a layer norm.
///
///   src (T, N, E); (N, T, E) with batch_first; (T, E) unbatched -> the same shape
///   src_mask              (T, T) or (N * nhead, T, T): bool, **true hides**; floating: added to the scores
///   src_key_padding_mask  (N, T), or (T) unbatched: read in the same way
///   is_causal             the hint of `MultiheadAttention`; needs src_mask
///
/// Parameters, names and initial weights for a seed are Python's: self_attn.in_proj_weight,
/// self_attn.in_proj_bias, self_attn.out_proj.*, linear1.*, linear2.*, norm1.*, norm2.*. Unlike C++
/// `torch::nn::TransformerEncoderLayer`, it has batch_first, norm_first, layer_norm_eps, bias, unbatched
/// input, and a bool mask that hides. A query without keys gets the attention's output bias where Python may
/// give NaN. Throws c10::ValueError or c10::TypeError that names the bad argument. Memory: that of
/// `attention` plus O(N T dim_feedforward). Source: Vaswani et al. 2017; PyTorch 2.11.
///
///   attentive::compat::TransformerEncoderLayer layer(
///       attentive::compat::TransformerLayerOptions(512, 8).batch_first(true));
///   auto y = layer->forward(src, /*src_mask=*/{}, /*src_key_padding_mask=*/padding);
class TransformerEncoderLayerImpl : public Module<TransformerEncoderLayerImpl> {
 public:
  static constexpr const char* kName = "compat::TransformerEncoderLayer";
  TransformerEncoderLayerImpl(int64_t d_model, int64_t nhead)
      : TransformerEncoderLayerImpl(TransformerEncoderLayerOptions(d_model, nhead)) {}
  explicit TransformerEncoderLayerImpl(TransformerEncoderLayerOptions options);

  void reset() override;

  at::Tensor forward(const at::Tensor& src, const at::Tensor& src_mask = {},
                     const at::Tensor& src_key_padding_mask = {}, bool is_causal = false);

  TransformerEncoderLayerOptions options;
  MultiheadAttention self_attn{nullptr};
  torch::nn::Linear linear1{nullptr}, linear2{nullptr};
  LayerNorm norm1{nullptr}, norm2{nullptr};
  torch::nn::Dropout dropout{nullptr}, dropout1{nullptr}, dropout2{nullptr};

 private:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(at::Tensor())}, {2, torch::nn::AnyValue(at::Tensor())},
                           {3, torch::nn::AnyValue(false)})
};
using TransformerEncoderLayer = ModuleHolder<TransformerEncoderLayerImpl>;

}  // namespace attentive::compat

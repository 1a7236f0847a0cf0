#pragma once

#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <attentive/compat/layer_norm.h>
#include <attentive/compat/multihead_attention.h>
#include <attentive/compat/transformer_layer_options.h>

namespace attentive::compat {

using TransformerDecoderLayerOptions = TransformerLayerOptions;

/// Python's `torch.nn.TransformerDecoderLayer`: self-attention, attention to an encoder's output, then a
/// feed-forward block, each with a residual sum and a layer norm.
///
///   tgt (T, N, E), memory (S, N, E); (N, T, E), (N, S, E) with batch_first; (T, E), (S, E) unbatched
///   -> the shape of tgt
///   tgt_mask (T, T) or (N * nhead, T, T), memory_mask (T, S) or (N * nhead, T, S): bool, **true hides**;
///   floating: added to the scores. tgt_key_padding_mask (N, T), memory_key_padding_mask (N, S), or without N
///   if unbatched: read in the same way. tgt_is_causal, memory_is_causal: the hint of `MultiheadAttention`;
///   each needs its mask
///
/// Parameters, names and initial weights for a seed are Python's: self_attn.*, multihead_attn.*, linear1.*,
/// linear2.*, norm1.*, norm2.*, norm3.*. A query without keys gets the attention's output bias where Python
/// may give NaN. Throws c10::ValueError or c10::TypeError that names the bad argument. Memory: that of two
/// calls of `attention` plus O(N T dim_feedforward). Source: Vaswani et al. 2017; PyTorch 2.11.
///
///   attentive::compat::TransformerDecoderLayer layer(
///       attentive::compat::TransformerLayerOptions(512, 8).batch_first(true));
///   auto y = layer->forward(tgt, memory, causal_mask);
class TransformerDecoderLayerImpl : public Module<TransformerDecoderLayerImpl> {
 public:
  static constexpr const char* kName = "compat::TransformerDecoderLayer";
  TransformerDecoderLayerImpl(int64_t d_model, int64_t nhead)
      : TransformerDecoderLayerImpl(TransformerDecoderLayerOptions(d_model, nhead)) {}
  explicit TransformerDecoderLayerImpl(TransformerDecoderLayerOptions options);

  void reset() override;

  at::Tensor forward(const at::Tensor& tgt, const at::Tensor& memory, const at::Tensor& tgt_mask = {},
                     const at::Tensor& memory_mask = {}, const at::Tensor& tgt_key_padding_mask = {},
                     const at::Tensor& memory_key_padding_mask = {}, bool tgt_is_causal = false,
                     bool memory_is_causal = false);

  TransformerDecoderLayerOptions options;
  MultiheadAttention self_attn{nullptr}, multihead_attn{nullptr};
  torch::nn::Linear linear1{nullptr}, linear2{nullptr};
  LayerNorm norm1{nullptr}, norm2{nullptr}, norm3{nullptr};
  torch::nn::Dropout dropout{nullptr}, dropout1{nullptr}, dropout2{nullptr}, dropout3{nullptr};

 private:
  FORWARD_HAS_DEFAULT_ARGS({2, torch::nn::AnyValue(at::Tensor())}, {3, torch::nn::AnyValue(at::Tensor())},
                           {4, torch::nn::AnyValue(at::Tensor())}, {5, torch::nn::AnyValue(at::Tensor())},
                           {6, torch::nn::AnyValue(false)}, {7, torch::nn::AnyValue(false)})
};
using TransformerDecoderLayer = ModuleHolder<TransformerDecoderLayerImpl>;

}  // namespace attentive::compat

#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <variant>

#include <ATen/core/Tensor.h>
#include <torch/arg.h>
#include <torch/enum.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <attentive/compat/multihead_attention.h>
#include <attentive/core/option_list.h>
#include <attentive/modules/module.h>

namespace attentive::compat {

/// Options of `LayerNorm`.
struct LayerNormOptions {
  explicit LayerNormOptions(int64_t features) : features_(features) {}

  TORCH_ARG(int64_t, features);  ///< size of the last dimension
  TORCH_ARG(double, eps) = 1e-5;
  TORCH_ARG(bool, bias) = true;  ///< Python's option that C++ `torch::nn::LayerNorm` lacks

  ATTENTIVE_OPTIONS(features_, eps_, bias_);
};

/// Python's `torch.nn.LayerNorm` over the last dimension, with its `bias` option.
///
///   x (..., features) -> (..., features)
///
/// Parameters weight (ones), bias (zeros). Throws c10::ValueError for bad options or another last size.
/// Source: PyTorch 2.11, torch.nn.LayerNorm.
///
///   attentive::compat::LayerNorm norm(attentive::compat::LayerNormOptions(512).bias(false));
///   auto y = norm->forward(x);
class LayerNormImpl : public Module<LayerNormImpl> {
 public:
  static constexpr const char* kName = "compat::LayerNorm";
  explicit LayerNormImpl(int64_t features) : LayerNormImpl(LayerNormOptions(features)) {}
  explicit LayerNormImpl(LayerNormOptions options_) : options(std::move(options_)) { build(); }

  void reset() override;
  at::Tensor forward(const at::Tensor& x);

  LayerNormOptions options;
  at::Tensor weight, bias;
};
using LayerNorm = ModuleHolder<LayerNormImpl>;

/// Activation of a feed-forward block: `torch::kReLU`, `torch::kGELU` (the exact one, with erf), or any
/// function of a tensor.
using Activation = std::variant<torch::enumtype::kReLU, torch::enumtype::kGELU,
                                std::function<at::Tensor(const at::Tensor&)>>;

/// Options of `TransformerEncoderLayer` and `TransformerDecoderLayer`: the arguments of Python's
/// constructors.
///
///   TransformerLayerOptions(512, 8).batch_first(true).norm_first(true).activation(torch::kGELU)
struct TransformerLayerOptions {
  TransformerLayerOptions(int64_t d_model, int64_t nhead) : d_model_(d_model), nhead_(nhead) {}

  TORCH_ARG(int64_t, d_model);                 ///< features of input and output; nhead divides it
  TORCH_ARG(int64_t, nhead);                   ///< attention heads
  TORCH_ARG(int64_t, dim_feedforward) = 2048;  ///< hidden features of the feed-forward block
  TORCH_ARG(double, dropout) = 0.1;            ///< of attention weights, hidden features and block outputs
  TORCH_ARG(Activation, activation) = torch::kReLU;
  TORCH_ARG(double, layer_norm_eps) = 1e-5;
  TORCH_ARG(bool, batch_first) = false;  ///< (N, T, E) instead of (T, N, E)
  TORCH_ARG(bool, norm_first) = false;   ///< normalise before each block, not after its residual sum
  TORCH_ARG(bool, bias) = true;          ///< biases of projections, linear layers and norms

  ATTENTIVE_OPTIONS(d_model_, nhead_, dim_feedforward_, dropout_, activation_, layer_norm_eps_, batch_first_,
                    norm_first_, bias_);
};

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
  explicit TransformerEncoderLayerImpl(TransformerEncoderLayerOptions options_)
      : options(std::move(options_)) {
    build();
  }

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
  explicit TransformerDecoderLayerImpl(TransformerDecoderLayerOptions options_)
      : options(std::move(options_)) {
    build();
  }

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

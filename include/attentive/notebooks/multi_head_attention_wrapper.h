#pragma once

#include <utility>

#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/modulelist.h>

#include <attentive/core/mask.h>
#include <attentive/core/options.h>
#include <attentive/modules/module.h>
#include <attentive/notebooks/causal_attention.h>

namespace attentive {

/// Options of `MultiHeadAttentionWrapper`, in the order of the chapter-3 notebook's constructor.
struct MultiHeadAttentionWrapperOptions {
  MultiHeadAttentionWrapperOptions(int64_t d_in, int64_t d_out, int64_t context_length, double dropout,
                                   int64_t num_heads, bool qkv_bias = false)
      : d_in_(d_in),
        d_out_(d_out),
        context_length_(context_length),
        dropout_(dropout),
        num_heads_(num_heads),
        qkv_bias_(qkv_bias) {}

  TORCH_ARG(int64_t, d_in);            ///< features of a token
  TORCH_ARG(int64_t, d_out);           ///< features of one head; the output has num_heads * d_out
  TORCH_ARG(int64_t, context_length);  ///< maximum number of tokens in a sequence; 0: no limit
  TORCH_ARG(double, dropout);          ///< probability of dropping an attention weight in training
  TORCH_ARG(int64_t, num_heads);
  TORCH_ARG(bool, qkv_bias) = false;
  /// How each head attends. Its `dropout_p` must stay 0: `dropout` applies, in training only.
  TORCH_ARG(AttentionOptions, attention) = AttentionOptions{.causal = Causal::BottomRight};

  ATTENTIVE_OPTIONS(d_in_, d_out_, context_length_, dropout_, num_heads_, qkv_bias_, attention_);
};

/// Independent `CausalAttention` heads whose outputs are concatenated, without an output projection.
///
///   x (B, T, d_in) or (T, d_in) -> (B, T, num_heads * d_out) or (T, num_heads * d_out)
///
/// Children heads.0, heads.1, ...: names, random draws and dropout draws (one head after the other) of the
/// chapter-3 notebook. It runs num_heads attentions where `MultiHeadAttention` runs one. Throws
/// c10::ValueError if x has another shape or more than context_length tokens, c10::TypeError for another
/// dtype. Memory: per head, O(B T) beyond input and output with a fused backend, O(B T T) with the reference.
/// Source: "Build a Large Language Model (From Scratch)", chapter 3, `MultiHeadAttentionWrapper`.
///
///   attentive::MultiHeadAttentionWrapper attention(3, 2, 6, /*dropout=*/0.0, /*num_heads=*/2);
///   auto context = attention->forward(batch);  // (2, 6, 3) -> (2, 6, 4)
class MultiHeadAttentionWrapperImpl : public Module<MultiHeadAttentionWrapperImpl> {
 public:
  static constexpr const char* kName = "MultiHeadAttentionWrapper";
  MultiHeadAttentionWrapperImpl(int64_t d_in, int64_t d_out, int64_t context_length, double dropout,
                                int64_t num_heads, bool qkv_bias = false)
      : MultiHeadAttentionWrapperImpl(
            MultiHeadAttentionWrapperOptions(d_in, d_out, context_length, dropout, num_heads, qkv_bias)) {}
  explicit MultiHeadAttentionWrapperImpl(MultiHeadAttentionWrapperOptions options);

  void reset() override;

  at::Tensor forward(const at::Tensor& x, const Mask& mask = {});
  /// Output and attention weights (B, num_heads, T, T) or (num_heads, T, T); costs O(B H T T) memory.
  std::pair<at::Tensor, at::Tensor> forward_with_weights(const at::Tensor& x, const Mask& mask = {},
                                                         Weights which = Weights::Clean);

  MultiHeadAttentionWrapperOptions options;
  torch::nn::ModuleList heads{nullptr};  ///< of `CausalAttention`

 private:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(Mask())})
};
using MultiHeadAttentionWrapper = ModuleHolder<MultiHeadAttentionWrapperImpl>;

}  // namespace attentive

#pragma once

#include <utility>

#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/linear.h>

#include <attentive/core/mask.h>
#include <attentive/core/options.h>
#include <attentive/modules/module.h>

namespace attentive {

/// Options of `CausalAttention`, in the order of the chapter-3 notebook's constructor.
struct CausalAttentionOptions {
  CausalAttentionOptions(int64_t d_in, int64_t d_out, int64_t context_length, double dropout,
                         bool qkv_bias = false)
      : d_in_(d_in), d_out_(d_out), context_length_(context_length), dropout_(dropout), qkv_bias_(qkv_bias) {}

  TORCH_ARG(int64_t, d_in);            ///< features of a token
  TORCH_ARG(int64_t, d_out);           ///< features of a query, a key, a value and the output
  TORCH_ARG(int64_t, context_length);  ///< maximum number of tokens in a sequence; 0: no limit
  TORCH_ARG(double, dropout);          ///< probability of dropping an attention weight in training
  TORCH_ARG(bool, qkv_bias) = false;
  /// How the tokens attend. Its `dropout_p` must stay 0: `dropout` applies, in training only.
  TORCH_ARG(AttentionOptions, attention) = AttentionOptions{.causal = Causal::BottomRight};

  ATTENTIVE_OPTIONS(d_in_, d_out_, context_length_, dropout_, qkv_bias_, attention_);
};

/// Single-head causal attention: no token attends to a later one.
///
///   x (B, T, d_in) or (T, d_in) -> (B, T, d_out) or (T, d_out), dtype and device of the parameters
///
/// Parameters W_query, W_key, W_value: names and random draws of the chapter-3 notebook. The notebook's
/// `mask` buffer is not part of the state. Throws c10::ValueError if x has another shape or more than
/// context_length tokens, c10::TypeError for another dtype. Memory: O(B T) beyond input and output with a
/// fused backend, O(B T T) with the reference. Source: "Build a Large Language Model (From Scratch)", chapter
/// 3, `CausalAttention`.
///
///   attentive::CausalAttention attention(3, 2, /*context_length=*/6, /*dropout=*/0.1);
///   auto context = attention->forward(batch);  // (2, 6, 3) -> (2, 6, 2)
class CausalAttentionImpl : public Module<CausalAttentionImpl>, public CausalMaskBuffer {
 public:
  static constexpr const char* kName = "CausalAttention";
  CausalAttentionImpl(int64_t d_in, int64_t d_out, int64_t context_length, double dropout,
                      bool qkv_bias = false)
      : CausalAttentionImpl(CausalAttentionOptions(d_in, d_out, context_length, dropout, qkv_bias)) {}
  explicit CausalAttentionImpl(CausalAttentionOptions options);

  void reset() override;

  at::Tensor forward(const at::Tensor& x, const Mask& mask = {});
  /// Output and attention weights (B, T, T) or (T, T); costs O(B T T) memory.
  std::pair<at::Tensor, at::Tensor> forward_with_weights(const at::Tensor& x, const Mask& mask = {},
                                                         Weights which = Weights::Clean);

  int64_t context_length() const override { return options.context_length(); }

  CausalAttentionOptions options;
  torch::nn::Linear W_query{nullptr};
  torch::nn::Linear W_key{nullptr};
  torch::nn::Linear W_value{nullptr};

 private:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(Mask())})
};
using CausalAttention = ModuleHolder<CausalAttentionImpl>;

}  // namespace attentive

#pragma once

#include <utility>

#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/linear.h>

#include <attentive/core/mask.h>
#include <attentive/core/options.h>
#include <attentive/modules/module.h>

namespace attentive {

/// Options of `ScaledDotProductAttention`.
struct ScaledDotProductAttentionOptions {
  explicit ScaledDotProductAttentionOptions(double dropout = 0.0) : dropout_(dropout) {}

  TORCH_ARG(double, dropout);  ///< probability of dropping an attention weight in training
  /// How the queries attend. Its `dropout_p` must stay 0: `dropout` applies, in training only.
  TORCH_ARG(AttentionOptions, attention) = {};

  ATTENTIVE_OPTIONS(dropout_, attention_);
};

/// Scaled dot-product attention as a module without parameters: `attention()` with a dropout that follows the
/// training mode.
///
///   Q (..., L, D), K (..., S, D), V (..., S, Dv) -> output (..., L, Dv), weights (..., L, S)
///
/// Takes the ranks and shapes of `attention()`, and throws its errors. The mask is typed: the notebook's 0/1
/// mask is `Mask::keep`, in the shape of the weights; a query without keys has zero output and weights (NaN
/// in the notebook). Memory: O(B H L S), because the weights are returned. Source: the toy self-attention
/// notebook, `ScaledDotProductAttention`.
///
///   attentive::ScaledDotProductAttention sdpa(/*dropout=*/0.1);
///   auto [output, weights] = sdpa->forward(q, k, v, attentive::Mask::key_lengths(lengths));
class ScaledDotProductAttentionImpl : public Module<ScaledDotProductAttentionImpl> {
 public:
  static constexpr const char* kName = "ScaledDotProductAttention";
  explicit ScaledDotProductAttentionImpl(double dropout = 0.0)
      : ScaledDotProductAttentionImpl(ScaledDotProductAttentionOptions(dropout)) {}
  explicit ScaledDotProductAttentionImpl(ScaledDotProductAttentionOptions options_)
      : options(std::move(options_)) {
    build();
  }

  void reset() override;

  /// Output and, as the notebook returns them, the weights *after* dropout: in training their rows do not sum
  /// to 1.
  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& Q, const at::Tensor& K, const at::Tensor& V,
                                            const Mask& mask = {});
  /// Like `forward`, with a choice of weights: the softmax rows by default; `Weights::None` leaves them
  /// undefined and allows a fused backend.
  std::pair<at::Tensor, at::Tensor> forward_with_weights(const at::Tensor& Q, const at::Tensor& K,
                                                         const at::Tensor& V, const Mask& mask = {},
                                                         Weights which = Weights::Clean);

  ScaledDotProductAttentionOptions options;

 private:
  FORWARD_HAS_DEFAULT_ARGS({3, torch::nn::AnyValue(Mask())})
};
using ScaledDotProductAttention = ModuleHolder<ScaledDotProductAttentionImpl>;

/// Options of `MultiHeadSelfAttention`, in the order of the toy notebook's constructor.
struct MultiHeadSelfAttentionOptions {
  explicit MultiHeadSelfAttentionOptions(int64_t d_model = 128, int64_t num_heads = 4, double dropout = 0.0)
      : d_model_(d_model), num_heads_(num_heads), dropout_(dropout) {}

  TORCH_ARG(int64_t, d_model);  ///< features of a token, in and out; num_heads divides it
  TORCH_ARG(int64_t, num_heads);
  /// Probability, in training, of dropping an attention weight and, again, an element of the output.
  TORCH_ARG(double, dropout);
  /// How the heads attend. Its `dropout_p` must stay 0: `dropout` applies, in training only.
  TORCH_ARG(AttentionOptions, attention) = {};

  ATTENTIVE_OPTIONS(d_model_, num_heads_, dropout_, attention_);
};

/// Self-attention over num_heads heads, without biases, that returns its weights and applies dropout to the
/// weights and to the output.
///
///   x (B, T, d_model) or (T, d_model) -> y of the same shape, weights (B, H, T, T) or (H, T, T)
///
/// Parameters W_q, W_k, W_v, W_o: names, random draws and order of dropout draws of the toy notebook. The
/// mask is typed: the notebook's padding mask (B, 1, 1, T) is `Mask::keep` of that tensor or `Mask::key_keep`
/// of (B, T), its general mask `Mask::keep` of (B, 1, T, T); rank 3 is refused. A query that a mask leaves
/// without keys yields zeros. Throws c10::ValueError if x has another shape, c10::TypeError for another
/// dtype. Memory: O(B H T T), because the weights are returned. Source: the toy self-attention notebook,
/// `MultiHeadSelfAttention`.
///
///   attentive::MultiHeadSelfAttention mha(128, /*num_heads=*/4, /*dropout=*/0.1);
///   auto [y, weights] = mha->forward(x);
class MultiHeadSelfAttentionImpl : public Module<MultiHeadSelfAttentionImpl> {
 public:
  static constexpr const char* kName = "MultiHeadSelfAttention";
  explicit MultiHeadSelfAttentionImpl(int64_t d_model = 128, int64_t num_heads = 4, double dropout = 0.0)
      : MultiHeadSelfAttentionImpl(MultiHeadSelfAttentionOptions(d_model, num_heads, dropout)) {}
  explicit MultiHeadSelfAttentionImpl(MultiHeadSelfAttentionOptions options_) : options(std::move(options_)) {
    build();
  }

  void reset() override;

  /// Output and, as the notebook returns them, the weights *after* dropout: in training their rows do not sum
  /// to 1.
  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& x, const Mask& mask = {});
  /// Like `forward`, with a choice of weights: the softmax rows by default; `Weights::None` leaves them
  /// undefined and allows a fused backend.
  std::pair<at::Tensor, at::Tensor> forward_with_weights(const at::Tensor& x, const Mask& mask = {},
                                                         Weights which = Weights::Clean);

  MultiHeadSelfAttentionOptions options;
  torch::nn::Linear W_q{nullptr};
  torch::nn::Linear W_k{nullptr};
  torch::nn::Linear W_v{nullptr};
  torch::nn::Linear W_o{nullptr};

 private:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(Mask())})
};
using MultiHeadSelfAttention = ModuleHolder<MultiHeadSelfAttentionImpl>;

}  // namespace attentive

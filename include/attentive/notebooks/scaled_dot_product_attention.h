#pragma once

#include <utility>

#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>

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
  explicit ScaledDotProductAttentionImpl(ScaledDotProductAttentionOptions options);

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

}  // namespace attentive

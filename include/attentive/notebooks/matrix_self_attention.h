#pragma once

#include <utility>

#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>

#include <attentive/core/mask.h>
#include <attentive/core/options.h>
#include <attentive/modules/module.h>
#include <attentive/notebooks/matrix_init.h>

namespace attentive {

/// Options of `MatrixSelfAttention`, in the order of the notebook's constructor.
struct MatrixSelfAttentionOptions {
  MatrixSelfAttentionOptions(int64_t d_model, int64_t d_k) : d_model_(d_model), d_k_(d_k) {}

  TORCH_ARG(int64_t, d_model);  ///< features of a token
  TORCH_ARG(int64_t, d_k);      ///< features of a query, a key, a value and the output
  TORCH_ARG(MatrixInit, init) = MatrixInit::Normal;
  /// How the tokens attend. Its `dropout_p` must stay 0.
  TORCH_ARG(AttentionOptions, attention) = {};

  ATTENTIVE_OPTIONS(d_model_, d_k_, init_, attention_);
};

/// Single-head self-attention whose three projections are plain matrices with normally distributed initial
/// values, applied as `x W`.
///
///   x (B, T, d_model) or (T, d_model) -> (B, T, d_k) or (T, d_k), dtype and device of the parameters
///
/// Parameters W_Q, W_K, W_V, (d_model, d_k) each; otherwise as `SelfAttentionV1`. Throws c10::ValueError if x
/// has another shape, c10::TypeError for another dtype. Memory: O(B T) beyond input and output with a fused
/// backend, O(B T T) with the reference. Source: the class `SelfAttention(d_model, d_k)` that the chapter-3
/// notebook quotes in a string.
///
///   attentive::MatrixSelfAttention attention(512, 64);
///   auto context = attention->forward(x);  // (B, T, 512) -> (B, T, 64)
class MatrixSelfAttentionImpl : public Module<MatrixSelfAttentionImpl> {
 public:
  static constexpr const char* kName = "MatrixSelfAttention";
  MatrixSelfAttentionImpl(int64_t d_model, int64_t d_k)
      : MatrixSelfAttentionImpl(MatrixSelfAttentionOptions(d_model, d_k)) {}
  explicit MatrixSelfAttentionImpl(MatrixSelfAttentionOptions options);

  void reset() override;

  at::Tensor forward(const at::Tensor& x, const Mask& mask = {});
  /// Output and attention weights (B, T, T) or (T, T); costs O(B T T) memory.
  std::pair<at::Tensor, at::Tensor> forward_with_weights(const at::Tensor& x, const Mask& mask = {},
                                                         Weights which = Weights::Clean);

  MatrixSelfAttentionOptions options;
  at::Tensor W_Q;
  at::Tensor W_K;
  at::Tensor W_V;

 private:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(Mask())})
};
using MatrixSelfAttention = ModuleHolder<MatrixSelfAttentionImpl>;

}  // namespace attentive

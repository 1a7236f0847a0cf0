#pragma once

#include <utility>

#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>

#include <attentive/core/mask.h>
#include <attentive/core/options.h>
#include <attentive/modules/module.h>
#include <attentive/notebooks/matrix_init.h>

namespace attentive {

/// Options of `SelfAttentionV1`, in the order of the chapter-3 notebook's constructor.
struct SelfAttentionV1Options {
  SelfAttentionV1Options(int64_t d_in, int64_t d_out) : d_in_(d_in), d_out_(d_out) {}

  TORCH_ARG(int64_t, d_in);   ///< features of a token
  TORCH_ARG(int64_t, d_out);  ///< features of a query, a key, a value and the output
  TORCH_ARG(MatrixInit, init) = MatrixInit::Uniform;
  /// How the tokens attend. Its `dropout_p` must stay 0.
  TORCH_ARG(AttentionOptions, attention) = {};

  ATTENTIVE_OPTIONS(d_in_, d_out_, init_, attention_);
};

/// Single-head self-attention whose three projections are plain matrices, applied as `x W`.
///
///   x (B, T, d_in) or (T, d_in) -> (B, T, d_out) or (T, d_out), dtype and device of the parameters
///
/// Parameters W_query, W_key, W_value, (d_in, d_out) each: the transpose of a Linear's weight. Names, order
/// and random draws (uniform in [0, 1)) of the chapter-3 notebook. Throws c10::ValueError if x has another
/// shape, c10::TypeError for another dtype.
/// Memory: O(B T) beyond input and output with a fused backend, O(B T T) with the reference.
/// Source: "Build a Large Language Model (From Scratch)", chapter 3, `SelfAttention_v1`.
///
///   attentive::SelfAttentionV1 attention(3, 2);
///   auto context = attention->forward(inputs);  // (6, 3) -> (6, 2)
class SelfAttentionV1Impl : public Module<SelfAttentionV1Impl> {
 public:
  static constexpr const char* kName = "SelfAttentionV1";
  SelfAttentionV1Impl(int64_t d_in, int64_t d_out)
      : SelfAttentionV1Impl(SelfAttentionV1Options(d_in, d_out)) {}
  explicit SelfAttentionV1Impl(SelfAttentionV1Options options);

  void reset() override;

  at::Tensor forward(const at::Tensor& x, const Mask& mask = {});
  /// Output and attention weights (B, T, T) or (T, T); costs O(B T T) memory.
  std::pair<at::Tensor, at::Tensor> forward_with_weights(const at::Tensor& x, const Mask& mask = {},
                                                         Weights which = Weights::Clean);

  SelfAttentionV1Options options;
  at::Tensor W_query;
  at::Tensor W_key;
  at::Tensor W_value;

 private:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(Mask())})
};
using SelfAttentionV1 = ModuleHolder<SelfAttentionV1Impl>;

}  // namespace attentive

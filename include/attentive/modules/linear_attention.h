#pragma once

#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/linear.h>

#include <attentive/core/mask.h>
#include <attentive/functional/linear_attention.h>
#include <attentive/modules/module.h>

namespace attentive {

/// Options of `LinearAttention`.
struct LinearAttentionOptions {
  LinearAttentionOptions(int64_t d_in, int64_t d_out, int64_t num_heads, bool qkv_bias = false)
      : d_in_(d_in), d_out_(d_out), num_heads_(num_heads), qkv_bias_(qkv_bias) {}

  TORCH_ARG(int64_t, d_in);   ///< features of a token
  TORCH_ARG(int64_t, d_out);  ///< features of the output; num_heads divides it
  TORCH_ARG(int64_t, num_heads);
  TORCH_ARG(bool, qkv_bias) = false;
  /// How the heads attend: causal by default, with features elu(x) + 1.
  TORCH_ARG(LinearAttentionCall, attention) = LinearAttentionCall{.causal = Causal::BottomRight};

  ATTENTIVE_OPTIONS(d_in_, d_out_, num_heads_, qkv_bias_, attention_);
};

/// Linear attention over num_heads heads, followed by an output projection: `MultiHeadAttention` with time
/// and memory linear in the number of tokens.
///
///   x (B, T, d_in) or (T, d_in) -> (B, T, d_out) or (T, d_out), dtype and device of the parameters
///
/// Parameters W_query, W_key, W_value, out_proj, drawn in this order: a state dict of `MultiHeadAttention`
/// loads. `mask` may hide keys (`Mask::key_keep`, `Mask::key_lengths`). There are no weights to return or to
/// drop. Throws c10::ValueError or c10::TypeError that names the bad argument. Memory: O(B T d_out).
/// Source: Katharopoulos et al. 2020, "Transformers are RNNs".
///
///   attentive::LinearAttention attention(768, 768, /*num_heads=*/12);
///   auto y = attention->forward(x);
class LinearAttentionImpl : public Module<LinearAttentionImpl> {
 public:
  static constexpr const char* kName = "LinearAttention";
  LinearAttentionImpl(int64_t d_in, int64_t d_out, int64_t num_heads, bool qkv_bias = false)
      : LinearAttentionImpl(LinearAttentionOptions(d_in, d_out, num_heads, qkv_bias)) {}
  explicit LinearAttentionImpl(LinearAttentionOptions options);

  void reset() override;

  at::Tensor forward(const at::Tensor& x, const Mask& mask = {});

  LinearAttentionOptions options;
  torch::nn::Linear W_query{nullptr};
  torch::nn::Linear W_key{nullptr};
  torch::nn::Linear W_value{nullptr};
  torch::nn::Linear out_proj{nullptr};

 private:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(Mask())})
};
using LinearAttention = ModuleHolder<LinearAttentionImpl>;

}  // namespace attentive

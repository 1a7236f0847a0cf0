#pragma once

#include <utility>

#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/linear.h>

#include <attentive/core/mask.h>
#include <attentive/core/options.h>
#include <attentive/modules/module.h>
#include <attentive/notebooks/self_attention_v1.h>

namespace attentive {

/// Options of `SelfAttentionV2`, in the order of the chapter-3 notebook's constructor.
struct SelfAttentionV2Options {
  SelfAttentionV2Options(int64_t d_in, int64_t d_out, bool qkv_bias = false)
      : d_in_(d_in), d_out_(d_out), qkv_bias_(qkv_bias) {}

  TORCH_ARG(int64_t, d_in);   ///< features of a token
  TORCH_ARG(int64_t, d_out);  ///< features of a query, a key, a value and the output
  TORCH_ARG(bool, qkv_bias) = false;
  /// How the tokens attend. Its `dropout_p` must stay 0.
  TORCH_ARG(AttentionOptions, attention) = {};

  ATTENTIVE_OPTIONS(d_in_, d_out_, qkv_bias_, attention_);
};

/// Single-head self-attention with linear layers as projections.
///
///   x (B, T, d_in) or (T, d_in) -> (B, T, d_out) or (T, d_out), dtype and device of the parameters
///
/// Parameters W_query, W_key, W_value: names and random draws of the chapter-3 notebook. Throws
/// c10::ValueError if x has another shape, c10::TypeError for another dtype. Memory: O(B T) beyond input and
/// output with a fused backend, O(B T T) with the reference. Source: "Build a Large Language Model (From
/// Scratch)", chapter 3, `SelfAttention_v2`.
///
///   attentive::SelfAttentionV2 attention(3, 2, /*qkv_bias=*/true);
///   auto context = attention->forward(inputs);  // (6, 3) -> (6, 2)
class SelfAttentionV2Impl : public Module<SelfAttentionV2Impl> {
 public:
  static constexpr const char* kName = "SelfAttentionV2";
  SelfAttentionV2Impl(int64_t d_in, int64_t d_out, bool qkv_bias = false)
      : SelfAttentionV2Impl(SelfAttentionV2Options(d_in, d_out, qkv_bias)) {}
  explicit SelfAttentionV2Impl(SelfAttentionV2Options options);

  void reset() override;

  at::Tensor forward(const at::Tensor& x, const Mask& mask = {});
  /// Output and attention weights (B, T, T) or (T, T); costs O(B T T) memory.
  std::pair<at::Tensor, at::Tensor> forward_with_weights(const at::Tensor& x, const Mask& mask = {},
                                                         Weights which = Weights::Clean);

  SelfAttentionV2Options options;
  torch::nn::Linear W_query{nullptr};
  torch::nn::Linear W_key{nullptr};
  torch::nn::Linear W_value{nullptr};

 private:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(Mask())})
};
using SelfAttentionV2 = ModuleHolder<SelfAttentionV2Impl>;

/// Copies the projections of `from`, transposed, to `to`, so that both compute the same. Biases of `to`
/// become 0. Throws c10::ValueError if d_in or d_out differ.
///
///   attentive::copy_weights(*v1, *v2);
void copy_weights(const SelfAttentionV1Impl& from, SelfAttentionV2Impl& to);

/// Copies the projections in the other direction. Throws c10::ValueError if d_in or d_out differ, or if
/// `from` has biases, which `to` cannot hold.
void copy_weights(const SelfAttentionV2Impl& from, SelfAttentionV1Impl& to);

}  // namespace attentive

#pragma once

#include <utility>

#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/linear.h>

#include <attentive/core/mask.h>
#include <attentive/core/options.h>
#include <attentive/modules/module.h>

namespace attentive {

/// Options of `CrossAttention`, in the order of the chapter-3 constructors, with d_kv after d_in.
struct CrossAttentionOptions {
  CrossAttentionOptions(int64_t d_in, int64_t d_kv, int64_t d_out, double dropout, int64_t num_heads,
                        bool qkv_bias = false)
      : d_in_(d_in),
        d_kv_(d_kv),
        d_out_(d_out),
        dropout_(dropout),
        num_heads_(num_heads),
        qkv_bias_(qkv_bias) {}

  TORCH_ARG(int64_t, d_in);    ///< features of a token of x, which gives the queries
  TORCH_ARG(int64_t, d_kv);    ///< features of a token of memory, which gives keys and values
  TORCH_ARG(int64_t, d_out);   ///< features of the output; num_heads divides it
  TORCH_ARG(double, dropout);  ///< probability of dropping an attention weight in training
  TORCH_ARG(int64_t, num_heads);
  TORCH_ARG(bool, qkv_bias) = false;
  /// How the heads attend. Its `dropout_p` must stay 0: `dropout` applies, in training only.
  TORCH_ARG(AttentionOptions, attention) = {};

  ATTENTIVE_OPTIONS(d_in_, d_kv_, d_out_, dropout_, num_heads_, qkv_bias_, attention_);
};

/// Attention from one sequence to another: queries come from x, keys and values from memory.
///
///   x (B, L, d_in), memory (B, S, d_kv) -> (B, L, d_out); B may be absent from both
///
/// In an encoder-decoder model x is the decoder's state and memory the encoder's output; pass the source's
/// padding as `Mask::key_lengths`. Parameters W_query, W_key, W_value, out_proj, named and drawn as in
/// `MultiHeadAttention`. A query without keys yields the bias of out_proj. Throws c10::ValueError for other
/// shapes, c10::TypeError for another dtype. Memory: O(B H L) beyond input and output with a fused backend,
/// O(B H L S) with the reference. Source: Vaswani et al. 2017, section 3.2.3.
///
///   attentive::CrossAttention attention(512, /*d_kv=*/768, 512, /*dropout=*/0.1, /*num_heads=*/8);
///   auto y = attention->forward(decoder_state, encoder_output, attentive::Mask::key_lengths(lengths));
class CrossAttentionImpl : public Module<CrossAttentionImpl> {
 public:
  static constexpr const char* kName = "CrossAttention";
  CrossAttentionImpl(int64_t d_in, int64_t d_kv, int64_t d_out, double dropout, int64_t num_heads,
                     bool qkv_bias = false)
      : CrossAttentionImpl(CrossAttentionOptions(d_in, d_kv, d_out, dropout, num_heads, qkv_bias)) {}
  explicit CrossAttentionImpl(CrossAttentionOptions options);

  void reset() override;

  at::Tensor forward(const at::Tensor& x, const at::Tensor& memory, const Mask& mask = {});
  /// Output and attention weights (B, H, L, S) or (H, L, S); costs O(B H L S) memory.
  std::pair<at::Tensor, at::Tensor> forward_with_weights(const at::Tensor& x, const at::Tensor& memory,
                                                         const Mask& mask = {},
                                                         Weights which = Weights::Clean);

  CrossAttentionOptions options;
  torch::nn::Linear W_query{nullptr};
  torch::nn::Linear W_key{nullptr};
  torch::nn::Linear W_value{nullptr};
  torch::nn::Linear out_proj{nullptr};

 private:
  FORWARD_HAS_DEFAULT_ARGS({2, torch::nn::AnyValue(Mask())})
};
using CrossAttention = ModuleHolder<CrossAttentionImpl>;

}  // namespace attentive

#pragma once

#include <memory>
#include <utility>

#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/linear.h>

#include <attentive/core/mask.h>
#include <attentive/core/options.h>
#include <attentive/functional/attention.h>
#include <attentive/modules/module.h>
#include <attentive/modules/position_bias.h>
#include <attentive/score/pair_functions.h>

namespace attentive {

/// Options of `MultiHeadAttention`, in the order of the chapter-3 notebook's constructor.
struct MultiHeadAttentionOptions {
  MultiHeadAttentionOptions(int64_t d_in, int64_t d_out, int64_t context_length, double dropout,
                            int64_t num_heads, bool qkv_bias = false)
      : d_in_(d_in),
        d_out_(d_out),
        context_length_(context_length),
        dropout_(dropout),
        num_heads_(num_heads),
        qkv_bias_(qkv_bias) {}

  TORCH_ARG(int64_t, d_in);            ///< features of a token
  TORCH_ARG(int64_t, d_out);           ///< features of the output; num_heads divides it
  TORCH_ARG(int64_t, context_length);  ///< maximum number of tokens in a sequence; 0: no limit
  TORCH_ARG(double, dropout);          ///< probability of dropping an attention weight in training
  TORCH_ARG(int64_t, num_heads);
  TORCH_ARG(bool, qkv_bias) = false;
  /// Adds -slope * distance to the scores, with the standard slopes (`alibi_slopes`).
  TORCH_ARG(bool, alibi) = false;
  /// One learned logit per head in every softmax denominator, parameter `sinks`, zero at first.
  TORCH_ARG(bool, sinks) = false;
  /// A learned bias by position, as the child `position_bias`: the options of one of its modules.
  TORCH_ARG(PositionBiasOptions, position_bias) = {};
  /// A score function of one's own (`score_mod`) for every call, and a mask: a mask function (`mask_mod`), or
  /// a `BlockMask` whose classified tiles serve every layer and step of the lengths that it has. Copies of
  /// the options share the function and the tensors that it captured, which are no parameters of the module:
  /// `to` does not move them, and no file holds them.
  TORCH_ARG(ScoreMod, score) = {};
  TORCH_ARG(BlockMask, block_mask) = {};
  /// How the heads attend. Its `dropout_p` must stay 0: `dropout` applies, in training only.
  TORCH_ARG(AttentionOptions, attention) = AttentionOptions{.causal = Causal::BottomRight};

  ATTENTIVE_OPTIONS(d_in_, d_out_, context_length_, dropout_, num_heads_, qkv_bias_, alibi_, sinks_,
                    position_bias_, score_, block_mask_, attention_);
};

/// Causal scaled dot-product attention over num_heads heads, followed by an output projection.
///
///   x (B, T, d_in) or (T, d_in) -> (B, T, d_out) or (T, d_out), dtype and device of the parameters
///
/// Parameters W_query, W_key, W_value, out_proj: names and random draws of the chapter-3 notebook; with the
/// option `sinks` also `sinks` (num_heads), which draws nothing; with `position_bias` also those of its
/// module, drawn last. The notebook's `mask` buffer is not part of the state. A query that a mask leaves
/// without keys yields the bias of out_proj. Throws c10::ValueError if x has another shape or more than
/// context_length tokens, c10::TypeError for another dtype. Memory: O(B H T) beyond input and output with a
/// fused backend, O(B H T T) with the reference; a table of position biases adds O(H T T). Source: "Build a
/// Large Language Model (From Scratch)", chapter 3, `MultiHeadAttention`.
///
///   attentive::MultiHeadAttention mha(768, 768, /*context_length=*/1024, /*dropout=*/0.1, /*num_heads=*/12);
///   auto y = mha->forward(x);
class MultiHeadAttentionImpl : public Module<MultiHeadAttentionImpl>, public CausalMaskBuffer {
 public:
  static constexpr const char* kName = "MultiHeadAttention";
  MultiHeadAttentionImpl(int64_t d_in, int64_t d_out, int64_t context_length, double dropout,
                         int64_t num_heads, bool qkv_bias = false)
      : MultiHeadAttentionImpl(
            MultiHeadAttentionOptions(d_in, d_out, context_length, dropout, num_heads, qkv_bias)) {}
  explicit MultiHeadAttentionImpl(MultiHeadAttentionOptions options);

  void reset() override;

  at::Tensor forward(const at::Tensor& x, const Mask& mask = {});
  /// Output and attention weights (B, num_heads, T, T) or (num_heads, T, T); costs O(B H T T) memory.
  std::pair<at::Tensor, at::Tensor> forward_with_weights(const at::Tensor& x, const Mask& mask = {},
                                                         Weights which = Weights::Clean);

  int64_t context_length() const override { return options.context_length(); }

  MultiHeadAttentionOptions options;
  torch::nn::Linear W_query{nullptr};
  torch::nn::Linear W_key{nullptr};
  torch::nn::Linear W_value{nullptr};
  torch::nn::Linear out_proj{nullptr};
  at::Tensor sinks;                                  ///< (num_heads); undefined without the option
  std::shared_ptr<torch::nn::Module> position_bias;  ///< null without the option

 private:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(Mask())})
};
using MultiHeadAttention = ModuleHolder<MultiHeadAttentionImpl>;

}  // namespace attentive

#pragma once

#include <utility>

#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/linear.h>

#include <attentive/core/mask.h>
#include <attentive/core/options.h>
#include <attentive/functional/attention.h>
#include <attentive/modules/module.h>
#include <attentive/score/pair_functions.h>

namespace attentive {

/// Options of `GroupedQueryAttention`.
struct GroupedQueryAttentionOptions {
  GroupedQueryAttentionOptions(int64_t d_in, int64_t d_out, int64_t context_length, double dropout,
                               int64_t num_heads, int64_t num_kv_heads, bool qkv_bias = false)
      : d_in_(d_in),
        d_out_(d_out),
        context_length_(context_length),
        dropout_(dropout),
        num_heads_(num_heads),
        num_kv_heads_(num_kv_heads),
        qkv_bias_(qkv_bias) {}

  TORCH_ARG(int64_t, d_in);            ///< features of a token
  TORCH_ARG(int64_t, d_out);           ///< features of the output; num_heads divides it
  TORCH_ARG(int64_t, context_length);  ///< maximum number of tokens in a sequence; 0: no limit
  TORCH_ARG(double, dropout);          ///< probability of dropping an attention weight in training
  TORCH_ARG(int64_t, num_heads);       ///< query heads
  TORCH_ARG(int64_t, num_kv_heads);    ///< key and value heads; divides num_heads; 1: multi-query attention
  TORCH_ARG(bool, qkv_bias) = false;
  TORCH_ARG(bool, out_bias) = false;  ///< the book's class has no bias in out_proj
  /// Adds -slope * distance to the scores, with the standard slopes (`alibi_slopes`).
  TORCH_ARG(bool, alibi) = false;
  /// One learned logit per query head in every softmax denominator, parameter `sinks`, zero at first.
  TORCH_ARG(bool, sinks) = false;
  /// A score function of one's own (`score_mod`) for every call, and a mask: a mask function (`mask_mod`), or
  /// a `BlockMask` whose classified tiles serve every layer and step of the lengths that it has. Copies of
  /// the options share the function and the tensors that it captured, which are no parameters of the module:
  /// `to` does not move them, and no file holds them.
  TORCH_ARG(ScoreMod, score) = {};
  TORCH_ARG(BlockMask, block_mask) = {};
  /// How the heads attend. Its `dropout_p` must stay 0: `dropout` applies, in training only.
  TORCH_ARG(AttentionOptions, attention) = AttentionOptions{.causal = Causal::BottomRight};

  ATTENTIVE_OPTIONS(d_in_, d_out_, context_length_, dropout_, num_heads_, num_kv_heads_, qkv_bias_, out_bias_,
                    alibi_, sinks_, score_, block_mask_, attention_);
};

/// Causal attention in which num_heads / num_kv_heads query heads share one key and value head, followed by
/// an output projection. The book's class calls num_kv_heads `num_kv_groups`.
///
///   x (B, T, d_in) or (T, d_in) -> (B, T, d_out) or (T, d_out), dtype and device of the parameters
///
/// Parameters W_key, W_value (num_kv_heads * head_dim, d_in), W_query (d_out, d_in), out_proj, drawn in this
/// order: names and draws of the book's bonus class; with the option `sinks` also `sinks` (num_heads). Query
/// head h reads key head h / (num_heads / num_kv_heads); no key is repeated in memory. A query without keys
/// yields zero, or the bias of out_proj. Throws c10::ValueError or c10::TypeError that names the bad
/// argument. Memory: as `MultiHeadAttention`, with keys and values num_heads / num_kv_heads times smaller.
/// Source: Ainslie et al. 2023, "GQA"; "Build a Large Language Model (From Scratch)", chapter 4, bonus.
///
///   attentive::GroupedQueryAttention gqa(768, 768, /*context_length=*/1024, /*dropout=*/0.0,
///                                        /*num_heads=*/12, /*num_kv_heads=*/4);
///   auto y = gqa->forward(x);
class GroupedQueryAttentionImpl : public Module<GroupedQueryAttentionImpl> {
 public:
  static constexpr const char* kName = "GroupedQueryAttention";
  GroupedQueryAttentionImpl(int64_t d_in, int64_t d_out, int64_t context_length, double dropout,
                            int64_t num_heads, int64_t num_kv_heads, bool qkv_bias = false)
      : GroupedQueryAttentionImpl(GroupedQueryAttentionOptions(d_in, d_out, context_length, dropout,
                                                               num_heads, num_kv_heads, qkv_bias)) {}
  explicit GroupedQueryAttentionImpl(GroupedQueryAttentionOptions options);

  void reset() override;

  at::Tensor forward(const at::Tensor& x, const Mask& mask = {});
  /// Output and attention weights (B, num_heads, T, T) or (num_heads, T, T); costs O(B H T T) memory.
  std::pair<at::Tensor, at::Tensor> forward_with_weights(const at::Tensor& x, const Mask& mask = {},
                                                         Weights which = Weights::Clean);

  GroupedQueryAttentionOptions options;
  torch::nn::Linear W_key{nullptr};
  torch::nn::Linear W_value{nullptr};
  torch::nn::Linear W_query{nullptr};
  torch::nn::Linear out_proj{nullptr};
  at::Tensor sinks;  ///< (num_heads); undefined without the option

 private:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(Mask())})
};
using GroupedQueryAttention = ModuleHolder<GroupedQueryAttentionImpl>;

}  // namespace attentive

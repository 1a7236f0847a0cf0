#pragma once

#include <memory>
#include <utility>

#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/linear.h>

#include <attentive/core/mask.h>
#include <attentive/core/options.h>
#include <attentive/functional/attention.h>
#include <attentive/functional/linear_attention.h>
#include <attentive/modules/module.h>
#include <attentive/modules/position_bias.h>
#include <attentive/score/score_callbacks.h>

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
  /// A custom score function (`score_mod`) for every call, and a mask: a mask function (`mask_mod`), or
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
  explicit MultiHeadAttentionImpl(MultiHeadAttentionOptions options_) : options(std::move(options_)) {
    build();
  }

  void reset() override;

  at::Tensor forward(const at::Tensor& x, const Mask& mask = {}) {
    return forward_with_weights(x, mask, Weights::None).first;
  }
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
  /// A custom score function (`score_mod`) for every call, and a mask: a mask function (`mask_mod`), or
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
  explicit GroupedQueryAttentionImpl(GroupedQueryAttentionOptions options_) : options(std::move(options_)) {
    build();
  }

  void reset() override;

  at::Tensor forward(const at::Tensor& x, const Mask& mask = {}) {
    return forward_with_weights(x, mask, Weights::None).first;
  }
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
  explicit CrossAttentionImpl(CrossAttentionOptions options_) : options(std::move(options_)) { build(); }

  void reset() override;

  at::Tensor forward(const at::Tensor& x, const at::Tensor& memory, const Mask& mask = {}) {
    return forward_with_weights(x, memory, mask, Weights::None).first;
  }
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
  explicit LinearAttentionImpl(LinearAttentionOptions options_) : options(std::move(options_)) { build(); }

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

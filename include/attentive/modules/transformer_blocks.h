#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <attentive/modules/module.h>
#include <attentive/modules/multi_head_attention.h>
#include <attentive/modules/norms.h>
#include <attentive/modules/transformer_attention.h>

namespace attentive {

/// The activation between the linear layers of a `FeedForward`.
///   GeluTanh  GELU in its tanh approximation (GPT-2, Gemma)
///   Gelu      GELU with erf (BERT, vision transformers)
///   Silu      x * sigmoid(x) (Llama)
///   Relu      max(x, 0) (the 2017 paper)
///   QuickGelu x * sigmoid(1.702 x) (CLIP)
///   Relu2     max(x, 0)^2 (Nemotron)
enum class Activation { GeluTanh, Gelu, Silu, Relu, QuickGelu, Relu2 };
std::string_view to_string(Activation value);

/// Options of `FeedForward`.
struct FeedForwardOptions {
  explicit FeedForwardOptions(int64_t emb_dim) : emb_dim_(emb_dim) {}

  TORCH_ARG(int64_t, emb_dim);         ///< features of a token, in and out
  TORCH_ARG(int64_t, hidden_dim) = 0;  ///< features between the layers; 0: 4 * emb_dim
  TORCH_ARG(bool, bias) = true;
  TORCH_ARG(Activation, activation) = Activation::GeluTanh;
  /// Whether a third layer, `gate`, multiplies: layers.2(activation(gate(x)) * layers.0(x)). With Silu this
  /// is SwiGLU.
  TORCH_ARG(bool, gated) = false;

  ATTENTIVE_OPTIONS(emb_dim_, hidden_dim_, bias_, activation_, gated_);
};

/// Two linear layers with an activation between them, applied to each token independently.
///
///   x (B, T, emb_dim) or (T, emb_dim) -> the same shape, dtype and device of the parameters
///
/// Parameters layers.0 and layers.2: names and random draws of the book's GPT. With `gated` also gate, drawn
/// after them. Throws c10::ValueError for another shape, c10::TypeError for another dtype. Memory: 2 B T
/// hidden_dim numbers, 4 with `gated`. Source: "Build a Large Language Model (From Scratch)", chapter 4;
/// Hendrycks and Gimpel 2016, "GELUs"; Shazeer 2020, "GLU Variants Improve Transformer".
///
///   attentive::FeedForward ff(768);
///   auto y = ff->forward(x);
class FeedForwardImpl : public Module<FeedForwardImpl> {
 public:
  static constexpr const char* kName = "FeedForward";
  explicit FeedForwardImpl(int64_t emb_dim) : FeedForwardImpl(FeedForwardOptions(emb_dim)) {}
  explicit FeedForwardImpl(FeedForwardOptions options_) : options(options_) { build(); }

  void reset() override;
  at::Tensor forward(const at::Tensor& x);

  FeedForwardOptions options;
  torch::nn::Sequential layers{nullptr};
  torch::nn::Linear gate{nullptr};  ///< empty unless gated

 private:
  torch::nn::Linear layer(size_t index) const;
};
using FeedForward = ModuleHolder<FeedForwardImpl>;

/// Options of `TransformerBlock` and `DecoderBlock`.
struct TransformerBlockOptions {
  TransformerBlockOptions(int64_t emb_dim, int64_t num_heads) : attention_(emb_dim, num_heads) {}
  explicit TransformerBlockOptions(TransformerAttentionOptions attention) : attention_(attention) {}

  TORCH_ARG(TransformerAttentionOptions, attention);  ///< the self-attention, which also sets the sizes
  TORCH_ARG(int64_t, hidden_dim) = 0;  ///< features inside the feed-forward layer; 0: 4 * emb_dim
  TORCH_ARG(double, dropout) = 0.0;    ///< dropout of each sublayer's output, in training
  TORCH_ARG(bool, bias) = true;        ///< biases of the feed-forward layer and the norms
  TORCH_ARG(bool, norm_first) = true;  ///< x + f(norm(x)); false: norm(x + f(x)), as in the 2017 paper
  TORCH_ARG(int64_t, memory_dim) = 0;  ///< features of a `DecoderBlock`'s memory; 0: emb_dim
  TORCH_ARG(Activation, activation) = Activation::GeluTanh;  ///< activation of the feed-forward layer
  TORCH_ARG(bool, gated) = false;                            ///< whether the feed-forward layer has a gate
  TORCH_ARG(double, eps) = 1e-5;                             ///< eps of the norms
  /// Whether `forward` keeps only the block's inputs for the backward pass, which computes the block again
  /// (`activation_checkpoint`), with the same bits.
  TORCH_ARG(bool, checkpoint) = false;

  ATTENTIVE_OPTIONS(attention_, hidden_dim_, dropout_, bias_, norm_first_, memory_dim_, activation_, gated_,
                    eps_, checkpoint_);
};

/// Self-attention and a feed-forward layer, each with a residual connection, a layer norm and dropout.
///
///   x (B, T, emb_dim) or (T, emb_dim) -> the same shape
///
/// Causal by default, as in GPT. Children att, ff, norm1, norm2: names and random draws of the book's
/// `TransformerBlock`. Throws the errors of its children.
/// Source: "Build a Large Language Model (From Scratch)", chapter 4.
///
///   attentive::TransformerBlock block(768, 12);
///   auto y = block->forward(x);
class TransformerBlockImpl : public Module<TransformerBlockImpl> {
 public:
  static constexpr const char* kName = "TransformerBlock";
  TransformerBlockImpl(int64_t emb_dim, int64_t num_heads)
      : TransformerBlockImpl(TransformerBlockOptions(emb_dim, num_heads)) {}
  explicit TransformerBlockImpl(TransformerBlockOptions options_) : options(std::move(options_)) { build(); }

  void reset() override;

  at::Tensor forward(const at::Tensor& x, const Mask& mask = {});
  /// Like `forward`, for tokens that follow those in the cache.
  at::Tensor forward_cached(const at::Tensor& x, KVCache& cache, int64_t layer, const Mask& mask = {});

  TransformerBlockOptions options;
  TransformerAttention att{nullptr};
  FeedForward ff{nullptr};
  LayerNorm norm1{nullptr}, norm2{nullptr};

 private:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(Mask())})
};
using TransformerBlock = ModuleHolder<TransformerBlockImpl>;

/// A block of an encoder: a `TransformerBlock` without the causal mask.
///
///   auto block = attentive::encoder_block(TransformerBlockOptions(512, 8).dropout(0.1));
///   auto memory = block->forward(source, Mask::key_lengths(source_lengths));
TransformerBlock encoder_block(TransformerBlockOptions options);

/// A block of a decoder that also attends to an encoder's output: causal self-attention, cross-attention, and
/// a feed-forward layer, each with a residual connection, a layer norm and dropout.
///
///   x (B, L, emb_dim), memory (B, S, memory_dim) -> (B, L, emb_dim); B may be absent from both
///
/// Queries come from x; keys and values of `cross` come from memory. Children att, cross, ff, norm1, norm2,
/// norm3. `mask` is for the self-attention, `memory_mask` for the cross-attention (the source's padding).
/// Throws the errors of its children.
/// Source: Vaswani et al. 2017, section 3.1.
///
///   attentive::DecoderBlock block(attentive::TransformerBlockOptions(512, 8));
///   auto y = block->forward(x, memory, {}, Mask::key_lengths(source_lengths));
class DecoderBlockImpl : public Module<DecoderBlockImpl> {
 public:
  static constexpr const char* kName = "DecoderBlock";
  DecoderBlockImpl(int64_t emb_dim, int64_t num_heads)
      : DecoderBlockImpl(TransformerBlockOptions(emb_dim, num_heads)) {}
  explicit DecoderBlockImpl(TransformerBlockOptions options_) : options(std::move(options_)) { build(); }

  void reset() override;

  at::Tensor forward(const at::Tensor& x, const at::Tensor& memory, const Mask& mask = {},
                     const Mask& memory_mask = {});

  TransformerBlockOptions options;
  TransformerAttention att{nullptr};
  CrossAttention cross{nullptr};
  FeedForward ff{nullptr};
  LayerNorm norm1{nullptr}, norm2{nullptr}, norm3{nullptr};

 private:
  FORWARD_HAS_DEFAULT_ARGS({2, torch::nn::AnyValue(Mask())}, {3, torch::nn::AnyValue(Mask())})
};
using DecoderBlock = ModuleHolder<DecoderBlockImpl>;

}  // namespace attentive

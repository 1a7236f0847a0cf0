#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>

#include <attentive/core/mask.h>
#include <attentive/core/options.h>
#include <attentive/modules/module.h>

namespace attentive {

/// Initial values of a projection that is a plain (d_in, d_out) matrix.
///   Uniform         uniform in [0, 1): what the chapter-3 notebook's `SelfAttention_v1` draws
///   Normal          mean 0, variance 1: what its quoted `SelfAttention(d_model, d_k)` draws
///   KaimingUniform  uniform in [-b, b) with b = 1 / sqrt(d_in): the distribution of an `nn::Linear` weight
///
///   attentive::SelfAttentionV1 attention(
///       attentive::SelfAttentionV1Options(3, 2).init(attentive::MatrixInit::Normal));
enum class MatrixInit { Uniform, Normal, KaimingUniform };

std::string_view to_string(MatrixInit value);

/// Draws a (d_in, d_out) matrix on the CPU in the default dtype, as Python does. Both sizes are positive.
///
///   auto W = attentive::draw_matrix(3, 2, attentive::MatrixInit::Uniform);
at::Tensor draw_matrix(int64_t d_in, int64_t d_out, MatrixInit init);

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
  explicit SelfAttentionV1Impl(SelfAttentionV1Options options_) : options(std::move(options_)) { build(); }

  void reset() override;

  at::Tensor forward(const at::Tensor& x, const Mask& mask = {}) {
    return forward_with_weights(x, mask, Weights::None).first;
  }
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
  explicit MatrixSelfAttentionImpl(MatrixSelfAttentionOptions options_) : options(std::move(options_)) {
    build();
  }

  void reset() override;

  at::Tensor forward(const at::Tensor& x, const Mask& mask = {}) {
    return forward_with_weights(x, mask, Weights::None).first;
  }
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
  explicit SelfAttentionV2Impl(SelfAttentionV2Options options_) : options(std::move(options_)) { build(); }

  void reset() override;

  at::Tensor forward(const at::Tensor& x, const Mask& mask = {}) {
    return forward_with_weights(x, mask, Weights::None).first;
  }
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

/// Options of `CausalAttention`, in the order of the chapter-3 notebook's constructor.
struct CausalAttentionOptions {
  CausalAttentionOptions(int64_t d_in, int64_t d_out, int64_t context_length, double dropout,
                         bool qkv_bias = false)
      : d_in_(d_in), d_out_(d_out), context_length_(context_length), dropout_(dropout), qkv_bias_(qkv_bias) {}

  TORCH_ARG(int64_t, d_in);            ///< features of a token
  TORCH_ARG(int64_t, d_out);           ///< features of a query, a key, a value and the output
  TORCH_ARG(int64_t, context_length);  ///< maximum number of tokens in a sequence; 0: no limit
  TORCH_ARG(double, dropout);          ///< probability of dropping an attention weight in training
  TORCH_ARG(bool, qkv_bias) = false;
  /// How the tokens attend. Its `dropout_p` must stay 0: `dropout` applies, in training only.
  TORCH_ARG(AttentionOptions, attention) = AttentionOptions{.causal = Causal::BottomRight};

  ATTENTIVE_OPTIONS(d_in_, d_out_, context_length_, dropout_, qkv_bias_, attention_);
};

/// Single-head causal attention: no token attends to a later one.
///
///   x (B, T, d_in) or (T, d_in) -> (B, T, d_out) or (T, d_out), dtype and device of the parameters
///
/// Parameters W_query, W_key, W_value: names and random draws of the chapter-3 notebook. The notebook's
/// `mask` buffer is not part of the state. Throws c10::ValueError if x has another shape or more than
/// context_length tokens, c10::TypeError for another dtype. Memory: O(B T) beyond input and output with a
/// fused backend, O(B T T) with the reference. Source: "Build a Large Language Model (From Scratch)", chapter
/// 3, `CausalAttention`.
///
///   attentive::CausalAttention attention(3, 2, /*context_length=*/6, /*dropout=*/0.1);
///   auto context = attention->forward(batch);  // (2, 6, 3) -> (2, 6, 2)
class CausalAttentionImpl : public Module<CausalAttentionImpl>, public CausalMaskBuffer {
 public:
  static constexpr const char* kName = "CausalAttention";
  CausalAttentionImpl(int64_t d_in, int64_t d_out, int64_t context_length, double dropout,
                      bool qkv_bias = false)
      : CausalAttentionImpl(CausalAttentionOptions(d_in, d_out, context_length, dropout, qkv_bias)) {}
  explicit CausalAttentionImpl(CausalAttentionOptions options_) : options(std::move(options_)) { build(); }

  void reset() override;

  at::Tensor forward(const at::Tensor& x, const Mask& mask = {}) {
    return forward_with_weights(x, mask, Weights::None).first;
  }
  /// Output and attention weights (B, T, T) or (T, T); costs O(B T T) memory.
  std::pair<at::Tensor, at::Tensor> forward_with_weights(const at::Tensor& x, const Mask& mask = {},
                                                         Weights which = Weights::Clean);

  int64_t context_length() const override { return options.context_length(); }

  CausalAttentionOptions options;
  torch::nn::Linear W_query{nullptr};
  torch::nn::Linear W_key{nullptr};
  torch::nn::Linear W_value{nullptr};

 private:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(Mask())})
};
using CausalAttention = ModuleHolder<CausalAttentionImpl>;

/// Options of `MultiHeadAttentionWrapper`, in the order of the chapter-3 notebook's constructor.
struct MultiHeadAttentionWrapperOptions {
  MultiHeadAttentionWrapperOptions(int64_t d_in, int64_t d_out, int64_t context_length, double dropout,
                                   int64_t num_heads, bool qkv_bias = false)
      : d_in_(d_in),
        d_out_(d_out),
        context_length_(context_length),
        dropout_(dropout),
        num_heads_(num_heads),
        qkv_bias_(qkv_bias) {}

  TORCH_ARG(int64_t, d_in);            ///< features of a token
  TORCH_ARG(int64_t, d_out);           ///< features of one head; the output has num_heads * d_out
  TORCH_ARG(int64_t, context_length);  ///< maximum number of tokens in a sequence; 0: no limit
  TORCH_ARG(double, dropout);          ///< probability of dropping an attention weight in training
  TORCH_ARG(int64_t, num_heads);
  TORCH_ARG(bool, qkv_bias) = false;
  /// How each head attends. Its `dropout_p` must stay 0: `dropout` applies, in training only.
  TORCH_ARG(AttentionOptions, attention) = AttentionOptions{.causal = Causal::BottomRight};

  ATTENTIVE_OPTIONS(d_in_, d_out_, context_length_, dropout_, num_heads_, qkv_bias_, attention_);
};

/// Independent `CausalAttention` heads whose outputs are concatenated, without an output projection.
///
///   x (B, T, d_in) or (T, d_in) -> (B, T, num_heads * d_out) or (T, num_heads * d_out)
///
/// Children heads.0, heads.1, ...: names, random draws and dropout draws (one head after the other) of the
/// chapter-3 notebook. It runs num_heads attentions where `MultiHeadAttention` runs one. Throws
/// c10::ValueError if x has another shape or more than context_length tokens, c10::TypeError for another
/// dtype. Memory: per head, O(B T) beyond input and output with a fused backend, O(B T T) with the reference.
/// Source: "Build a Large Language Model (From Scratch)", chapter 3, `MultiHeadAttentionWrapper`.
///
///   attentive::MultiHeadAttentionWrapper attention(3, 2, 6, /*dropout=*/0.0, /*num_heads=*/2);
///   auto context = attention->forward(batch);  // (2, 6, 3) -> (2, 6, 4)
class MultiHeadAttentionWrapperImpl : public Module<MultiHeadAttentionWrapperImpl> {
 public:
  static constexpr const char* kName = "MultiHeadAttentionWrapper";
  MultiHeadAttentionWrapperImpl(int64_t d_in, int64_t d_out, int64_t context_length, double dropout,
                                int64_t num_heads, bool qkv_bias = false)
      : MultiHeadAttentionWrapperImpl(
            MultiHeadAttentionWrapperOptions(d_in, d_out, context_length, dropout, num_heads, qkv_bias)) {}
  explicit MultiHeadAttentionWrapperImpl(MultiHeadAttentionWrapperOptions options_)
      : options(std::move(options_)) {
    build();
  }

  void reset() override;

  at::Tensor forward(const at::Tensor& x, const Mask& mask = {}) {
    return forward_with_weights(x, mask, Weights::None).first;
  }
  /// Output and attention weights (B, num_heads, T, T) or (num_heads, T, T); costs O(B H T T) memory.
  std::pair<at::Tensor, at::Tensor> forward_with_weights(const at::Tensor& x, const Mask& mask = {},
                                                         Weights which = Weights::Clean);

  MultiHeadAttentionWrapperOptions options;
  torch::nn::ModuleList heads{nullptr};  ///< of `CausalAttention`

 private:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(Mask())})
};
using MultiHeadAttentionWrapper = ModuleHolder<MultiHeadAttentionWrapperImpl>;

}  // namespace attentive

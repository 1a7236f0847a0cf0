#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include <c10/core/TensorOptions.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/modulelist.h>

#include <attentive/compat/transformer_layers.h>

namespace attentive::compat {

/// Options of `TransformerEncoder`.
struct TransformerEncoderOptions {
  TransformerEncoderOptions(TransformerLayerOptions layer, int64_t num_layers)
      : layer_(std::move(layer)), num_layers_(num_layers) {}

  TORCH_ARG(TransformerLayerOptions, layer);  ///< options of every layer
  TORCH_ARG(int64_t, num_layers);
  TORCH_ARG(std::optional<LayerNormOptions>, norm) = std::nullopt;  ///< norm after the last layer (optional)

  ATTENTIVE_OPTIONS(layer_, num_layers_, norm_);
};

/// Python's `torch.nn.TransformerEncoder`: encoder layers one after another, then a norm if there is one.
///
///   src (T, N, E); (N, T, E) with batch_first; (T, E) unbatched -> the same shape
///   mask                  (T, T) or (N * nhead, T, T): bool, **true hides**; floating: added to the scores
///   src_key_padding_mask  (N, T), or (T) unbatched: read in the same way
///   is_causal             whether `mask` is the causal mask; not given: decided, as in Python, by comparing
///                         the two (on CUDA the call then waits for the device)
///
/// Parameters layers.N.* and norm.*. All layers start with the same weights, as in Python: those of the given
/// layer, or of one layer drawn for all of them. There is no `enable_nested_tensor`, with which Python may
/// return zeros (after the norm, its bias) for padded tokens in evaluation; this class returns what the
/// layers compute. Throws c10::ValueError or c10::TypeError that names the bad argument. Memory: that of one
/// layer, with autograd times num_layers. Source: Vaswani et al. 2017; PyTorch 2.11.
///
///   attentive::compat::TransformerEncoderLayer layer(
///       attentive::compat::TransformerLayerOptions(512, 8).batch_first(true));
///   attentive::compat::TransformerEncoder encoder(layer, 6);
///   auto y = encoder->forward(src, /*mask=*/{}, /*src_key_padding_mask=*/padding);
class TransformerEncoderImpl : public Module<TransformerEncoderImpl> {
 public:
  static constexpr const char* kName = "compat::TransformerEncoder";
  /// The layers are deep copies of `encoder_layer`; `norm` is taken as it is, and may be empty.
  TransformerEncoderImpl(const TransformerEncoderLayer& encoder_layer, int64_t num_layers,
                         LayerNorm norm = nullptr);
  explicit TransformerEncoderImpl(TransformerEncoderOptions options_) : options(std::move(options_)) {
    build();
  }

  void reset() override;

  at::Tensor forward(const at::Tensor& src, const at::Tensor& mask = {},
                     const at::Tensor& src_key_padding_mask = {},
                     std::optional<bool> is_causal = std::nullopt);

  TransformerEncoderOptions options;
  torch::nn::ModuleList layers{nullptr};
  LayerNorm norm{nullptr};  ///< empty without the option

 private:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(at::Tensor())}, {2, torch::nn::AnyValue(at::Tensor())},
                           {3, torch::nn::AnyValue(std::optional<bool>())})

  void stack(const TransformerEncoderLayer& layer, LayerNorm last);
};
using TransformerEncoder = ModuleHolder<TransformerEncoderImpl>;

/// Options of `TransformerDecoder`.
struct TransformerDecoderOptions {
  TransformerDecoderOptions(TransformerLayerOptions layer, int64_t num_layers)
      : layer_(std::move(layer)), num_layers_(num_layers) {}

  TORCH_ARG(TransformerLayerOptions, layer);  ///< options of every layer
  TORCH_ARG(int64_t, num_layers);
  TORCH_ARG(std::optional<LayerNormOptions>, norm) = std::nullopt;  ///< norm after the last layer (optional)

  ATTENTIVE_OPTIONS(layer_, num_layers_, norm_);
};

/// Python's `torch.nn.TransformerDecoder`: decoder layers one after another, each of which attends to the
/// same memory, then a norm if there is one.
///
///   tgt (T, N, E), memory (S, N, E); (N, T, E), (N, S, E) with batch_first; (T, E), (S, E) unbatched
///   -> the shape of tgt
///   masks: those of `TransformerDecoderLayer`
///   tgt_is_causal  whether `tgt_mask` is the causal mask; not given: decided, as in Python, by comparing the
///                  two (on CUDA the call then waits for the device)
///
/// Parameters layers.N.* and norm.*. All layers start with the same weights, as in Python: those of the given
/// layer, or of one layer drawn for all of them. Throws c10::ValueError or c10::TypeError that names the bad
/// argument. Memory: that of one layer, with autograd times num_layers. Source: Vaswani et al. 2017; PyTorch
/// 2.11.
///
///   attentive::compat::TransformerDecoderLayer layer(512, 8);
///   attentive::compat::TransformerDecoder decoder(layer, 6);
///   auto y = decoder->forward(tgt, memory, causal_mask);
class TransformerDecoderImpl : public Module<TransformerDecoderImpl> {
 public:
  static constexpr const char* kName = "compat::TransformerDecoder";
  /// The layers are deep copies of `decoder_layer`; `norm` is taken as it is, and may be empty.
  TransformerDecoderImpl(const TransformerDecoderLayer& decoder_layer, int64_t num_layers,
                         LayerNorm norm = nullptr);
  explicit TransformerDecoderImpl(TransformerDecoderOptions options_) : options(std::move(options_)) {
    build();
  }

  void reset() override;

  at::Tensor forward(const at::Tensor& tgt, const at::Tensor& memory, const at::Tensor& tgt_mask = {},
                     const at::Tensor& memory_mask = {}, const at::Tensor& tgt_key_padding_mask = {},
                     const at::Tensor& memory_key_padding_mask = {},
                     std::optional<bool> tgt_is_causal = std::nullopt, bool memory_is_causal = false);

  TransformerDecoderOptions options;
  torch::nn::ModuleList layers{nullptr};
  LayerNorm norm{nullptr};  ///< empty without the option

 private:
  FORWARD_HAS_DEFAULT_ARGS({2, torch::nn::AnyValue(at::Tensor())}, {3, torch::nn::AnyValue(at::Tensor())},
                           {4, torch::nn::AnyValue(at::Tensor())}, {5, torch::nn::AnyValue(at::Tensor())},
                           {6, torch::nn::AnyValue(std::optional<bool>())}, {7, torch::nn::AnyValue(false)})

  void stack(const TransformerDecoderLayer& layer, LayerNorm last);
};
using TransformerDecoder = ModuleHolder<TransformerDecoderImpl>;

/// Options of `Transformer`: the arguments of Python's constructor; `layer` holds those of its layers.
///
///   TransformerOptions(TransformerLayerOptions(512, 8).batch_first(true)).num_encoder_layers(3)
struct TransformerOptions {
  TransformerOptions(int64_t d_model, int64_t nhead) : layer_(d_model, nhead) {}
  explicit TransformerOptions(TransformerLayerOptions layer) : layer_(std::move(layer)) {}

  TORCH_ARG(TransformerLayerOptions,
            layer);  ///< options of every layer; both final norms take their features, eps and bias from it
  TORCH_ARG(int64_t, num_encoder_layers) = 6;
  TORCH_ARG(int64_t, num_decoder_layers) = 6;

  ATTENTIVE_OPTIONS(layer_, num_encoder_layers_, num_decoder_layers_);
};

/// Python's `torch.nn.Transformer`: an encoder of `src`, and a decoder of `tgt` that attends to its output.
/// Both end with a layer norm.
///
///   src (S, N, E), tgt (T, N, E); (N, S, E), (N, T, E) with batch_first; (S, E), (T, E) unbatched
///   -> the shape of tgt
///   src_mask (S, S), tgt_mask (T, T), memory_mask (T, S), or N * nhead of them: bool, **true hides**;
///   floating: added to the scores. src_key_padding_mask (N, S), tgt_key_padding_mask (N, T),
///   memory_key_padding_mask (N, S), or without N if unbatched: read in the same way. src_is_causal,
///   tgt_is_causal, memory_is_causal: the hints of `TransformerEncoder` and `TransformerDecoder`
///
/// Parameters encoder.* and decoder.*; the initial weights for a seed are Python's, which draws every matrix
/// again (`xavier_uniform_`), so that the layers differ. For Python's custom_encoder and custom_decoder, call
/// the two parts one after the other. Throws c10::ValueError or c10::TypeError that names the bad argument.
/// Memory: that of both parts. Source: Vaswani et al. 2017, "Attention Is All You Need"; PyTorch 2.11.
///
///   attentive::compat::Transformer model(512, 8);
///   auto causal = attentive::compat::TransformerImpl::generate_square_subsequent_mask(tgt.size(0));
///   auto y = model->forward(src, tgt, /*src_mask=*/{}, /*tgt_mask=*/causal);
class TransformerImpl : public Module<TransformerImpl> {
 public:
  static constexpr const char* kName = "compat::Transformer";
  explicit TransformerImpl(int64_t d_model = 512, int64_t nhead = 8)
      : TransformerImpl(TransformerOptions(d_model, nhead)) {}
  explicit TransformerImpl(TransformerOptions options_) : options(std::move(options_)) { build(); }

  void reset() override;
  /// Draws every matrix again; vectors (biases and norms) stay.
  void reset_parameters();

  at::Tensor forward(const at::Tensor& src, const at::Tensor& tgt, const at::Tensor& src_mask = {},
                     const at::Tensor& tgt_mask = {}, const at::Tensor& memory_mask = {},
                     const at::Tensor& src_key_padding_mask = {}, const at::Tensor& tgt_key_padding_mask = {},
                     const at::Tensor& memory_key_padding_mask = {},
                     std::optional<bool> src_is_causal = std::nullopt,
                     std::optional<bool> tgt_is_causal = std::nullopt, bool memory_is_causal = false);

  /// The causal mask (size, size) to be added: -inf above the diagonal, 0 elsewhere. The default dtype is
  /// PyTorch's. Throws c10::ValueError for a negative size.
  static at::Tensor generate_square_subsequent_mask(int64_t size, at::TensorOptions options = {});

  TransformerOptions options;
  TransformerEncoder encoder{nullptr};
  TransformerDecoder decoder{nullptr};

 private:
  FORWARD_HAS_DEFAULT_ARGS({2, torch::nn::AnyValue(at::Tensor())}, {3, torch::nn::AnyValue(at::Tensor())},
                           {4, torch::nn::AnyValue(at::Tensor())}, {5, torch::nn::AnyValue(at::Tensor())},
                           {6, torch::nn::AnyValue(at::Tensor())}, {7, torch::nn::AnyValue(at::Tensor())},
                           {8, torch::nn::AnyValue(std::optional<bool>())},
                           {9, torch::nn::AnyValue(std::optional<bool>())}, {10, torch::nn::AnyValue(false)})
};
using Transformer = ModuleHolder<TransformerImpl>;

}  // namespace attentive::compat

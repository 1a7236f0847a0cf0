#pragma once

#include <cstdint>
#include <optional>

#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/modulelist.h>

#include <attentive/compat/layer_norm.h>
#include <attentive/compat/transformer_decoder_layer.h>

namespace attentive::compat {

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
  explicit TransformerDecoderImpl(TransformerDecoderOptions options);

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

}  // namespace attentive::compat

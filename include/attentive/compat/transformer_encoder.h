#pragma once

#include <cstdint>
#include <optional>

#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/modulelist.h>

#include <attentive/compat/layer_norm.h>
#include <attentive/compat/transformer_encoder_layer.h>

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
  explicit TransformerEncoderImpl(TransformerEncoderOptions options);

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

}  // namespace attentive::compat

#pragma once

// Functions shared by the transformer layers and their stacks.

#include <functional>

#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <attentive/compat/multihead_attention.h>
#include <attentive/compat/transformer_layers.h>

#include "compat/inputs.h"

namespace attentive::compat {

void check_layer_options(const char* caller, const TransformerLayerOptions& options);
MultiheadAttentionOptions attention_options(const TransformerLayerOptions& options);
LayerNormOptions norm_options(const TransformerLayerOptions& options);

/// Throws unless `src` and its masks fit a layer of these options; `parameter` is one of its weights.
void check_encoder_call(const char* caller, const TransformerLayerOptions& options,
                        const at::Tensor& parameter, const at::Tensor& src, const CallMasks& masks);

/// Throws unless `tgt`, the memory and their masks fit a decoder layer of these options. `memory_name` is the
/// memory's name in the caller's signature.
void check_decoder_call(const char* caller, const TransformerLayerOptions& options,
                        const at::Tensor& parameter, const at::Tensor& tgt, const char* memory_name,
                        const at::Tensor& memory, const CallMasks& masks, const CallMasks& memory_masks);

/// The length of a sequence: (T, E), or (N, T, E) or (T, N, E) by batch_first.
int64_t tokens_of(const at::Tensor& x, const TransformerLayerOptions& options);

/// Throws unless a norm after layers of these options has their features.
void check_last_norm(const char* caller, const TransformerLayerOptions& options,
                     const std::optional<LayerNormOptions>& norm);

/// Deep copies of a layer, as in Python: with its weights, their requires_grad, and its training mode.
template <class Layer>
torch::nn::ModuleList copies_of(const Layer& layer, int64_t count) {
  torch::nn::ModuleList copies;
  const auto source = layer->parameters();
  for (int64_t n = 0; n < count; ++n) {
    const auto copy = layer->clone();
    const auto parameters = copy->parameters();
    for (size_t i = 0; i < source.size(); ++i) parameters[i].set_requires_grad(source[i].requires_grad());
    copies->push_back(copy);
  }
  return copies;
}

/// Dropout of an attention output (N, T, E) or (T, N, E). Python's batch-first output is a transposed (T, N,
/// E), and random numbers are drawn in memory order, so only this memory layout drops the same elements for a
/// seed.
at::Tensor drop_attention(const TransformerLayerOptions& options, torch::nn::Dropout& dropout,
                          const at::Tensor& output);

/// linear2(dropout(activation(linear1(x))))
at::Tensor feed_forward(const TransformerLayerOptions& options, const at::Tensor& x,
                        torch::nn::Linear& linear1, torch::nn::Dropout& dropout, torch::nn::Linear& linear2);

/// x + block(norm(x)) if norm_first, else norm(x + block(x)).
at::Tensor residual(bool norm_first, const at::Tensor& x, LayerNorm& norm,
                    const std::function<at::Tensor(const at::Tensor&)>& block);

}  // namespace attentive::compat

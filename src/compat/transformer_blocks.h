#pragma once

// What the encoder and the decoder layer share.

#include <functional>

#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <attentive/compat/layer_norm.h>
#include <attentive/compat/multihead_attention.h>
#include <attentive/compat/transformer_layer_options.h>

namespace attentive::compat {

void check_layer_options(const char* who, const TransformerLayerOptions& options);
MultiheadAttentionOptions attention_options(const TransformerLayerOptions& options);
LayerNormOptions norm_options(const TransformerLayerOptions& options);

// Dropout of an attention's output (N, T, E) or (T, N, E). Python's batch-first output is a transposed
// (T, N, E), and random numbers are drawn in memory order: only this layout drops the same elements for a
// seed.
at::Tensor drop_attention(const TransformerLayerOptions& options, torch::nn::Dropout& dropout,
                          const at::Tensor& output);

// linear2(dropout(activation(linear1(x))))
at::Tensor feed_forward(const TransformerLayerOptions& options, const at::Tensor& x,
                        torch::nn::Linear& linear1, torch::nn::Dropout& dropout, torch::nn::Linear& linear2);

// x + block(norm(x)) if norm_first, else norm(x + block(x)).
at::Tensor residual(bool norm_first, const at::Tensor& x, LayerNorm& norm,
                    const std::function<at::Tensor(const at::Tensor&)>& block);

}  // namespace attentive::compat

#pragma once

// Layers and parameters with PyTorch's initial weights, or with undefined values within `NoFirstWeights`.

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <attentive/modules/module.h>

namespace attentive {

/// Whether this thread currently draws initial weights.
bool draws_first_weights();

torch::nn::Linear linear_layer(const torch::nn::LinearOptions& options);
torch::nn::Linear linear_layer(int64_t in_features, int64_t out_features, bool bias = true);
torch::nn::Embedding embedding_layer(int64_t rows, int64_t features);
/// A convolution of each channel by itself, without a bias, that pads for causal reading.
torch::nn::Conv1d causal_convolution_layer(int64_t channels, int64_t kernel);
/// A parameter drawn from the standard normal distribution.
at::Tensor normal_parameter(at::IntArrayRef sizes);

}  // namespace attentive

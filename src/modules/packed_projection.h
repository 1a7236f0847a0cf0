#pragma once

// Queries, keys and values of self-attention in one matrix product, where their weights lie side by side in
// memory. Otherwise three products: never a copy of weights per call.

#include <array>

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/linear.h>

namespace attentive {

using QkvLayers = std::array<torch::nn::Linear, 3>;

// Gives the three layers' weights (and biases) one piece of memory each, in order. The parameters stay the
// same tensors. Does nothing if they differ in dtype or device.
void lay_side_by_side(const QkvLayers& layers);

// x (B, T, features) -> q, k and v as (B, heads, T, head_dim).
std::array<at::Tensor, 3> project_heads(const QkvLayers& layers, const at::Tensor& x, int64_t head_dim);

}  // namespace attentive

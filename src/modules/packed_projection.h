#pragma once

// Projects the queries, keys and values of self-attention by one matrix product if their weights are adjacent
// in memory, else by three. Weights are never copied for a call.

#include <array>

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/linear.h>

namespace attentive {

using QkvLayers = std::array<torch::nn::Linear, 3>;

/// Moves the three layers' weights, in order, into one block of memory, and their biases into another.
/// Without `values`, the new memory is not initialised. The parameters stay the same tensors. Does nothing if
/// they differ in dtype or device.
void make_adjacent(const QkvLayers& layers, bool values = true);

/// x (B, T, features) -> q, k and v as (B, heads, T, head_dim).
std::array<at::Tensor, 3> project_qkv(const QkvLayers& layers, const at::Tensor& x, int64_t head_dim);

}  // namespace attentive

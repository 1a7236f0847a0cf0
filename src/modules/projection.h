#pragma once

// Projections from tokens to heads and back.

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/linear.h>

#include <attentive/modules/transformer_blocks.h>

namespace attentive {

/// x W^T + b (functional/linear.h).
at::Tensor project(const torch::nn::Linear& layer, const at::Tensor& x);

/// (T, features) -> (1, T, features); (B, T, features) unchanged.
at::Tensor batched(const at::Tensor& x);

/// A module's results, without the batch dimension if its input x has none.
std::pair<at::Tensor, at::Tensor> unbatched_like(const at::Tensor& x, const at::Tensor& output,
                                                 const at::Tensor& weights);

/// Projects x (B, T, features) or (T, features) to heads of head_dim numbers: (B, heads, T, head_dim).
at::Tensor project_heads(const torch::nn::Linear& layer, const at::Tensor& x, int64_t head_dim);

/// Projects x by each of the layers, to heads of head_dim numbers. For few rows without gradients, the
/// weights are read by one parallel pass.
std::vector<at::Tensor> project_heads(std::initializer_list<torch::nn::Linear> layers, const at::Tensor& x,
                                      int64_t head_dim);

/// A module's results from its attended context (B, H, T, head_dim) and weights: the context is merged and
/// projected, and the batch dimension is removed if the module's input x has none.
std::pair<at::Tensor, at::Tensor> project_out(const torch::nn::Linear& layer,
                                              const std::pair<at::Tensor, at::Tensor>& attended,
                                              const at::Tensor& x);

/// Applies the activation to each number.
at::Tensor activate(Activation activation, const at::Tensor& x);

/// activate(project(layer, x)), in one pass where this package multiplies x (functional/linear.h).
at::Tensor project_activated(Activation activation, const torch::nn::Linear& layer, const at::Tensor& x);

/// activate(project(gate, x)) * project(up, x), likewise.
at::Tensor project_gated(Activation activation, const torch::nn::Linear& gate, const torch::nn::Linear& up,
                         const at::Tensor& x);

}  // namespace attentive

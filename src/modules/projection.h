#pragma once

// Projections from tokens to heads and back.

#include <cstdint>
#include <utility>

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/linear.h>

namespace attentive {

/// x W^T + b (functional/linear.h).
at::Tensor project(const torch::nn::Linear& layer, const at::Tensor& x);

/// (T, features) -> (1, T, features); (B, T, features) unchanged.
at::Tensor batched(const at::Tensor& x);

/// A module's results, without the batch dimension if its input x has none.
std::pair<at::Tensor, at::Tensor> unbatched_like(const at::Tensor& x, const at::Tensor& output,
                                                 const at::Tensor& weights);

/// Projects x (B, T, features) or (T, features) to (B, num_heads, T, head_dim).
at::Tensor project_heads(const torch::nn::Linear& layer, const at::Tensor& x, int64_t num_heads);

/// A module's results from its attended context (B, H, T, head_dim) and weights: the context is merged and
/// projected, and the batch dimension is removed if the module's input x has none.
std::pair<at::Tensor, at::Tensor> project_out(const torch::nn::Linear& layer,
                                              const std::pair<at::Tensor, at::Tensor>& attended,
                                              const at::Tensor& x);

}  // namespace attentive

#pragma once

// The option `position_bias` of the attention layers, and what the modules of biases share.

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <attentive/functional/attention.h>
#include <attentive/modules/position_bias.h>

namespace attentive {

/// Builds the module that the option asks for; null for none. Throws c10::ValueError, whose message begins
/// with `caller`, for another number of heads than the layer's.
std::shared_ptr<torch::nn::Module> make_position_bias(const char* caller, const PositionBiasOptions& options,
                                                      int64_t num_heads);

/// Throws c10::ValueError if the bias is for another number of tokens.
void check_position_bias_tokens(const char* caller, const PositionBiasOptions& options, int64_t tokens);

/// Throws c10::ValueError if the bias cannot be used with a cache.
void check_position_bias_cache(const char* caller, const PositionBiasOptions& options);

/// Values by difference -> one value for each pair (query i, key j): dimension `dim`, of size queries + keys
/// - 1, becomes i, and j is appended. Pair (i, j) reads value j - i + queries - 1. Neither number may be 0.
at::Tensor by_difference(const at::Tensor& values, int64_t dim, int64_t keys);

/// A parameter in the dtype in which its gradients are summed: float32 for half types.
at::Tensor summed_wide(const at::Tensor& parameter);

/// Adds the bias to a call, in the form that costs the least memory.
void add_position_bias(torch::nn::Module& bias, int64_t queries, int64_t keys, AttentionExtras& extras);

}  // namespace attentive

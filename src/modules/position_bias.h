#pragma once

// The option `position_bias` of the attention layers.

#include <cstdint>
#include <memory>

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

/// Adds the bias to a call, in the form that costs the least memory.
void add_position_bias(torch::nn::Module& bias, int64_t queries, int64_t keys, AttentionExtras& extras);

}  // namespace attentive

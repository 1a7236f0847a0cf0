#pragma once

// What the modules share: their linear layers and the checks of their input.

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/linear.h>

namespace attentive {

// x W^T + b by the fused at::linear: equal to Python's bit for bit, which C++ `nn::Linear::forward` is not on
// 3-D input.
at::Tensor project(const torch::nn::Linear& layer, const at::Tensor& x);

// Throws unless x is (T, features) or (B, T, features) with the dtype and device of `parameter`. Under
// autocast the dtype may differ.
void check_sequence(const char* who, const char* name, const at::Tensor& x, int64_t features,
                    const at::Tensor& parameter);

// Throws if context_length > 0 and tokens exceed it.
void check_context(const char* who, int64_t tokens, int64_t context_length);

// Throws unless the value is at least 1.
void check_positive(const char* who, const char* name, int64_t value);

// Throws unless 1 <= num_heads and it divides `features`.
void check_heads(const char* who, const char* name, int64_t features, int64_t num_heads);

}  // namespace attentive

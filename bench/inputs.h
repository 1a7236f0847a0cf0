#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "support/runner.h"

namespace bench {

struct Shape {
  int64_t B, H, T, D;
};

inline constexpr at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16};

std::string type_name(at::ScalarType type);
Limit limit_of(at::ScalarType type);
std::string token_count(int64_t tokens);  ///< 1024 -> "1k"

struct Qkv {
  at::Tensor q, k, v;
};

/// Normal numbers from a fixed seed, laid out (B, H, T, D).
Qkv make_qkv(const Shape& shape, at::ScalarType type, bool gradients = false);

/// Exact flops of one forward pass, both products; causal: of the triangle that is seen.
double attention_flops(const Shape& shape, bool causal);
/// The same for a causal window of `width` keys.
double window_flops(const Shape& shape, int64_t width);
/// Forward and backward together: the backward pass has five products to the forward pass's two.
inline constexpr double kWithBackward = 3.5;

/// Runs `forward`, then the backward pass for a fixed output gradient; returns the output and the gradients.
std::function<Tensors()> with_backward(const Qkv& inputs, const at::Tensor& grad_output,
                                       std::function<at::Tensor()> forward);

/// Attention from single tensor operations, as the chapter-3 notebook writes it.
at::Tensor composed(const Qkv& inputs, bool causal, double dropout_p);

/// PyTorch's own function, causal or not, without anything else.
at::Tensor sdpa(const Qkv& inputs, bool causal, double dropout_p = 0.0);

}  // namespace bench

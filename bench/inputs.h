#pragma once

#include <functional>
#include <optional>
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
Qkv make_qkv(const Shape& shape, at::ScalarType type, bool gradients = false, at::Device device = at::kCPU);

/// Exact flops of one forward pass, both products; causal: of the triangle that is seen.
double attention_flops(const Shape& shape, bool causal);
/// The same for a causal window of `width` keys.
double window_flops(const Shape& shape, int64_t width);
/// Forward and backward together: the backward pass has five products to the forward pass's two.
inline constexpr double kWithBackward = 3.5;

/// Runs `forward`, then the backward pass for a fixed output gradient; returns the output and the gradients.
std::function<Tensors()> with_backward(const Qkv& inputs, const at::Tensor& grad_output,
                                       std::function<at::Tensor()> forward);

/// (tokens, tokens), true where a causal query may not see a key, or not in a window of `width` keys.
at::Tensor hidden_by(int64_t tokens, std::optional<int64_t> width, at::Device device);
/// Adds -slope * distance to the scores: (1, H, T, T), float32.
at::Tensor alibi_bias(const at::Tensor& slopes, int64_t tokens);

/// What single tensor operations are told beside q, k and v.
struct Composition {
  at::Tensor hidden = {};  ///< true: the pair counts for nothing; broadcasts to (B, H, L, S)
  at::Tensor bias = {};    ///< likewise, added to the scores
  at::Tensor sinks = {};   ///< (H)
  double softcap = 0.0;    ///< 0: none
  double dropout_p = 0.0;
};

/// Attention from single tensor operations, as the chapter-3 notebook writes it.
at::Tensor composed(const Qkv& inputs, const Composition& composition);
at::Tensor composed(const Qkv& inputs, bool causal, double dropout_p);

/// Causal attention with dropout, forward and backward: other implementations draw other numbers, so ours is
/// compared with the composed definition on the same `Counter` stream. Two heads say as much as all.
Check same_drops(const Qkv& inputs, const at::Tensor& grad_output, double dropout_p);

/// PyTorch's own function, causal or not, without anything else.
at::Tensor sdpa(const Qkv& inputs, bool causal, double dropout_p = 0.0);

}  // namespace bench

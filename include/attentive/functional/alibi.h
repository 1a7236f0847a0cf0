#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace attentive {

/// The standard ALiBi slopes of num_heads heads, 2^(-8 h / num_heads) for h = 1 .. num_heads, as a float32
/// tensor of shape (num_heads), for `AttentionExtras::alibi_slopes`.
///
/// For a power of two these are the paper's slopes. For other numbers of heads the paper's code interpolates
/// between two powers of two, whereas this function applies the same formula.
/// Throws c10::ValueError unless num_heads > 0.
/// Source: Press et al. 2022, "Train Short, Test Long", section 3.
///
///   auto y = attentive::attention(q, k, v, {}, {.alibi_slopes = attentive::alibi_slopes(8)}).output;
at::Tensor alibi_slopes(int64_t num_heads, at::Device device = at::kCPU);

}  // namespace attentive

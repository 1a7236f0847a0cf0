#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace attentive {

/// The standard ALiBi slopes of num_heads heads: 2^(-8 h / num_heads) for h = 1 .. num_heads, float32
/// (num_heads), for `AttentionExtras::alibi_slopes`.
///
/// Equal to the paper's for every power of two; for other numbers of heads the paper's code interpolates,
/// this formula goes on. Throws c10::ValueError unless num_heads > 0.
/// Source: Press et al. 2022, "Train Short, Test Long", section 3.
///
///   auto y = attentive::attention(q, k, v, {}, {.alibi_slopes = attentive::alibi_slopes(8)}).output;
at::Tensor alibi_slopes(int64_t num_heads, at::Device device = at::kCPU);

}  // namespace attentive

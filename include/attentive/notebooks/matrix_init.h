#pragma once

#include <cstdint>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace attentive {

/// Initial values of a projection that is a plain (d_in, d_out) matrix.
///   Uniform         uniform in [0, 1): what the chapter-3 notebook's `SelfAttention_v1` draws
///   Normal          mean 0, variance 1: what its quoted `SelfAttention(d_model, d_k)` draws
///   KaimingUniform  uniform in [-b, b) with b = 1 / sqrt(d_in): the distribution of an `nn::Linear` weight
///
///   attentive::SelfAttentionV1 attention(
///       attentive::SelfAttentionV1Options(3, 2).init(attentive::MatrixInit::Normal));
enum class MatrixInit { Uniform, Normal, KaimingUniform };

std::string_view to_string(MatrixInit value);

/// Draws a (d_in, d_out) matrix on the CPU in the default dtype, as Python does. Both sizes are positive.
///
///   auto W = attentive::draw_matrix(3, 2, attentive::MatrixInit::Uniform);
at::Tensor draw_matrix(int64_t d_in, int64_t d_out, MatrixInit init);

}  // namespace attentive

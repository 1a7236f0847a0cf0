#pragma once

namespace attentive {

/// How a projection that is a plain (d_in, d_out) matrix gets its first numbers. Drawn on the CPU in the
/// default dtype, as Python draws them.
///   Uniform         uniform in [0, 1): what the chapter-3 notebook's `SelfAttention_v1` draws
///   Normal          mean 0, variance 1: what its quoted `SelfAttention(d_model, d_k)` draws
///   KaimingUniform  uniform within 1 / sqrt(d_in) of 0: the distribution of an `nn::Linear` weight
///
///   attentive::SelfAttentionV1 attention(
///       attentive::SelfAttentionV1Options(3, 2).init(attentive::MatrixInit::Normal));
enum class MatrixInit { Uniform, Normal, KaimingUniform };

}  // namespace attentive

#pragma once

// Vector code for the gated delta rule.

#include "kernels/simd/matrix.h"
#include "kernels/simd/vector_code.h"

namespace attentive::kernels::cpu {

/// The tokens of a chunk that a product of it takes at a time: the diagonal blocks of its triangles.
constexpr int64_t kDeltaBlock = 16;

/// One diagonal block of a chunk with gates per channel, of at most kDeltaBlock tokens. A matrix has a row
/// per token; `factors` are exp(gate).
struct ChannelBlock {
  Matrix<const float> q, r, k, factors;
  Matrix<const float> grad_scores, grad_system;
  Matrix<float> grad_q, grad_r, grad_k, grad_gate;
};

struct DeltaFunctions {
  /// factors = exp(gates), exactly 0 where that is less than any normal number
  void (*decays)(const float* gates, float* factors, int64_t n);
  /// to(i, j) = factors[j + 1] ... factors[i] for j <= i, else 0
  void (*decays_of_pairs)(const float* factors, const Matrix<float>& to);
  /// x(i, j) = x(i, j) * decays(i, j) for j < i + diagonal, else 0; `decays` may be empty
  void (*take_lower)(const Matrix<const float>& decays, int64_t diagonal, const Matrix<float>& x);
  /// to += x * y
  void (*add_products)(const float* x, const float* y, float* to, int64_t n);
  /// to = (gradient - unit (unit . gradient)) * inverse_norm, the gradient of what was divided by its norm
  void (*norm_gradient)(const float* unit, const float* gradient, float inverse_norm, float* to, int64_t n);

  /// Solves x = given + L x, or x = given + L^T x, in place, for a strictly lower L of at most kDeltaBlock
  /// rows.
  void (*solve)(const Matrix<const float>& lower, const Matrix<float>& x);
  void (*solve_transposed)(const Matrix<const float>& lower, const Matrix<float>& x);

  /// The gradients of the gates of a chunk. `ends[j]` is the gradient of the logarithm of key j's decay to
  /// the end of the chunk, starts[i] that of the state's decay to token i, and starts[n] to the end. `ends`
  /// is overwritten.
  void (*gate_gradients)(const Matrix<const float>& scores, const Matrix<const float>& grad_scores,
                         const Matrix<const float>& system, const Matrix<const float>& grad_system,
                         const float* starts, float* ends, float* gates);

  /// scores(i, j) and system(i, j) of a diagonal block: q_i and r_i times k_j, decayed in between. `k` is
  /// decayed to the end of the block.
  void (*channel_block)(const Matrix<const float>& q, const Matrix<const float>& r,
                        const Matrix<const float>& factors, const Matrix<float>& k,
                        const Matrix<float>& scores, const Matrix<float>& system);
  /// Adds to the gradients of q and r. grad_k, that of the keys at the end of the block, becomes that of the
  /// keys; grad_gate receives the part of decays inside the block.
  void (*channel_block_gradients)(const ChannelBlock& block);

  /// For one token: found = k^T S and read = q^T S. Here and in `update`, half of `next`, another state of
  /// the same strides, is fetched unless it is null: memory would be idle.
  void (*look_up)(const Matrix<const float>& state, const float* k, const float* q, const float* next,
                  float* found, float* read);
  /// to = factors S + k change^T, a factor per row; `to` may be the state
  void (*update)(const Matrix<const float>& state, const float* factors, const float* k, const float* change,
                 const float* next, const Matrix<float>& to);
};

inline const DeltaFunctions& delta_functions() {
  return *vector_code().delta;
}

}  // namespace attentive::kernels::cpu

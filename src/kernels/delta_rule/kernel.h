#pragma once

// The gated delta rule on the CPU, in chunks of tokens. Of one head, with S the state before a chunk, its
// tokens i, j, decays a_i = exp(gate_i), and r_i = -k_i:
//
//   D_ij = a_{j+1} ... a_i                decays from token to token
//   P_ij = q_i . k_j D_ij,  j <= i        what query i reads of key j
//   N_ij = r_i . k_j D_ij,  j < i         what key i takes away of key j
//   b_i  = a_1 ... a_i,  e_j = D_nj       decays from the start, and to the end
//
//   X = V + (b r) S + N U,  U = beta X    a triangular system for X: what each token adds
//   O = scale ((b q) S + P U)
//   S = b_n S + (e k)^T U
//
// The backward pass keeps S and X of every chunk of one head, and has, with Y = beta Z and dS that of the
// state after the chunk:
//
//   Z  = P^T dO + (e k) dS + N^T Y        the transposed system; Z is the gradient of U
//   dP = dO U^T,  dN = Y U^T,  d(e k) = U dS^T,  dbeta = rowsum(Z X),  dV = Y
//   dq = (D dP) k + b dO S^T,  dr = (D dN) k + b Y S^T,  dk = (D dP)^T q + (D dN)^T r + e d(e k) - dr
//   dS = b_n dS + (b q)^T dO + (b r)^T Y
//
// Every decay is a product of factors, and the gradient of gate t sums the terms of all pairs j < t <= i, so
// that nothing is divided by a decay and no sum is subtracted from another.

#include <cstdint>

#include "kernels/call.h"

namespace attentive::kernels::cpu {

/// A call, as numbers and pointers. Strides count elements; rows of q, k, v and of gates per channel are
/// contiguous. Pointers to what is absent are null.
template <class T>
struct DeltaCall {
  int64_t sequences = 0, heads = 0, group = 1, Dk = 0, Dv = 0;
  int64_t tokens = 0;                ///< of every sequence, unless they are packed:
  const int64_t* offsets = nullptr;  ///< (sequences + 1), in one batch item
  float scale = 1.0f;
  bool normalize = false;
  float eps = 0.0f;
  bool delta = true;
  bool channel_gates = false;

  Strided<const T> q, k, v;
  Strided<const float> gate, beta;
  const float* state = nullptr;  ///< (sequences, heads, Dk, Dv)

  int64_t item(int64_t sequence) const { return offsets ? 0 : sequence; }
  int64_t first(int64_t sequence) const { return offsets ? offsets[sequence] : 0; }
  int64_t length(int64_t sequence) const {
    return offsets ? offsets[sequence + 1] - offsets[sequence] : tokens;
  }
  bool worth_threads() const { return tokens * sequences * heads * Dk * Dv > (int64_t{1} << 18); }
};

/// The gradients of the results, and where those of the tensors are written.
template <class T>
struct DeltaGradients {
  Strided<const T> output;       ///< may be absent
  const float* state = nullptr;  ///< likewise

  Strided<float> q, k;  ///< (B, Hv, T, Dk): of each value head
  Strided<T> v;
  Strided<float> gate, beta;  ///< as those of the call; absent ones are not wanted
  float* grad_state = nullptr;
};

/// Writes the output and the states after the last tokens, which may be where the first states are.
template <class T>
void delta_forward(const DeltaCall<T>& call, const Strided<T>& output, float* last_state);

template <class T>
void delta_backward(const DeltaCall<T>& call, const DeltaGradients<T>& gradients);

}  // namespace attentive::kernels::cpu

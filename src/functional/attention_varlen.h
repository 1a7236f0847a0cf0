#pragma once

// The sequences of a packed call, for `attention_varlen` and for its operator.

#include <vector>

#include <attentive/functional/attention.h>

#include "kernels/problem.h"

namespace attentive {

struct PackedCall {
  kernels::Problem whole;                   ///< all tokens as one batch item: (1, H, Tq, D), (1, Hkv, Tk, D)
  std::vector<kernels::Problem> sequences;  ///< each a batch of one, without a dropout key
  bool none = false;                ///< whether there is no sequence; `sequences` then holds an empty one
  Backend backend = Backend::Auto;  ///< the call's, or Auto if there is no sequence
};

/// Checks a call of `attention_varlen` and divides it. Throws what that function throws.
PackedCall packed_call(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const at::Tensor& cu_seqlens_q, const at::Tensor& cu_seqlens_k,
                       const AttentionOptions& options, const AttentionExtras& extras);

}  // namespace attentive

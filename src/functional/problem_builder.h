#pragma once

// Validates a public attention call and converts it to its normal form. Every mistake of a caller is reported
// here, under the caller's name.

#include <attentive/functional/attention.h>

#include "kernels/problem.h"

namespace attentive {

struct NormalizedCall {
  kernels::Problem problem;
  at::DimVector leading;  ///< sizes of q before (L, D), which the results get back
};

/// Validates and converts a call. Throws c10::ValueError or c10::TypeError whose message begins with
/// `caller`.
NormalizedCall normalize(const char* caller, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const AttentionOptions& options, const AttentionExtras& extras);

/// Takes what the scores and their visibility depend on from checked options, for a problem with q, k and
/// lengths.
void take_options(const AttentionOptions& options, kernels::Problem& problem);

/// Checks the options alone, so that a module can refuse them when it is built.
void check_options(const char* caller, const AttentionOptions& options);

/// Checks options that a module stores, whose dropout_p must stay 0, and its context length.
void check_module_options(const char* caller, const AttentionOptions& options, int64_t context_length);

// A packed call as one problem, for `attention_varlen` and for its operator.

struct PackedCall {
  kernels::Problem problem;         ///< packed, without a dropout key
  bool none = false;                ///< whether there is no sequence; the problem then holds an empty one
  Backend backend = Backend::Auto;  ///< the call's, or Auto if there is no sequence
};

/// Checks a call of `attention_varlen`. Throws what that function throws.
PackedCall packed_call(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const at::Tensor& cu_seqlens_q, const at::Tensor& cu_seqlens_k,
                       const AttentionOptions& options, const AttentionExtras& extras);

}  // namespace attentive

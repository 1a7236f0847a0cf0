#pragma once

// Validation of a public attention call and its normal form. Every mistake of a caller ends here, by name.

#include <attentive/functional/attention.h>

#include "kernels/problem.h"

namespace attentive {

struct NormalizedCall {
  kernels::Problem problem;
  at::DimVector leading;  // sizes of q in front of (L, D): the shape that the results get back
};

// Throws c10::ValueError or c10::TypeError prefixed with `who`.
NormalizedCall normalize(const char* who, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const AttentionOptions& options, const AttentionExtras& extras);

// Causality and window of checked options, for sequences of these lengths.
kernels::Band band_of(const AttentionOptions& options, int64_t queries, int64_t keys);

// The band of a part whose queries begin `by` positions further among its keys.
kernels::Band shifted(kernels::Band band, int64_t by, int64_t queries, int64_t keys);

// Checks options alone, so that a module can refuse them when it is built.
void check_options(const char* who, const AttentionOptions& options);

// The same for options that a module stores, whose dropout_p must stay 0, and for its context length.
void check_module_options(const char* who, const AttentionOptions& options, int64_t context_length);

}  // namespace attentive

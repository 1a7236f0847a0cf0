#pragma once

// Checks of the options and inputs of modules. Every function throws c10::ValueError, or c10::TypeError for a
// dtype, whose message begins with `caller`. The comments state the requirement.

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "core/check.h"

namespace attentive {

/// `value` is in [1, 2^48]. The limit exceeds any memory, and small multiples of it do not overflow.
void check_positive(const char* caller, const char* name, int64_t value);

/// `value`, a number of tokens, is in [0, 2^48].
void check_length(const char* caller, const char* name, int64_t value);

/// `value`, the number of equal parts that a module builds, is in [1, 2^20].
void check_count(const char* caller, const char* name, int64_t value);

/// `heads` is positive and divides `features`.
void check_heads(const char* caller, const char* name, int64_t features, int64_t heads,
                 const char* heads_name = "num_heads");

/// The eps of a norm is finite and not negative.
void check_eps(const char* caller, double eps);

/// x has the dtype of `parameter`, unless autocast is on.
void check_dtype(const char* caller, const char* name, const at::Tensor& x, const at::Tensor& parameter);

/// x is (T, features) or (B, T, features), on the device of `parameter` and, unless autocast is on, of its
/// dtype.
void check_sequence(const char* caller, const char* name, const at::Tensor& x, int64_t features,
                    const at::Tensor& parameter);

/// x is (..., features) on the device of a norm's `parameter`, with a dtype that a layer norm accepts: that
/// of the parameter, or a half type if the parameter is float32, or any under CUDA's autocast.
void check_norm_input(const char* caller, const at::Tensor& x, int64_t features, const at::Tensor& parameter);

/// Two checked sequences both have a batch dimension of the same size, or neither has one.
void check_same_batch(const char* caller, const char* name, const at::Tensor& x, const char* other_name,
                      const at::Tensor& other);

/// Tokens are int64 or int32 of shape (B, T).
void check_tokens(const char* caller, const char* name, const at::Tensor& tokens);

/// Every index is in [0, rows). An embedding itself would only say that some index is out of range, and on a
/// GPU would abort the process.
void check_indices(const char* caller, const char* name, const at::Tensor& indices, int64_t rows);

/// There are at most context_length tokens; 0 means no limit.
void check_context(const char* caller, int64_t tokens, int64_t context_length);

}  // namespace attentive

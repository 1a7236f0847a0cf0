#pragma once

// What modules demand of their options and inputs. Every function throws c10::ValueError, or c10::TypeError
// for a dtype, prefixed with `who`.

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "core/check.h"

namespace attentive {

// In [1, 2^48]: more numbers than any memory holds, and few enough that small multiples do not overflow.
void check_positive(const char* who, const char* name, int64_t value);

// The number of equal parts that a module builds: in [1, 2^20].
void check_count(const char* who, const char* name, int64_t value);

// `heads` is positive and divides `features`.
void check_heads(const char* who, const char* name, int64_t features, int64_t heads,
                 const char* heads_name = "num_heads");

// The eps of a norm: finite and not negative.
void check_eps(const char* who, double eps);

// x is, outside autocast, of the dtype of `parameter`.
void check_dtype(const char* who, const char* name, const at::Tensor& x, const at::Tensor& parameter);

// x is (T, features) or (B, T, features), on the device of `parameter` and, outside autocast, of its dtype.
void check_sequence(const char* who, const char* name, const at::Tensor& x, int64_t features,
                    const at::Tensor& parameter);

// x is (..., features) on the device of a norm's `parameter`, and of a dtype that a layer norm takes: that of
// the parameter, or a half type where the parameter is float32. CUDA's autocast takes any.
void check_norm_input(const char* who, const at::Tensor& x, int64_t features, const at::Tensor& parameter);

// Two sequences, each already checked, both have a batch dimension of one size, or neither has one.
void check_same_batch(const char* who, const char* name, const at::Tensor& x, const char* other_name,
                      const at::Tensor& other);

// Tokens as int64 or int32 of shape (B, T).
void check_tokens(const char* who, const char* name, const at::Tensor& tokens);

// Every index is a row of a table. An embedding would only say that an index is out of range; on a GPU it
// ends the process.
void check_indices(const char* who, const char* name, const at::Tensor& indices, int64_t rows);

// At most context_length tokens; 0 means no limit.
void check_context(const char* who, int64_t tokens, int64_t context_length);

}  // namespace attentive

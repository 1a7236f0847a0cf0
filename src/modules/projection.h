#pragma once

// What the modules share: their projections, the call of attention(), and the checks of their input.

#include <cstdint>
#include <utility>

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/linear.h>

#include <attentive/functional/attention.h>
#include <attentive/modules/matrix_init.h>

namespace attentive {

// x W^T + b (functional/linear.h).
at::Tensor project(const torch::nn::Linear& layer, const at::Tensor& x);

// First numbers of a projection that is a plain (d_in, d_out) matrix: of the default dtype, drawn on the CPU.
at::Tensor draw_matrix(int64_t d_in, int64_t d_out, MatrixInit init);
const char* to_string(MatrixInit init);

// attention() with a module's options and dropout probability, which is 0 outside training.
AttentionResult attend(const AttentionOptions& options, double dropout_p, const at::Tensor& q,
                       const at::Tensor& k, const at::Tensor& v, const Mask& mask, Weights which);

// The same with every extra tensor.
AttentionResult attend(const AttentionOptions& options, double dropout_p, const at::Tensor& q,
                       const at::Tensor& k, const at::Tensor& v, const AttentionExtras& extras);

// The extras of a module with ALiBi (standard slopes) and learned sinks (undefined: none).
AttentionExtras head_extras(bool alibi, const at::Tensor& sinks, int64_t num_heads, at::Device device,
                            const Mask& mask, Weights which);

// Throws if a module asks for learned sinks and for the constant one of softmax_plus_one.
void check_head_extras(const char* who, const AttentionOptions& options, bool sinks);

// (T, features) -> (1, T, features); (B, T, features) as it is.
at::Tensor batched(const at::Tensor& x);
// Takes the batch dimension that `batched` added to x off a module's results.
std::pair<at::Tensor, at::Tensor> unbatched_like(const at::Tensor& x, const at::Tensor& output,
                                                 const at::Tensor& weights);

// Throws unless x is (T, features) or (B, T, features) with the dtype and device of `parameter`. Under
// autocast the dtype may differ.
void check_sequence(const char* who, const char* name, const at::Tensor& x, int64_t features,
                    const at::Tensor& parameter);

// Throws unless x is (..., features) on the device of a norm's `parameter`, with its dtype or half of
// float32's width where the parameter is float32: what a layer norm takes. CUDA's autocast takes any.
void check_norm_input(const char* who, const at::Tensor& x, int64_t features, const at::Tensor& parameter);

// Throws unless both sequences (already checked one by one) have a batch dimension or both lack it, and their
// batch sizes agree.
void check_same_batch(const char* who, const char* name, const at::Tensor& x, const char* other_name,
                      const at::Tensor& other);

// Throws if context_length > 0 and tokens exceed it.
void check_context(const char* who, int64_t tokens, int64_t context_length);

// Throws unless the value is in [1, 2^48]: more numbers than any memory holds, and few enough that small
// multiples do not overflow.
void check_positive(const char* who, const char* name, int64_t value);

// Throws unless the number of equal parts that a module builds is in [1, 2^20].
void check_count(const char* who, const char* name, int64_t value);

// Throws unless 1 <= num_heads and it divides `features`.
void check_heads(const char* who, const char* name, int64_t features, int64_t num_heads,
                 const char* heads_name = "num_heads");

}  // namespace attentive

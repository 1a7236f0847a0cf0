#pragma once

// The arguments of the operators. They lie on PyTorch's stack in the order of the schemas, which are written
// here as well.

#include <string>

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <attentive/functional/attention.h>

namespace attentive::operators {

/// Which function an operator computes: `attention`, or `attention_varlen` for packed sequences.
enum class Kind { Padded, Packed };

/// The name of that function, which is that of its operator.
const char* name_of(Kind kind);

/// The arguments of a call. A tensor that was not given is undefined.
struct CallArguments {
  at::Tensor q, k, v;
  at::Tensor cu_seqlens_q, cu_seqlens_k;  ///< for packed sequences
  at::Tensor keep, bias, key_keep, key_lengths, query_lengths;
  at::Tensor alibi_slopes, sinks;
  /// The random numbers of dropout: one int64, or the state of a CPU generator for the Aten stream.
  at::Tensor dropout_key;
  AttentionOptions options;  ///< the dropout stream is Counter or Aten
  Weights weights = Weights::None;
  bool logsumexp = false;
  bool for_backward = false;  ///< whether the statistics that the backward operator reads are returned

  AttentionExtras extras() const;
};

/// The tensors that a call may be differentiated by, and all its tensors.
inline constexpr at::Tensor CallArguments::*kDifferentiable[] = {&CallArguments::q,
                                                                 &CallArguments::k,
                                                                 &CallArguments::v,
                                                                 &CallArguments::bias,
                                                                 &CallArguments::alibi_slopes,
                                                                 &CallArguments::sinks};
inline constexpr at::Tensor CallArguments::*kTensors[] = {&CallArguments::q,
                                                          &CallArguments::k,
                                                          &CallArguments::v,
                                                          &CallArguments::bias,
                                                          &CallArguments::alibi_slopes,
                                                          &CallArguments::sinks,
                                                          &CallArguments::cu_seqlens_q,
                                                          &CallArguments::cu_seqlens_k,
                                                          &CallArguments::keep,
                                                          &CallArguments::key_keep,
                                                          &CallArguments::key_lengths,
                                                          &CallArguments::query_lengths,
                                                          &CallArguments::dropout_key};

/// The results of a call. One that was not asked for is an empty tensor, since an operator cannot return an
/// undefined one.
struct Results {
  at::Tensor output, weights, logsumexp;
  at::Tensor statistics;  ///< (2, B, H, L), packed (2, H, Tq): maxima and totals of the rows
};

/// The arguments of a backward operator. The incoming gradients may be undefined.
struct BackwardArguments {
  CallArguments call;
  at::Tensor output, statistics;  ///< results of the call
  AttentionResult incoming;
  bool want_bias = false, want_alibi_slopes = false, want_sinks = false;
};

/// The gradients of a call. One that is not wanted is an empty tensor.
struct Gradients {
  at::Tensor q, k, v, bias, alibi_slopes, sinks;
};

/// The schema of an operator.
std::string forward_schema(Kind kind);
std::string backward_schema(Kind kind);
std::string explain_schema();

/// The name of a backward operator, with its namespace.
const char* backward_name(Kind kind);

/// Takes the arguments off the stack. Throws c10::ValueError for the name of an option that does not exist.
CallArguments pop_call(Kind kind, torch::jit::Stack& stack);
CallArguments pop_explained(torch::jit::Stack& stack);
BackwardArguments pop_backward(Kind kind, torch::jit::Stack& stack);

void push(Kind kind, const CallArguments& call, torch::jit::Stack& stack);
void push(Kind kind, const BackwardArguments& arguments, torch::jit::Stack& stack);
void push(Kind kind, const Results& results, torch::jit::Stack& stack);
void push(Kind kind, const Gradients& gradients, torch::jit::Stack& stack);

Results pop_results(Kind kind, torch::jit::Stack& stack);
Gradients pop_gradients(Kind kind, torch::jit::Stack& stack);

}  // namespace attentive::operators

#pragma once

// The native kernel on tensors, without autograd.

#include <ATen/core/Tensor.h>

#include "kernels/arguments_of_problem.h"
#include "kernels/attention/call.h"
#include "kernels/captured_inputs.h"

namespace attentive::kernels::native_cpu {

/// The functions of pairs that a problem brings, and its captured tensors as vector code reads them.
struct PreparedFunctions {
  PreparedFunctions() = default;
  explicit PreparedFunctions(const Problem& problem);
  /// A copy with other numbers of the captured tensors.
  PreparedFunctions with_numbers(const at::Tensor* numbers) const;

  ScoreMod score;
  MaskMod mask;
  std::shared_ptr<const attentive::detail::BlockClasses> blocks;
  std::vector<CapturedInput> captured;
  std::vector<attentive::detail::CapturedView> views;
};

/// `functions` must live as long as the result.
cpu::CpuArguments call_of(const Scalars& scalars, const MaskTensors& masks, at::ScalarType type,
                          const PreparedFunctions& functions = {}, bool normalise = true);

/// The classes of the tiles of a problem's mask function, which there must be.
std::shared_ptr<const attentive::detail::BlockClasses> classify(const Problem& problem);

/// Makes the rows of q, k, v or an incoming gradient contiguous, as the kernel reads them.
at::Tensor with_unit_stride(const at::Tensor& x);

/// (B, H, L, D), in the memory layout that `with_unit_stride` returns.
struct Inputs {
  at::Tensor q, k, v;
};

Inputs inputs_of(const Problem& problem);

/// A problem as the kernel reads it, with the key of its dropout, without protection from later changes.
struct PreparedCall {
  PreparedCall(const Problem& problem, uint64_t dropout_key);

  Arguments owned;  ///< the tensors that `call` points to
  cpu::CpuArguments call;
  Inputs in;
};

struct Computed {
  at::Tensor output, logsumexp;
  at::Tensor statistics;    ///< (2, B, H, L): maxima and totals
  at::Tensor weights = {};  ///< (B, H, L, S)
};

/// Which results are computed besides the output.
struct Results {
  bool logsumexp = false, statistics = false;
  Weights weights = Weights::None;
};

/// The output is written to `output`, whose rows must be contiguous; if that is undefined, it lies in memory
/// as (B, L, H, D). The other results are undefined unless they are wanted.
Computed compute(const cpu::CpuArguments& call, const Inputs& in, const Results& wanted,
                 const at::Tensor& output = {});

/// The incoming gradients of the results; those of the logsumexp and of the weights may be undefined.
struct Incoming {
  at::Tensor output, logsumexp, weights;
  bool of_dropped = false;  ///< whether the weights are those after dropout
};

/// Converts the gradients of a call's results, which may be undefined, to those that the kernel reads. Those
/// of an output that was not used are 0. `weights` says which weights the call returned.
Incoming incoming_of(const AttentionResult& gradients, const at::Tensor& output, Weights weights);

/// Which gradients are computed besides those of q, k and v.
struct Wanted {
  bool sinks = false;
  at::DimVector bias, slopes;             ///< the sizes of the problem's bias and slopes; empty: not wanted
  at::ScalarType bias_type = at::kFloat;  ///< of the gradient: float32 or the type of q
  const PreparedFunctions* captured =
      nullptr;  ///< the gradients of its floating-point tensors; null: not wanted

  /// Asks for the gradient of a bias of a call whose q is of this type.
  void want_bias(const at::Tensor& given, at::ScalarType q) {
    bias = given.sizes();
    bias_type = given.scalar_type() == q ? q : at::kFloat;
  }
};

struct Gradients {
  at::Tensor q, k, v, sinks, bias, slopes;
  std::vector<at::Tensor> captured = {};  ///< float32, one per captured tensor; undefined for indices
};

/// The gradients of what a differentiated call computed. Without its weights, those that have an incoming
/// gradient are computed again.
Gradients compute_gradients(const cpu::CpuArguments& call, const Inputs& in, const Computed& out,
                            const Incoming& incoming, const Wanted& wanted);

}  // namespace attentive::kernels::native_cpu

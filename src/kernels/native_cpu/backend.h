#pragma once

// Backend::Native on the CPU: this package's own kernel, with a tiled online softmax in the forward pass and
// recomputed weights in the backward pass. Memory: O(T).

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include <attentive/score/score_callbacks.h>

#include "kernels/call_tensors.h"

namespace attentive::kernels::native_cpu {

Verdict verdict(const Problem& problem);
AttentionResult run(const Problem& problem);

/// The classes of the tiles of a problem's mask function that `run` uses: the kept ones, or new ones. Null
/// without a mask function, and with too few queries or keys to skip a tile.
std::shared_ptr<const attentive::detail::BlockClasses> blocks_of(const Problem& problem);

/// The classes of the tiles of a problem's mask function, which there must be.
std::shared_ptr<const attentive::detail::BlockClasses> classify(const Problem& problem);

// ---- The kernel on tensors, without autograd, for operators that have an autograd of their own.

/// A problem as the kernel reads it. The problem must live as long. With `for_backward`, its tensors may
/// change until the backward pass; see mask_tensors_of.
struct PreparedCall {
  PreparedCall(const Problem& problem, uint64_t dropout_key, bool for_backward = false);

  CallTensors tensors;  ///< what `call` points to
  Call call;
};

/// The captured tensors that autograd differentiates, as indices: those of the score.
std::vector<size_t> learned_captures(const Problem& problem);

/// Computes a problem as a node of autograd's graph. Its backward pass reads what the kernel computed, or
/// under create_graph the definition.
AttentionResult run_with_autograd(const Problem& problem, PreparedCall prepared, std::vector<size_t> learned);

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
Computed compute(const Call& call, const CallTensors& in, const Results& wanted,
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
  at::DimVector bias, slopes;               ///< the sizes of the problem's bias and slopes; empty: not wanted
  at::ScalarType bias_type = at::kFloat;    ///< of the gradient: float32 or the type of q
  bool captured = false;                    ///< those of the call's floating-point tensors
  bool shared_k = false, shared_v = false;  ///< k, v are one item that all share, without incoming weights

  /// Asks for the gradient of a bias of a call whose q is of this type.
  void want_bias(const at::Tensor& given, at::ScalarType q) {
    bias = given.sizes();
    bias_type = given.scalar_type() == q ? q : at::kFloat;
  }
};

/// The gradients of what a differentiated call computed, whose tensors may have any strides by now; those of
/// captured tensors are float32. Without its weights, those that have an incoming gradient are computed
/// again.
Gradients compute_gradients(const Call& call, const CallTensors& in, Computed out, const Incoming& incoming,
                            const Wanted& wanted);

}  // namespace attentive::kernels::native_cpu

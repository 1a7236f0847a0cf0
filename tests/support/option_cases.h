#pragma once

// The options of attention(), one entry per option. The product test combines them, and the options table is
// made from them.

#include <functional>
#include <string>
#include <vector>

#include <attentive/functional/attention.h>

namespace attentive::test {

/// A small call under construction. Its tensors are float64; tests cast them.
struct OptionCall {
  at::Tensor q, k, v;
  AttentionOptions options;
  AttentionExtras extras;
  bool bias_gradient = false, slopes_gradient = false;
  /// Tensors that functions of pairs capture, of which floating-point ones get gradients, and the step that
  /// makes the functions of them.
  std::vector<at::Tensor> captured = {};
  std::vector<std::function<void(OptionCall&)>> functions = {};
};

struct OptionCase {
  std::string name;
  /// Options of one group exclude each other (two causal alignments, two dropout streams, …).
  std::string group;
  std::function<void(OptionCall&)> apply;
};

/// Shapes before any option: q (2, 4, 7, 8), k and v (2, 4, 9, 8).
OptionCall plain_call();

const std::vector<OptionCase>& option_cases();

/// Score and mask functions, which are combined with all options in a test of their own.
const std::vector<OptionCase>& function_cases();

/// Whether the backend can compute the call.
bool takes(Backend backend, const OptionCall& call);

/// Returns the call with every tensor in the given dtype; q, k and v are leaves that require gradients.
OptionCall cast(const OptionCall& call, at::ScalarType type);

struct OptionResult {
  bool refused = false;
  std::string reason;  ///< reason of the refusal
  AttentionResult result;
  AttentionResult inference;  ///< result without a graph, for which few queries take a separate path
  /// Gradients of q, k and v, then of the bias and the slopes if they are wanted, then of captured tensors;
  /// undefined if there is none.
  std::vector<at::Tensor> gradients;
};

/// The tensors of a call that require a gradient, in the order of `OptionResult::gradients`.
std::vector<at::Tensor> leaves_of(const OptionCall& call);

/// Runs the call, forward and backward, on one backend under a fixed seed. Any error other than a backend's
/// refusal is thrown. `attend` computes the call; without one, `attention` does.
using Attend = std::function<AttentionResult(const OptionCall& call)>;
OptionResult run_on(const OptionCall& call, Backend backend, const Attend& attend = {});

/// The float64 results and gradients of the reference for a call in any dtype; `inference` has none.
OptionResult expected_of(const OptionCall& call);

/// Checks every result and gradient of a call in `type` against the float64 ones. The tolerance of gradients
/// is relative to the largest gradient of the call.
void check_result(const OptionResult& got, const OptionResult& want, at::ScalarType type);

}  // namespace attentive::test

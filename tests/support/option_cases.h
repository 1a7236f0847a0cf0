#pragma once

// The vocabulary of attention(), one entry per option: what the product test walks and the options table is
// made from.

#include <functional>
#include <string>
#include <vector>

#include <attentive/functional/attention.h>

namespace attentive::test {

// A small call under construction. Tensors are float64; the walker casts them.
struct OptionCall {
  at::Tensor q, k, v;
  AttentionOptions options;
  AttentionExtras extras;
  bool bias_gradient = false;
};

struct OptionCase {
  std::string name;
  // Options of one group exclude each other (two causal alignments, two dropout streams, …).
  std::string group;
  std::function<void(OptionCall&)> apply;
};

// Shapes before any option: q (2, 4, 7, 8), k and v (2, 4, 9, 8).
OptionCall plain_call();

const std::vector<OptionCase>& option_cases();

// The call with every tensor of the given dtype; q, k and v are leaves that require grad.
OptionCall cast(const OptionCall& call, at::ScalarType type);

struct OptionResult {
  bool refused = false;
  std::string reason;  // of the refusal
  AttentionResult result;
  AttentionResult inference;  // of the same call without a graph: few queries then take a path of their own
  std::vector<at::Tensor> gradients;  // of q, k, v (and the bias, if asked for), undefined where none flows
};

// Runs the call, forward and backward, on one backend under a fixed seed. Any error other than a backend's
// refusal leaves this function.
OptionResult run_on(const OptionCall& call, Backend backend);

// Checks every result and gradient of a call in `type` against the float64 ones. Gradients are judged by the
// largest of the call.
void check_result(const OptionResult& got, const OptionResult& want, at::ScalarType type);

}  // namespace attentive::test

#pragma once

#include "kernels/delta_rule.h"

namespace attentive::kernels::reference {

/// The definition of the gated delta rule: the recurrence, token by token. All tensors are defined and in the
/// dtype of sums; keys are normalised, queries scaled, both with a head for each of v; gate is (B, Hv, T, 1)
/// or (B, Hv, T, Dk), beta (B, Hv, T, 1).
DeltaResult delta_rule_by_tokens(const DeltaTensors& tensors, bool delta);

/// The same function by products of whole chunks of tokens.
DeltaResult delta_rule_by_chunks(const DeltaTensors& tensors, bool delta);

/// A call by operations that autograd records, in every mode and on every device: by tokens if there are few.
DeltaResult delta_rule(const DeltaRule& rule, const DeltaTensors& tensors);

/// The gradients of a call by autograd, of the wanted tensors that are defined. Those of results that were
/// not given are undefined in `incoming`. With `create_graph` they can be differentiated again.
DeltaGradients delta_rule_gradients(const DeltaRule& rule, const DeltaTensors& tensors,
                                    const std::array<bool, 6>& wanted, const DeltaResult& incoming,
                                    bool create_graph);

}  // namespace attentive::kernels::reference

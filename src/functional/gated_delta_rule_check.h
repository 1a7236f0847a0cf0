#pragma once

#include <attentive/functional/gated_delta_rule.h>

#include "kernels/delta_rule.h"

namespace attentive {

/// A checked call of gated_delta_rule. Under autocast, q, k and v have its dtype.
struct CheckedDeltaRule {
  kernels::DeltaRule rule;
  kernels::DeltaTensors tensors;
};

/// Throws c10::ValueError or c10::TypeError, naming the caller and the argument.
CheckedDeltaRule checked_delta_rule(const char* caller, kernels::DeltaTensors tensors,
                                    const GatedDeltaRuleCall& call);

}  // namespace attentive

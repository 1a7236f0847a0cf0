#pragma once

#include <attentive/functional/gated_delta_rule.h>

#include "kernels/delta_rule.h"

namespace attentive {

/// Checks the tensors of a call of gated_delta_rule, and gives q, k and v the dtype of autocast. Throws
/// c10::ValueError or c10::TypeError, naming the caller and the argument.
kernels::DeltaRule checked_delta_rule(const char* caller, kernels::DeltaTensors& x,
                                      const GatedDeltaRuleCall& call);

}  // namespace attentive

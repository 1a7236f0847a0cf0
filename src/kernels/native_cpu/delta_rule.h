#pragma once

#include "kernels/delta_rule.h"

namespace attentive::kernels::native_cpu {

/// Whether the CPU kernel computes a call: float32 or a half type, and no tensor subclass or tangent.
bool computes_delta_rule(const DeltaTensors& tensors);

/// Computes such a call with its gradients, or without a graph.
DeltaResult delta_rule(const DeltaRule& rule, const DeltaTensors& tensors);

/// The gradients of such a call, without a graph. Incoming gradients may be undefined.
DeltaGradients delta_rule_gradients(const DeltaRule& rule, const DeltaTensors& tensors,
                                    const DeltaResult& incoming);

/// Without a graph. The contiguous `state` of the call is replaced. Returns the output.
at::Tensor delta_rule_in_place(const DeltaRule& rule, const DeltaTensors& tensors);

}  // namespace attentive::kernels::native_cpu

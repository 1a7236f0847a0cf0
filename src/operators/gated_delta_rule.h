#pragma once

#include <torch/library.h>

namespace attentive::operators {

/// Registers the function gated_delta_rule and its gradients.
void add_gated_delta_rule(torch::Library& library);

}  // namespace attentive::operators

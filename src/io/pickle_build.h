#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include <attentive/io/torch_value.h>

#include "io/pickle_graph.h"
#include "io/pickle_input.h"

namespace attentive::pickle {

/// The value of a graph that was checked; `tensors` are those of the graph, in its order.
TorchValue build_value(const Graph& graph, const PickleInput& input, Ref root,
                       const std::vector<at::Tensor>& tensors);

}  // namespace attentive::pickle

#pragma once

#include <attentive/io/torch_file.h>

#include "io/pickle_graph.h"
#include "io/pickle_input.h"

namespace attentive::pickle {

/// Refuses what cannot become a TorchValue: a container that contains itself, containers nested deeper than
/// `max_depth`, more values than `max_values` or longer strings than `max_pickle_bytes` (each mention of a
/// shared value counts), keys that cannot be hashed or that come twice, and a storage, class or function as a
/// value. Costs time and memory by what the graph holds, not by what it would become.
void check_values(Graph& graph, const PickleInput& input, Ref root, const TorchFileLimits& limits);

}  // namespace attentive::pickle

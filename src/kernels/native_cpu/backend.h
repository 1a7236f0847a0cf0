#pragma once

// Backend::Native on the CPU: this package's own kernel, with a tiled online softmax in the forward pass and
// recomputed weights in the backward pass. Memory: O(T).

#include <memory>

#include <attentive/score/pair_functions.h>

#include "kernels/problem.h"

namespace attentive::kernels::native_cpu {

Verdict verdict(const Problem& problem);
AttentionResult run(const Problem& problem);

/// The classes of the tiles of a problem's mask function that `run` uses: the kept ones, or new ones. Null
/// without a mask function, and with too few queries or keys to skip a tile.
std::shared_ptr<const attentive::detail::BlockClasses> blocks_of(const Problem& problem);

}  // namespace attentive::kernels::native_cpu

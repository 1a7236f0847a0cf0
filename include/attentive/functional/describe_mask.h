#pragma once

#include <cstdint>
#include <string>

#include <attentive/core/mask.h>
#include <attentive/core/options.h>

namespace attentive {

/// The keys that a call with these options and this mask lets each query see, as a grid; of the options,
/// `causal` and `window` count. It is what every backend computes with. The form and the errors are those of
/// `Mask::describe`, and so is the memory.
///
///   std::cout << attentive::describe_mask({}, {.causal = Causal::BottomRight}, /*queries=*/2, /*keys=*/4);
std::string describe_mask(const Mask& mask, const AttentionOptions& options, int64_t queries, int64_t keys,
                          const MaskView& view = {});

}  // namespace attentive

#pragma once

#include <cstdint>
#include <string>

#include <attentive/core/mask.h>
#include <attentive/core/options.h>

namespace attentive {

/// Draws, as a grid, the keys that each query may see in a call with these options and this mask. Only the
/// options `causal` and `window` have an effect. Every backend computes with the visibility that is drawn.
/// Format, errors and memory are those of `Mask::describe`.
///
///   std::cout << attentive::describe_mask({}, {.causal = Causal::BottomRight}, /*queries=*/2, /*keys=*/4);
std::string describe_mask(const Mask& mask, const AttentionOptions& options, int64_t queries, int64_t keys,
                          const MaskView& view = {});

}  // namespace attentive

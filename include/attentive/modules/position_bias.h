#pragma once

#include <variant>

#include <attentive/modules/distance_bias.h>
#include <attentive/modules/relative_position_bias.h>
#include <attentive/modules/relative_position_bias_2d.h>

namespace attentive {

/// The option `position_bias` of the attention layers: a learned bias that depends on the positions of query
/// and key. The layer builds the module as its child `position_bias`, after everything else that draws from
/// the generator, and adds it in every call; the number of heads must be the layer's.
///
/// With a cache, the queries are the new tokens. A `RingKVCache`, which keeps the last keys alone, gives the
/// right bias too, because each of these depends on the distance of query and key. The layers refuse by name
/// a `RelativePositionBias2d` in a call with another number of tokens than its window's or with a cache, a
/// `DistanceBias` beside `alibi`, and every position bias in a sequence split over processes
/// (`AttentionContext`).
///
///   auto options = TransformerAttentionOptions(512, 8).position_bias(RelativePositionBiasOptions(8));
///   TransformerAttention attention(options);
///   attention->position_bias->as<RelativePositionBias>()->weight;
using PositionBiasOptions = std::variant<std::monostate, RelativePositionBiasOptions,
                                         RelativePositionBias2dOptions, DistanceBiasOptions>;

}  // namespace attentive

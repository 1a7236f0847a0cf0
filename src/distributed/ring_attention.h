#pragma once

#include <attentive/core/options.h>

#include "distributed/autograd_collectives.h"
#include "functional/attention_part.h"

namespace attentive::distributed {

/// Output and logsumexp of this process's queries by ring attention, without sinks. q, k and v are this
/// process's parts, in float32 or float64; the results have that dtype.
AttentionResult ring_attention(const Messages& messages, const WholeAttention& whole, const at::Tensor& q,
                               const at::Tensor& k, const at::Tensor& v);

}  // namespace attentive::distributed

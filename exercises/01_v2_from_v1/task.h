#pragma once

#include <attentive/modules/self_attention_v1.h>
#include <attentive/modules/self_attention_v2.h>

namespace exercises {

/// Gives `v2` the numbers of `v1`'s three matrices, so that both compute the same of the same tokens. `v1`
/// stays as it is, and later changes of one module do not reach the other.
void copy_projections(const attentive::SelfAttentionV1Impl& v1, attentive::SelfAttentionV2Impl& v2);

}  // namespace exercises

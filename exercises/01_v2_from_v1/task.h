#pragma once

#include <attentive/notebooks/chapter_3.h>

namespace exercises {

/// Copies the values of `v1`'s three matrices to `v2`, so that both compute the same outputs from the same
/// tokens. `v1` is unchanged, and later changes of one module do not affect the other.
void copy_projections(const attentive::SelfAttentionV1Impl& v1, attentive::SelfAttentionV2Impl& v2);

}  // namespace exercises

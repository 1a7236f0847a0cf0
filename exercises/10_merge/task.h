#pragma once

#include <attentive/core/options.h>

namespace exercises {

/// Computes attention over two sets of keys from attention over each set by the same queries.
///
///   output (B, H, L, d) and logsumexp (B, H, L), of a, of b and of the result; `weights` is not used
///
/// A query that sees no key of a set has output 0 and logsumexp minus infinity there.
attentive::AttentionResult merge_halves(const attentive::AttentionResult& a,
                                        const attentive::AttentionResult& b);

}  // namespace exercises

#pragma once

#include <vector>

#include <attentive/core/options.h>

namespace attentive {

/// Attention over all keys, from attention by the same queries over parts of the keys.
///
///   output (..., Tq, Dv) and logsumexp (..., Tq) of each part -> output and logsumexp over all keys
///
/// The share of a part is exp(logsumexp - total), with total = log(sum over the parts of exp(logsumexp)),
/// which is the logsumexp of the result. A part of -inf has no share, whatever its output holds, NaN
/// included; if all are -inf, the output is 0 and the logsumexp -inf. Parts of +inf (a sink of +inf) share
/// alike, and leave nothing to the others. `weights` is not read. A packed output (Tq, H, Dv) is transposed
/// first: `output.transpose(0, 1)`.
///
/// Outputs of a half type are summed in float32 and rounded once. Shares and the logsumexp have the widest
/// dtype of the parts' logsumexps, float32 at least. Gradients of any order flow to outputs and logsumexps;
/// those of a part without a share are 0.
///
/// Throws c10::ValueError without a part, and for shapes and devices that do not fit; c10::TypeError for
/// dtypes, and for outputs of different ones. Memory: the output in float32, twice; once more for each part
/// if gradients are wanted.
/// Source: Dao et al. 2022, "FlashAttention", section 3.1.
///
///   const auto near = attention(q, k1, v1, {}, {.logsumexp = true}),
///              far = attention(q, k2, v2, {}, {.logsumexp = true});
///   auto y = attentive::merge_attention({near, far}).output;  // attention over the keys of k1 and k2
AttentionResult merge_attention(const std::vector<AttentionResult>& parts);

}  // namespace attentive

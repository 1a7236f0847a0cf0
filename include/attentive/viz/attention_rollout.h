#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include <attentive/functional/attention_recorder.h>

namespace attentive {

/// Attention rollout: how much of each token's input reaches the first token (the class token of a ViT) after
/// each of the calls. It is the first row of A_n ... A_1, where A = (mean over the heads of the weights +
/// identity) / 2, with each row divided by its sum.
///
///   calls of self-attention over the same T tokens, the first layer first -> float32 (T) for each call
///
/// It models layers with a residual branch, so `calls` must be all of them. It takes the mean over all heads,
/// whichever are shown. It summarises weights only; values and feed-forward layers are ignored.
/// Throws c10::ValueError for calls that are not square or differ in their number of tokens, and for a batch
/// item that a call does not have. Memory: O(H T^2) for one call at a time. Source: Abnar and Zuidema 2020,
/// "Quantifying Attention Flow in Transformers".
///
///   auto last = attentive::attention_rollout(recorder.calls()).back();
std::vector<at::Tensor> attention_rollout(const std::vector<RecordedAttention>& calls, int64_t batch = 0);

}  // namespace attentive

#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include <attentive/functional/recorded_attention.h>

namespace attentive {

/// How much of every token's input reaches the first token, the class token of a ViT, after each of the calls
/// in turn: the first row of A_n ... A_1, where A = (mean over the heads of the weights + identity) / 2, and
/// each row of A is divided by its sum.
///
///   calls of self-attention over the same T tokens, the first layer first -> float32 (T) for each call
///
/// It stands for layers with a residual branch, of which the calls must be all, and takes the mean over all
/// heads whichever are shown. It is a summary of weights: it knows nothing of values and feed-forward layers.
/// Throws c10::ValueError for calls that are not square or differ in their number of tokens, and for a batch
/// item that a call does not have. Memory: O(H T^2) for one call at a time. Source: Abnar and Zuidema 2020,
/// "Quantifying Attention Flow in Transformers".
///
///   auto last = attentive::attention_rollout(recorder.calls()).back();
std::vector<at::Tensor> attention_rollout(const std::vector<RecordedAttention>& calls, int64_t batch = 0);

}  // namespace attentive

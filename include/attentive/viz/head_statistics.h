#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include <attentive/functional/attention_recorder.h>
#include <attentive/viz/attention_view.h>

namespace attentive {

/// Describes one head by six numbers. "Rows" are queries that see a key; a number that is defined for no row
/// is not set. Key i + key_origin has the same position as query i, and w_ij is the weight of key j.
struct HeadStatistics {
  std::optional<double> entropy = {};  ///< mean over rows of -sum_j w_ij log2 w_ij, in bits
  /// Mean over rows that see at least two keys of entropy / log2(number of keys they see).
  std::optional<double> entropy_share = {};
  std::optional<double> distance = {};  ///< mean over rows of sum_j w_ij |i + key_origin - j|
  /// Mean weight of the key before the query itself, over rows that see that key.
  std::optional<double> previous = {};
  std::optional<double> first = {};  ///< mean weight of key 0 over rows
  /// Mean over rows of 1 - sum_j w_ij, at least 0: the share that a learned sink takes.
  std::optional<double> sink = {};

  bool operator==(const HeadStatistics&) const = default;
};

/// Computes the statistics of the head at index `place` of `view.heads`, in float64 from the unquantised
/// weights. Throws c10::ValueError if there is no such head, and for a view whose parts do not fit together.
///
///   if (attentive::head_statistics(view, 0).previous > 0.9) std::cout << "looks at the token before\n";
HeadStatistics head_statistics(const AttentionView& view, int64_t place);

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

#pragma once

#include <cstdint>
#include <optional>

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

}  // namespace attentive

#pragma once

#include <cstdint>
#include <optional>

#include <attentive/viz/attention_view.h>

namespace attentive {

/// What one head does, in six numbers. "Rows" are queries that see a key; a number of which no row has one is
/// not set. Key i + key_origin is query i itself, w_ij the weight of key j.
struct HeadStatistics {
  std::optional<double> entropy = {};  ///< mean over rows of -sum_j w_ij log2 w_ij, in bits
  std::optional<double> entropy_share =
      {};  ///< mean over rows that see two keys or more of their entropy / log2 of how many
  std::optional<double> distance = {};  ///< mean over rows of sum_j w_ij |i + key_origin - j|
  std::optional<double> previous =
      {};  ///< mean weight of the key before the query itself, over rows that see it
  std::optional<double> first = {};  ///< mean weight of key 0 over rows
  std::optional<double> sink =
      {};  ///< mean over rows of 1 - sum_j w_ij, at least 0: what a learned sink takes

  bool operator==(const HeadStatistics&) const = default;
};

/// The statistics of a head of a view, named by its place in `view.heads`. Computed in float64 from the
/// weights as they are. Throws c10::ValueError for a place outside of it and for a view whose parts do not
/// fit together.
///
///   if (attentive::head_statistics(view, 0).previous > 0.9) std::cout << "looks at the token before\n";
HeadStatistics head_statistics(const AttentionView& view, int64_t place);

}  // namespace attentive

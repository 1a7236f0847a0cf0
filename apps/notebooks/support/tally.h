#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace notebooks {

/// The results of walking through one document.
struct Tally {
  std::string document;
  int cells = 0, compared = 0, differing = 0, only_shown = 0;
  /// The comparison that used the largest share of its tolerance.
  double closest = 0;
  std::string closest_at;
  std::vector<std::string> without_expected;  ///< cells without expected numbers
  std::string error;                          ///< why the walk ended early

  bool passed() const { return differing == 0 && error.empty(); }
  bool empty() const { return cells == 0 && error.empty(); }
};

/// The column headings for columns_of().
std::vector<std::string> tally_heads();
/// The document, its numbers of cells, comparisons, differences and shown values, and the comparison that
/// came closest to its tolerance.
std::vector<std::string> columns_of(const Tally& tally);
/// The remarks below a summary: cells without expected numbers, and why the walk ended.
std::vector<std::string> remarks_of(const Tally& tally);

/// A sentence that says whether all numbers agree.
std::string_view conclusion(const std::vector<Tally>& tallies);

}  // namespace notebooks

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace notebooks {

/// What came of walking through one document.
struct Tally {
  std::string document;
  int cells = 0, compared = 0, differing = 0, only_shown = 0;
  /// The comparison that used the largest part of what it was allowed.
  double closest = 0;
  std::string closest_at;
  std::vector<std::string> own;  ///< cells without expected numbers
  std::string error;             ///< why the document could not be walked to its end

  bool passed() const { return differing == 0 && error.empty(); }
  bool empty() const { return cells == 0 && error.empty(); }
};

/// The heads of the columns that columns_of() fills.
std::vector<std::string> tally_heads();
/// The document, how many cells, comparisons, differences and shown values it had, and which comparison came
/// nearest to what it is allowed.
std::vector<std::string> columns_of(const Tally& tally);
/// What a summary says below them: cells without expected numbers, and why the walk ended.
std::vector<std::string> remarks_of(const Tally& tally);

/// Whether all numbers agree, as a sentence.
std::string_view conclusion(const std::vector<Tally>& tallies);

}  // namespace notebooks

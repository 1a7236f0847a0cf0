#pragma once

// Collects the faults found when a state dict is renamed, as one message of bounded length.

#include <string>
#include <string_view>
#include <vector>

namespace attentive {

/// The least number of insertions, deletions and replacements that turn `b` into `a`. Both are cut after 200
/// characters.
size_t edit_distance(std::string_view a, std::string_view b);

/// The nearest of `names`; empty if each differs in more than a third of its characters.
std::string nearest_name(std::string_view name, const std::vector<std::string>& names);

struct NameFaults {
  struct Line {
    std::string name, comment;
  };
  std::vector<Line> missing, unexpected, misshapen;

  bool empty() const { return missing.empty() && unexpected.empty() && misshapen.empty(); }
  /// One line per name, at most ten of each kind, followed by the number of the remaining ones.
  std::string text() const;
};

}  // namespace attentive

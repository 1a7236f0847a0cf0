#pragma once

// What does not fit when a state dict changes its names, as one message of bounded length.

#include <string>
#include <string_view>
#include <vector>

namespace attentive {

/// The fewest characters to insert, delete or replace that make `a` of `b`; each is cut after 200 characters.
size_t edit_distance(std::string_view a, std::string_view b);

/// The nearest of `names`; empty if none differs in at most a third of its characters.
std::string nearest_name(std::string_view name, const std::vector<std::string>& names);

struct NameFaults {
  struct Line {
    std::string name, comment;
  };
  std::vector<Line> missing, unexpected, misshapen;

  bool empty() const { return missing.empty() && unexpected.empty() && misshapen.empty(); }
  /// A line per name, at most ten of each kind, then how many more there are.
  std::string text() const;
};

}  // namespace attentive

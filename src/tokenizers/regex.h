#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tokenizers/json_view.h"
#include "tokenizers/pieces.h"

namespace attentive::tokenizers {

/// A compiled regular expression, written in the syntax of the file. Threads may share one.
class Regex {
 public:
  /// Throws Refusal for a pattern that PCRE2 does not accept, or that Oniguruma would read otherwise.
  explicit Regex(std::string_view pattern);

  /// Visits the matches in well-formed UTF-8, one after the other; an empty match counts only where the
  /// previous match did not end. Throws Refusal if a match takes too many steps or too much memory.
  void find_all(std::string_view text, const VisitMatch& visit) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
  std::string pattern_;
};

FindMatches matches_of(Regex regex);
/// Finds the occurrences of `wanted`. An empty one is found at both ends of every character.
FindMatches matches_of_text(std::string wanted);

/// Reads a pattern such as {"String": "▁"} or {"Regex": " {2,}"}.
FindMatches parse_pattern(const JsonView& json);

}  // namespace attentive::tokenizers

#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tokenizers/pieces.h"

namespace attentive::tokenizers {

/// A regular expression of Oniguruma, which Python's tokenizers use, in PCRE2's syntax and with the same
/// meaning. What differs between the two is rewritten (\s, \w, \d, \v, scripts); what is left of Oniguruma's
/// syntax is a Refusal that names it: anchors, word boundaries, POSIX brackets, nested classes, references,
/// options but (?i:...).
std::string to_pcre2(std::string_view pattern);

/// A compiled regular expression, as the file has it (tokenizers/regex.h). Threads may share one.
class Regex {
 public:
  /// Throws Refusal for what PCRE2 or `to_pcre2` does not take.
  explicit Regex(std::string_view pattern);

  /// Visits the matches in well-formed UTF-8, one after the other; an empty one only where no match ended.
  /// Throws Refusal if a match takes too many steps or too much memory.
  void find_all(std::string_view text, const VisitMatch& visit) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
  std::string pattern_;
};

}  // namespace attentive::tokenizers

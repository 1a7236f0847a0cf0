#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tokenizers/pieces.h"

namespace attentive::tokenizers {

/// Translates a regular expression of Oniguruma, which Python's tokenizers use, to PCRE2's syntax with the
/// same meaning. Syntax that differs between the two is rewritten (\s, \w, \d, \v, scripts); other syntax of
/// Oniguruma's own throws a Refusal that names it: anchors, word boundaries, POSIX brackets, nested classes,
/// references, options other than (?i:...).
std::string to_pcre2(std::string_view pattern);

/// A compiled regular expression, written in the syntax of the file. Threads may share one.
class Regex {
 public:
  /// Throws Refusal for a pattern that `to_pcre2` or PCRE2 does not accept.
  explicit Regex(std::string_view pattern);

  /// Visits the matches in well-formed UTF-8, one after the other; an empty match counts only where the
  /// previous match did not end. Throws Refusal if a match takes too many steps or too much memory.
  void find_all(std::string_view text, const VisitMatch& visit) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
  std::string pattern_;
};

}  // namespace attentive::tokenizers

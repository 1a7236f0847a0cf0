#pragma once

#include <string>
#include <string_view>

namespace attentive::tokenizers {

/// A regular expression of Oniguruma, which Python's tokenizers use, in PCRE2's syntax and with the same
/// meaning. What differs between the two is rewritten (\s, \w, \d, \v, scripts); what is left of Oniguruma's
/// syntax is a Refusal that names it: anchors, word boundaries, POSIX brackets, nested classes, references,
/// options but (?i:...).
std::string to_pcre2(std::string_view pattern);

}  // namespace attentive::tokenizers

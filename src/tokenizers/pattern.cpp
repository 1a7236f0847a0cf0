#include "tokenizers/pattern.h"

#include <fmt/format.h>

#include "base/refusal.h"
#include "tokenizers/unicode.h"

namespace attentive::tokenizers {
namespace {

constexpr size_t kLongestPattern = 1024;  // in bytes; a search may cost as much at each place of a text

// An empty string matches at both ends of every character.
void between_characters(std::string_view text, const VisitMatch& visit) {
  visit(0, 0);
  for (size_t at = 0; at < text.size();) {
    (void)next_char(text, at);
    visit(at, at);
  }
}

}  // namespace

FindMatches matches_of(Regex regex) {
  return [regex = std::move(regex)](std::string_view text, const VisitMatch& visit) {
    regex.find_all(text, visit);
  };
}

FindMatches matches_of_text(std::string wanted) {
  if (wanted.empty()) return between_characters;
  return [wanted = std::move(wanted)](std::string_view text, const VisitMatch& visit) {
    for (size_t at = text.find(wanted); at != text.npos; at = text.find(wanted, at + wanted.size())) {
      visit(at, at + wanted.size());
    }
  };
}

FindMatches parse_pattern(const JsonView& json) {
  json.only({"Regex", "String"});
  if (json.has("Regex") == json.has("String")) json.expected("one of Regex and String");
  if (json.has("Regex")) {
    const auto pattern = json.at("Regex");
    try {
      return matches_of(Regex(pattern.string()));
    } catch (const Refusal& refusal) {
      refuse("{}: {}", pattern.path(), refusal.what());
    }
  }
  const auto wanted = json.at("String");
  if (wanted.string().size() > kLongestPattern) {
    wanted.expected(fmt::format("at most {} bytes", kLongestPattern));
  }
  return matches_of_text(wanted.string());
}

}  // namespace attentive::tokenizers

#include "tokenizers/convert/vocabulary_files.h"

#include <cstdint>
#include <string>
#include <unordered_set>

#include "base/refusal.h"
#include "base/strings.h"
#include "tokenizers/json_view.h"
#include "tokenizers/unicode.h"

namespace attentive::tokenizers {
namespace {

constexpr size_t kMostLines = size_t{1} << 22;

// Calls visit(line, number) for every line, without its line end; the last line may have none.
template <class Visit>
void for_each_line(std::string_view text, Visit visit) {
  const auto good = utf8_prefix(text);
  if (good != text.size()) refuse("expected UTF-8, got a bad byte at offset {}", good);
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    auto line = text.substr(begin, end - begin);
    if (end < text.size() && line.ends_with('\r')) line.remove_suffix(1);
    if (++number > kMostLines) refuse("expected at most {} lines", kMostLines);
    visit(line, number);
    begin = end + 1;
  }
}

std::string_view without_end_space(std::string_view line) {
  while (!line.empty() && is_space(previous_char(line, line.size()))) {
    line = line.substr(0, previous_start(line, line.size()));
  }
  return line;
}

}  // namespace

nlohmann::json parse_vocab_txt(std::string_view text) {
  auto vocabulary = nlohmann::json::object();
  for_each_line(text, [&](std::string_view line, size_t number) {
    vocabulary[std::string(without_end_space(line))] = number - 1;
  });
  if (vocabulary.empty()) refuse("expected a token a line, got no line");
  return vocabulary;
}

nlohmann::json parse_vocab_json(std::string_view text) {
  auto vocabulary = parse_json(text);
  const JsonView view(vocabulary);
  if (!vocabulary.is_object() || vocabulary.empty()) view.expected("an object of tokens and ids");
  if (vocabulary.size() > kMostLines) refuse("expected at most {} tokens", kMostLines);
  std::unordered_set<int64_t> ids;
  for (const auto& [token, id] : vocabulary.items()) {
    if (!ids.insert(view.at(token).integer()).second)
      view.at(token).expected("an id that no other token has");
  }
  return vocabulary;
}

nlohmann::json parse_merges_txt(std::string_view text, const nlohmann::json& vocabulary) {
  auto merges = nlohmann::json::array();
  for_each_line(text, [&](std::string_view line, size_t number) {
    if (line.starts_with("#version")) return;
    const auto space = line.find(' ');
    if (space == line.npos || line.find(' ', space + 1) != line.npos) {
      refuse("line {}: expected two tokens with a space between them, got {}", number, quoted_name(line));
    }
    const std::string left(line.substr(0, space)), right(line.substr(space + 1));
    for (const auto& token : {left, right, left + right}) {
      if (!vocabulary.contains(token)) {
        refuse("line {}: expected tokens of the vocabulary, which lacks {}", number, quoted_name(token));
      }
    }
    merges.push_back({left, right});
  });
  return merges;
}

}  // namespace attentive::tokenizers

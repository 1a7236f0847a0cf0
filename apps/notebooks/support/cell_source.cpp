#include "support/cell_source.h"

#include <cctype>
#include <stdexcept>

#include <fmt/format.h>

namespace notebooks {
namespace {

constexpr auto kNone = std::string_view::npos;

bool in_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

size_t skip_spaces(std::string_view text, size_t at) {
  return std::min(text.find_first_not_of(" \t\r\n", at), text.size());
}

// Behind `token` and the spaces before it, or kNone.
size_t behind(std::string_view text, size_t at, std::string_view token) {
  if (at == kNone) return kNone;
  at = skip_spaces(text, at);
  return text.substr(at).starts_with(token) ? at + token.size() : kNone;
}

// The entry of a row is {"001-25", &Chapter3::self_attention_v1}.
std::string_view function_name(std::string_view text, std::string_view id) {
  const auto quoted = fmt::format("\"{}\"", id);
  for (auto at = text.find(quoted); at != kNone; at = text.find(quoted, at + 1)) {
    const auto name = behind(text, behind(text, at + quoted.size(), ","), "&");
    if (name == kNone) continue;
    const auto begin = text.find("::", name) + 2;
    auto end = begin;
    while (end < text.size() && in_name(text[end])) ++end;
    return text.substr(begin, end - begin);
  }
  return {};
}

// Where "void name() {" begins, and its brace.
std::pair<size_t, size_t> find_function(std::string_view text, std::string_view name) {
  for (auto at = text.find("void "); at != kNone; at = text.find("void ", at + 1)) {
    auto brace = behind(text, at + 5, name);
    for (const char* token : {"(", ")", "{"}) brace = behind(text, brace, token);
    if (brace != kNone) return {at, brace - 1};
  }
  return {kNone, kNone};
}

// Behind the brace that closes the one at `at`; braces in texts and comments do not count.
size_t behind_block(std::string_view text, size_t at) {
  int depth = 0;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (text.substr(at, 2) == "//") {
      at = text.find('\n', at);
    } else if (c == '"' || (c == '\'' && !in_name(text[at - 1]))) {  // no digit separator
      for (++at; at < text.size() && text[at] != c; ++at) at += text[at] == '\\';
    } else if (c == '{') {
      ++depth;
    } else if (c == '}' && --depth == 0) {
      return at + 1;
    }
    if (at == kNone) break;
  }
  return text.size();
}

size_t line_begin(std::string_view text, size_t at) {
  return at == 0 ? 0 : text.rfind('\n', at - 1) + 1;  // kNone + 1 is 0
}

}  // namespace

std::string cell_source(std::string_view text, std::string_view id) {
  const auto name = function_name(text, id);
  const auto [keyword, brace] = name.empty() ? std::pair(kNone, kNone) : find_function(text, name);
  if (keyword == kNone) throw std::runtime_error(fmt::format("found no source of {}", id));
  auto begin = line_begin(text, keyword);
  const auto indent = keyword - begin;
  while (begin > 0) {
    const auto above = line_begin(text, begin - 1);
    const auto line = text.substr(above, begin - above);
    if (!line.substr(skip_spaces(line, 0)).starts_with("//")) break;
    begin = above;
  }
  std::string result;
  const auto end = behind_block(text, brace);
  while (begin < end) {
    auto next = std::min(text.find('\n', begin), end);
    const auto line = text.substr(begin, next - begin);
    result += line.substr(std::min({indent, line.size(), line.find_first_not_of(' ')}));
    result += '\n';
    begin = next + 1;
  }
  return result;
}

}  // namespace notebooks

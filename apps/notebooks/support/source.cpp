#include "support/source.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>

namespace notebooks {
namespace {

bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

bool in_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

size_t end_of_text(std::string_view code) {
  size_t offset = 1;
  while (offset < code.size() && code[offset] != code[0]) offset += code[offset] == '\\' ? 2 : 1;
  return std::min(offset + 1, code.size());
}

// Numbers may have separators, a fraction and an exponent: 10'000, 6., 1e-5.
size_t end_of_number(std::string_view code) {
  size_t offset = 1;
  for (; offset < code.size(); ++offset) {
    const bool sign_of_exponent =
        (code[offset] == '-' || code[offset] == '+') && std::tolower(code[offset - 1]) == 'e';
    if (!in_word(code[offset]) && code[offset] != '.' && code[offset] != '\'' && !sign_of_exponent) break;
  }
  return offset;
}

size_t end_of_word(std::string_view code) {
  return static_cast<size_t>(std::find_if_not(code.begin(), code.end(), in_word) - code.begin());
}

constexpr auto kNone = std::string_view::npos;

// The beginning and end of the next block's content, without its braces. Braces in strings and comments do
// not count.
std::pair<size_t, size_t> find_block(std::string_view text, size_t offset) {
  int depth = 0;
  size_t begin = kNone;
  while (offset < text.size()) {
    const auto token = first_token(text.substr(offset));
    if (token.text == "{" && ++depth == 1) begin = offset + 1;
    if (token.text == "}" && --depth == 0) return {begin, offset};
    offset += token.text.size();
  }
  return {kNone, kNone};
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

size_t indentation(std::string_view line) {
  return std::min(line.find_first_not_of(' '), line.size());
}

// The comment lines directly above the end of `text`, without their indentation.
std::string comment_above(std::string_view text) {
  std::string result;
  auto lines = lines_of(text.substr(0, text.rfind('\n') + 1));
  for (; !lines.empty(); lines.pop_back()) {
    const auto line = lines.back().substr(indentation(lines.back()));
    if (!line.starts_with("//")) break;
    result = fmt::format("{}\n{}", line, result);
  }
  return result;
}

// The lines between the braces of a block, without their common indentation, which is that of the first line.
std::string block_text(std::string_view block) {
  std::string result;
  size_t indent = 0;
  for (const auto line : lines_of(block)) {
    if (result.empty()) indent = indentation(line);
    if (result.empty() && indent == line.size()) continue;  // the rest of the line with the opening brace
    result += fmt::format("{}\n", line.substr(std::min(indent, indentation(line))));
  }
  return result.erase(result.find_last_not_of(" \n") + 1) + "\n";
}

}  // namespace

CppToken first_token(std::string_view code) {
  const char c = code.front();
  const auto token = [&](TokenKind kind, size_t size) { return CppToken{kind, code.substr(0, size)}; };
  if (code.starts_with("//")) return token(TokenKind::Comment, std::min(code.find('\n'), code.size()));
  if (c == '"' || c == '\'') return token(TokenKind::Text, end_of_text(code));
  if (is_digit(c) || (c == '.' && code.size() > 1 && is_digit(code[1]))) {
    return token(TokenKind::Number, end_of_number(code));
  }
  if (in_word(c)) return token(TokenKind::Word, end_of_word(code));
  return token(TokenKind::Other, 1);
}

bool is_keyword(std::string_view word) {
  constexpr std::array<std::string_view, 30> keywords = {
      "auto",   "bool",      "break",    "case",   "char",   "class",  "const",  "constexpr",
      "double", "else",      "enum",     "false",  "float",  "for",    "if",     "int",
      "long",   "namespace", "nullptr",  "return", "static", "struct", "switch", "template",
      "true",   "typename",  "unsigned", "using",  "void",   "while"};
  return std::find(keywords.begin(), keywords.end(), word) != keywords.end();
}

std::string CellSource::prose() const {
  std::string words;
  for (auto line : lines_of(comment)) {
    line.remove_prefix(std::min(line.find_first_not_of("/ "), line.size()));
    words += fmt::format("{}{}", words.empty() ? "" : " ", line);
  }
  return words;
}

CellSource cell_source(std::string_view text, std::string_view id) {
  const auto call = text.find(fmt::format("cell(\"{}\"", id));
  const auto [begin, end] = call == kNone ? std::pair(kNone, kNone) : find_block(text, call);
  if (begin == kNone) throw std::runtime_error(fmt::format("found no source of {}", id));
  return {comment_above(text.substr(0, call)), block_text(text.substr(begin, end - begin))};
}

}  // namespace notebooks

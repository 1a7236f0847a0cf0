#include "support/cell_source.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>

#include "support/cpp_token.h"

namespace notebooks {
namespace {

constexpr auto kNone = std::string_view::npos;

// The beginning and end of the next block's content, without its braces. Braces in strings and comments do
// not count.
std::pair<size_t, size_t> find_block(std::string_view text, size_t at) {
  int depth = 0;
  size_t begin = kNone;
  while (at < text.size()) {
    const auto token = first_token(text.substr(at));
    if (token.text == "{" && ++depth == 1) begin = at + 1;
    if (token.text == "}" && --depth == 0) return {begin, at};
    at += token.text.size();
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

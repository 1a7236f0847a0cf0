#include "docs/pages.h"

#include <algorithm>
#include <cmath>
#include <dirent.h>
#include <fstream>
#include <regex>
#include <sstream>
#include <stdexcept>

namespace attentive::test {
namespace {

// Does not use std::filesystem: see TemporaryFolder.
void add_pages(const std::string& folder, std::vector<std::string>& paths) {
  DIR* const entries = ::opendir((kRoot + folder).c_str());
  if (!entries) throw std::runtime_error("no folder " + folder);
  while (const dirent* entry = ::readdir(entries)) {
    const std::string name = entry->d_name, path = folder + "/" + name;
    if (entry->d_type == DT_DIR && name[0] != '.') add_pages(path, paths);
    if (name.ends_with(".md")) paths.push_back(path);
  }
  ::closedir(entries);
}

std::string without_indentation(const std::string& line) {
  const auto from = line.find_first_not_of(' ');
  return from == std::string::npos ? "" : line.substr(from);
}

bool is_fence(const std::string& line) {
  return without_indentation(line).starts_with("```");
}

// Returns the lines of a block whose fence is line n; sets n to the line behind its closing fence.
std::string take_fenced(const std::vector<std::string>& lines, size_t& n) {
  std::string text;
  for (++n; n < lines.size() && !is_fence(lines[n]); ++n) text += lines[n] + "\n";
  ++n;
  return text;
}

bool same_line(const std::string& shown, const std::string& printed) {
  static const std::regex number(R"(-?\d+\.\d{4})");
  if (std::regex_replace(shown, number, "#") != std::regex_replace(printed, number, "#")) return false;
  std::sregex_iterator a(shown.begin(), shown.end(), number), b(printed.begin(), printed.end(), number);
  for (; a != std::sregex_iterator(); ++a, ++b) {
    if (std::abs(std::stod(a->str()) - std::stod(b->str())) > 1.5e-4) return false;
  }
  return true;
}

bool matches(const std::string& shown, const std::string& printed) {
  const auto bar = shown.find(" | ");
  if (bar == std::string::npos) return same_line(shown, printed);
  const auto colon = shown.rfind(": ", bar);
  return same_line(shown.substr(0, bar), printed) ||
         same_line(shown.substr(0, colon + 2) + shown.substr(bar + 3), printed);
}

}  // namespace

std::string read_page_file(const std::string& path) {
  std::stringstream content;
  content << std::ifstream(path).rdbuf();
  if (content.str().empty()) throw std::runtime_error("nothing to read in " + path);
  return content.str();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> page_paths() {
  std::vector<std::string> paths = {"README.md"};
  add_pages("docs", paths);
  add_pages("apps", paths);
  add_pages("exercises", paths);
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<Block> blocks_of(const std::string& page) {
  static const std::regex marker("^<!-- (example|file|lines of|ported): (\\S+) -->$");
  const auto lines = lines_of(page);
  std::vector<Block> blocks;
  for (size_t n = 0; n < lines.size();) {
    Block block;
    std::smatch words;
    if (std::regex_match(lines[n], words, marker)) {
      block.kind = words[1];
      block.name = words[2];
      ++n;
    }
    block.first_line = block.last_line = n;
    if (n < lines.size() && is_fence(lines[n])) {
      block.language = without_indentation(lines[n]).substr(3);
      block.code = take_fenced(lines, n);
      block.last_line = n;
      if (!block.kind.empty() && n + 1 < lines.size() && lines[n].empty() && lines[n + 1] == "```text") {
        block.output = take_fenced(lines, ++n);
        block.last_line = n;
      }
    } else if (block.kind.empty()) {
      ++n;
      continue;
    }
    blocks.push_back(block);
  }
  return blocks;
}

std::string with_block(const std::string& page, const Block& block) {
  const auto lines = lines_of(page);
  std::string text;
  for (size_t n = 0; n < block.first_line; ++n) text += lines[n] + "\n";
  text += "```" + block.language + "\n" + block.code + "```\n";
  if (!block.output.empty()) text += "\n```text\n" + block.output + "```\n";
  for (size_t n = block.last_line; n < lines.size(); ++n) text += lines[n] + "\n";
  return text;
}

bool same_output(const std::string& shown, const std::string& printed) {
  const auto a = lines_of(shown), b = lines_of(printed);
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), matches);
}

bool lines_stand_in(const std::string& code, const std::string& text) {
  const auto lines = lines_of(text);
  auto offset = lines.begin();
  for (const auto& line : lines_of(code)) {
    const auto wanted = without_indentation(line);
    if (wanted == "…" || wanted.empty()) continue;
    offset = std::find_if(offset, lines.end(),
                          [&](const auto& there) { return without_indentation(there) == wanted; });
    if (offset == lines.end()) return false;
    ++offset;
  }
  return true;
}

}  // namespace attentive::test

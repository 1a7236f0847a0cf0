// docs/porting.md shows the examples of this folder: their code word for word, and what they print. This test
// runs them and compares; ATTENTIVE_UPDATE_DOCS=1 writes the page's blocks.

#include "docs/porting.h"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <regex>
#include <set>
#include <sstream>

#include <catch2/catch_test_macros.hpp>

using namespace attentive::test;

std::vector<PortingExample>& attentive::test::porting_examples() {
  static std::vector<PortingExample> examples;
  return examples;
}

namespace {

std::string read(const std::string& path) {
  std::stringstream content;
  content << std::ifstream(path).rdbuf();
  REQUIRE_FALSE(content.str().empty());
  return content.str();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The lines between `first` and `last`, two columns to the left where they are indented.
std::string code_between(const std::string& file, const std::string& first, const std::string& last) {
  const auto lines = lines_of(read(file));
  std::string code;
  bool inside = false;
  for (const auto& line : lines) {
    if (inside && line == last) {
      const auto from = code.find_first_not_of('\n'), to = code.find_last_not_of('\n');
      return code.substr(from, to - from + 1) + "\n";
    }
    if (inside) code += (line.rfind("  ", 0) == 0 && last == "}" ? line.substr(2) : line) + "\n";
    inside = inside || line == first;
  }
  FAIL("no " << first << " in " << file);
  return code;
}

std::string output_of(const PortingExample& example) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(4);
  auto* const before = std::cout.rdbuf(text.rdbuf());
  const auto flags = std::cout.flags(std::ios::fixed | std::ios::boolalpha | std::ios::dec);
  const auto precision = std::cout.precision(4);
  try {
    example.run();
  } catch (const std::exception& error) {
    std::cout << "error: " << error.what() << "\n";
  }
  std::cout.flags(flags);
  std::cout.precision(precision);
  std::cout.rdbuf(before);
  // Whether a NaN carries a sign depends on the processor.
  return std::regex_replace(text.str(), std::regex("-nan"), "nan");
}

// The words are equal and the numbers within one unit of the last digit that is printed.
bool same_line(const std::string& shown, const std::string& printed) {
  static const std::regex number(R"(-?\d+\.\d{4})");
  if (std::regex_replace(shown, number, "#") != std::regex_replace(printed, number, "#")) return false;
  std::sregex_iterator a(shown.begin(), shown.end(), number), b(printed.begin(), printed.end(), number);
  for (; a != std::sregex_iterator(); ++a, ++b) {
    if (std::abs(std::stod(a->str()) - std::stod(b->str())) > 1.5e-4) return false;
  }
  return true;
}

// A shown line may give two possibilities, parted by " | ", where processors differ.
bool matches(const std::string& shown, const std::string& printed) {
  const auto bar = shown.find(" | ");
  if (bar == std::string::npos) return same_line(shown, printed);
  const auto colon = shown.rfind(": ", bar);
  return same_line(shown.substr(0, bar), printed) ||
         same_line(shown.substr(0, colon + 2) + shown.substr(bar + 3), printed);
}

bool matches_all(const std::string& shown, const std::string& printed) {
  const auto a = lines_of(shown), b = lines_of(printed);
  if (a.size() != b.size()) return false;
  for (size_t n = 0; n < a.size(); ++n) {
    if (!matches(a[n], b[n])) return false;
  }
  return true;
}

constexpr const char* kEnd = "<!-- end -->";

// The text of a block's last fence, or nothing.
std::string shown_output(const std::string& block) {
  const std::string open = "```text\n", close = "```\n";
  const auto from = block.find(open);
  if (from == std::string::npos) return "";
  const auto end = block.find(close, from + open.size());
  return block.substr(from + open.size(), end - from - open.size());
}

}  // namespace

TEST_CASE("the porting page shows what its examples are and print", "[docs]") {
  const std::string source = ATTENTIVE_SOURCE_DIR, path = source + "/docs/porting.md";
  std::string page = read(path);
  const std::string written = page;
  const bool update = std::getenv("ATTENTIVE_UPDATE_DOCS") != nullptr;
  const auto check = [&](const std::string& name, const std::string& code, const std::string& output) {
    INFO("example " << name);
    const std::string begin = "<!-- porting: " + name + " -->\n";
    const auto at = page.find(begin);
    REQUIRE(at != std::string::npos);
    const auto from = at + begin.size(), end = page.find(kEnd, from);
    REQUIRE(end != std::string::npos);
    const auto block = page.substr(from, end - from);
    const bool same_output = matches_all(shown_output(block), output);
    const auto with_output = [&](const std::string& text) {
      return "```cpp\n" + code + "```\n" + (text.empty() ? "" : "\n```text\n" + text + "```\n");
    };
    if (update) {
      page.replace(from, end - from, with_output(same_output ? shown_output(block) : output));
      return;
    }
    CHECK(block == with_output(shown_output(block)));
    INFO("shown:\n" << shown_output(block) << "printed:\n" << output);
    CHECK(same_output);
  };

  std::set<std::string> names = {"naive"};
  check("naive",
        code_between(source + "/tests/support/naive_notebook.h", "namespace attentive::test {",
                     "}  // namespace attentive::test"),
        "");
  for (const auto& example : porting_examples()) {
    CHECK(names.insert(example.name).second);
    check(example.name, code_between(example.file, "PORTING(" + example.name + ") {", "}"),
          output_of(example));
  }
  if (update && page != written) std::ofstream(path) << page;

  static const std::regex marker("<!-- porting: (\\w+) -->");
  for (std::sregex_iterator m(page.begin(), page.end(), marker); m != std::sregex_iterator(); ++m) {
    INFO("the page shows " << (*m)[1]);
    CHECK(names.count((*m)[1]) == 1);
  }
}

TEST_CASE("another number or word on the porting page would be noticed", "[docs]") {
  CHECK(matches("naive: 0.5000 and nan", "naive: 0.5001 and nan"));
  CHECK_FALSE(matches("naive: 0.5000", "naive: 0.5002"));
  CHECK_FALSE(matches("naive: 0.5000", "naive: nan"));
  CHECK_FALSE(matches("naive: 2 rows", "naive: 3 rows"));
  CHECK(matches("row: 2 2 | 2 0", "row: 2 0"));
  CHECK(matches("row: 2 2 | 2 0", "row: 2 2"));
  CHECK(matches("ours: row: 2 2 | 2 0", "ours: row: 2 0"));
  CHECK_FALSE(matches("row: 2 2 | 2 0", "row: 0 0"));
  CHECK_FALSE(matches_all("a\nb\n", "a\n"));
}

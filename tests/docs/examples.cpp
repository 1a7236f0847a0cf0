#include "docs/examples.h"

#include <iomanip>
#include <regex>
#include <sstream>
#include <stdexcept>

#include <ATen/Context.h>

#include "docs/in_folder.h"
#include "docs/pages.h"
#include "support/files.h"

namespace attentive::test {
namespace {

bool begins_example(const std::string& line, const std::string& name) {
  return line == "EXAMPLE(" + name + ") {" || line.starts_with("EXAMPLE_AFTER(" + name + ", ");
}

}  // namespace

std::vector<Example>& examples() {
  static std::vector<Example> all;
  return all;
}

std::string code_of(const Example& example) {
  std::string code;
  bool inside = false;
  for (const auto& line : lines_of(read_page_file(example.file))) {
    if (inside && line == "}") return code;
    if (inside) code += (line.starts_with("  ") ? line.substr(2) : line) + "\n";
    inside = inside || begins_example(line, example.name);
  }
  throw std::runtime_error("no example " + example.name + " in " + example.file);
}

std::string output_here(const Example& example) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(4);
  auto* const before = std::cout.rdbuf(text.rdbuf());
  const auto flags = std::cout.flags(std::ios::fixed | std::ios::boolalpha | std::ios::dec);
  const auto precision = std::cout.precision(4);
  try {
    if (example.before) example.before();
    at::manual_seed(1);
    example.run();
  } catch (const std::exception& error) {
    std::cout << "error: " << error.what() << "\n";
  }
  std::cout.flags(flags);
  std::cout.precision(precision);
  std::cout.rdbuf(before);
  // Whether a NaN has a sign depends on the processor.
  return std::regex_replace(text.str(), std::regex("-nan"), "nan");
}

std::string output_of(const Example& example) {
  const TemporaryFolder folder;
  const InFolder here(folder.path());
  return output_here(example);
}

}  // namespace attentive::test

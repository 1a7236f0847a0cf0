#include "support/parity_cases.h"

#include <fnmatch.h>
#include <glob.h>

#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>

#include "support/files.h"

namespace attentive::test {

SafetensorsFile case_contents(const std::string& place) {
  static std::map<std::string, SafetensorsFile> known;  // a bundle takes dozens of milliseconds
  if (!known.count(place)) {
    auto cases = load_cases(place);
    REQUIRE(cases.size() == 1);
    known.emplace(place, std::move(cases.begin()->second));
  }
  auto content = known.at(place);
  for (auto& item : content.tensors) item.second = item.second.clone();
  return content;
}

// std::filesystem is avoided here, because libtorch exports directory iterators of an older libstdc++.
std::vector<Case> committed_cases(const std::string& pattern) {
  const auto mark = pattern.find('#');
  const auto names = pattern.substr(mark + 1);
  const auto bundles = source_folder() + "/tests/parity/" + pattern.substr(0, mark) + ".safetensors";
  glob_t found{};
  ::glob(bundles.c_str(), 0, nullptr, &found);
  std::vector<Case> result;
  for (size_t n = 0; n < found.gl_pathc; ++n) {
    const std::string bundle = found.gl_pathv[n];
    for (auto& [place, content] : load_cases(bundle)) {
      if (::fnmatch(names.c_str(), place.c_str() + bundle.size() + 1, 0) == 0)
        result.push_back(make_case(std::move(content), place));
    }
  }
  ::globfree(&found);
  return result;
}

std::string differences(const CaseReport& report) {
  std::string text;
  for (const auto& row : report.tensors) {
    if (!row.passed)
      text += fmt::format("{}: difference {}, tolerance {} {}\n", row.name, row.difference, row.tolerance,
                          row.note);
  }
  return text;
}

void check_cases(const std::string& pattern, size_t least) {
  const auto cases = committed_cases(pattern);
  CHECK(cases.size() >= least);
  for (const auto& test_case : cases) {
    INFO(test_case.name);
    const auto report = run_case(test_case);
    CHECK(report.skipped == "");
    CHECK(differences(report) == "");
    CHECK(report.passed());
  }
}

void check_dropout_cases(const std::string& pattern) {
  size_t passed = 0;
  const auto cases = committed_cases(pattern);
  for (const auto& test_case : cases) {
    INFO(test_case.name);
    const auto report = run_case(test_case);
    CHECK(differences(report) == "");
    if (report.passed()) ++passed;
  }
  CHECK(!cases.empty());
  CHECK(2 * passed == cases.size());
}

}  // namespace attentive::test

#include "support/parity_cases.h"

#include <glob.h>

#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>

#include "support/source_folder.h"

namespace attentive::test {

// std::filesystem is avoided here, because libtorch exports directory iterators of an older libstdc++.
std::vector<std::string> case_files(const std::string& pattern) {
  glob_t found{};
  ::glob((source_folder() + "/tests/parity/" + pattern).c_str(), 0, nullptr, &found);
  std::vector<std::string> result(found.gl_pathv, found.gl_pathv + found.gl_pathc);
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
  const auto paths = case_files(pattern);
  CHECK(paths.size() >= least);
  for (const auto& path : paths) {
    INFO(path);
    const auto report = run_case(read_case(path));
    CHECK(report.skipped == "");
    CHECK(differences(report) == "");
    CHECK(report.passed());
  }
}

void check_dropout_cases(const std::string& pattern) {
  size_t passed = 0;
  const auto paths = case_files(pattern);
  for (const auto& path : paths) {
    INFO(path);
    const auto report = run_case(read_case(path));
    CHECK(differences(report) == "");
    if (report.passed()) ++passed;
  }
  CHECK(!paths.empty());
  CHECK(2 * passed == paths.size());
}

}  // namespace attentive::test

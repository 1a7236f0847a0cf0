// Every case under tests/parity, on every device that is present.

#include <algorithm>
#include <dirent.h>
#include <map>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/io/case.h>

using namespace attentive;

namespace {

std::vector<std::string> list(const std::string& folder) {
  std::vector<std::string> names;
  if (DIR* stream = ::opendir(folder.c_str())) {
    while (const auto* entry = ::readdir(stream)) {
      if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
    }
    ::closedir(stream);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> cases() {
  const std::string root = std::string(ATTENTIVE_SOURCE_DIR) + "/tests/parity/";
  std::vector<std::string> paths;
  for (const auto& folder : list(root)) {
    for (const auto& name : list(root + folder)) paths.push_back(root + folder + "/" + name);
  }
  return paths;
}

std::string differences(const CaseReport& report) {
  std::string text;
  for (const auto& row : report.tensors) {
    if (row.passed) continue;
    text += row.name + ": difference " + std::to_string(row.difference) + ", tolerance " +
            std::to_string(row.tolerance) + " " + row.note + "\n";
  }
  return text;
}

void check_all(at::Device device) {
  const auto known = case_modules();
  std::map<std::string, int> passed;
  int skipped = 0;
  for (const auto& path : cases()) {
    INFO(path);
    const auto test_case = read_case(path);
    try {
      const auto report = run_case(test_case, {.device = device});
      if (!report.skipped.empty()) {
        ++skipped;
        CHECK_FALSE(test_case.dropout_path.empty());
        continue;
      }
      CHECK(differences(report) == "");
      CHECK(report.passed());
      ++passed[report.module];
    } catch (const CaseError& error) {
      FAIL_CHECK(error.what_without_backtrace());
    }
  }
  for (const auto& name : known) {
    INFO(name);
    CHECK(passed[name] >= 5);
  }
  WARN(cases().size() << " cases, " << skipped << " skipped for their dropout stream");
  CHECK(skipped < static_cast<int>(cases().size()) / 10);
}

}  // namespace

TEST_CASE("every committed parity case passes on the CPU", "[parity]") {
  check_all(at::kCPU);
}

TEST_CASE("every committed parity case passes on CUDA", "[parity][cuda]") {
  if (!at::hasCUDA()) SKIP("no CUDA device");
  check_all(at::kCUDA);
}

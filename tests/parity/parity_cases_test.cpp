// Every case under tests/parity, on every device that is present.

#include "support/parity_cases.h"

#include <map>
#include <string>

#include <ATen/Context.h>
#include <catch2/catch_test_macros.hpp>

#include <attentive/parity/case.h>

using namespace attentive;

namespace {

void check_all(at::Device device) {
  const auto known = case_modules();
  std::map<std::string, int> passed;
  int skipped = 0;
  const auto cases = test::committed_cases("*#*");
  for (const auto& test_case : cases) {
    INFO(test_case.name);
    try {
      const auto report = run_case(test_case, {.device = device});
      if (!report.skipped.empty()) {
        ++skipped;
        CHECK_FALSE(test_case.dropout_path.empty());
        continue;
      }
      CHECK(test::differences(report) == "");
      CHECK(report.passed());
      ++passed[report.module];
    } catch (const CaseError& error) {
      FAIL_CHECK(error.what_without_backtrace());
    }
  }
  REQUIRE(cases.size() >= 676);
  for (const auto& name : known) {
    INFO(name);
    CHECK(passed[name] >= 5);
  }
  WARN(cases.size() << " cases, " << skipped << " skipped for their dropout stream");
  CHECK(skipped < static_cast<int>(cases.size()) / 10);
}

}  // namespace

TEST_CASE("every committed parity case passes on the CPU", "[parity]") {
  check_all(at::kCPU);
}

TEST_CASE("every committed parity case passes on CUDA", "[parity][cuda]") {
  if (!at::hasCUDA()) SKIP("no CUDA device");
  check_all(at::kCUDA);
}

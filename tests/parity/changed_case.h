#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include <attentive/parity/case.h>

#include "support/errors.h"
#include "support/files.h"
#include "support/parity_cases.h"

namespace attentive::test {

inline const std::string kCases = source_folder() + "/tests/parity/";
inline const std::string kMha = kCases + "notebooks.safetensors#MultiHeadAttention-notebook";
inline const std::string kSdpa = kCases + "notebooks.safetensors#scaled_dot_product_attention-weighted_loss";

inline std::string refusal(const std::function<void()>& call) {
  return error_of<CaseError>(call);
}

// Runs a case after a change and returns why it was refused.
template <class Change>
std::string refused(const std::string& path, const Change& change) {
  return refusal([&] {
    auto file = case_contents(path);
    change(file);
    run_case(make_case(std::move(file), "case"));
  });
}

template <class Change>
CaseReport changed(const std::string& path, const Change& change, const CaseSettings& settings = {}) {
  auto file = case_contents(path);
  change(file);
  return run_case(make_case(std::move(file), "case"), settings);
}

inline std::vector<std::string> different(const CaseReport& report) {
  std::vector<std::string> names;
  for (const auto& row : report.tensors) {
    if (!row.passed) names.push_back(row.name);
  }
  return names;
}

inline const TensorComparison& row_of(const CaseReport& report, const std::string& name) {
  const auto found = std::find_if(report.tensors.begin(), report.tensors.end(),
                                  [&](const TensorComparison& row) { return row.name == name; });
  REQUIRE(found != report.tensors.end());
  return *found;
}

}  // namespace attentive::test

#include "report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

const char* Outcome::status() const {
  if (!error.empty()) return "unusable";
  if (!report.skipped.empty()) return "skipped";
  return report.passed() ? "passed" : "different";
}

std::string to_text(const Outcome& outcome) {
  if (!outcome.error.empty()) return fmt::format("{}\n  unusable: {}\n", outcome.path, outcome.error);
  const auto& report = outcome.report;
  std::string text = fmt::format("{}\n  {}, {}{}\n", outcome.path, report.module,
                                 report.autocast ? "autocast " : "", c10::toString(report.dtype));
  if (!report.skipped.empty()) return text + fmt::format("  skipped: {}\n", report.skipped);

  const auto shape = [](const attentive::TensorComparison& row) {
    return fmt::format("({}{})", fmt::join(row.shape, ", "), row.shape.size() == 1 ? "," : "");
  };
  size_t names = 6, shapes = 5;
  for (const auto& row : report.tensors) {
    names = std::max(names, row.name.size());
    shapes = std::max(shapes, shape(row).size());
  }
  const bool exact = std::any_of(report.tensors.begin(), report.tensors.end(),
                                 [](const auto& row) { return row.exact.has_value(); });
  text += fmt::format("  {:<{}}  {:<{}}  {:>10}  {:>9}{}\n", "tensor", names, "shape", shapes, "difference",
                      "tolerance", exact ? "  actual-float64  expected-float64" : "");
  for (const auto& row : report.tensors) {
    text += fmt::format("  {:<{}}  {:<{}}  {:>10.2e}  {:>9.2e}", row.name, names, shape(row), shapes,
                        row.difference, row.tolerance);
    if (row.exact) {
      text += fmt::format("  {:>12.2e}  {:>16.2e}", row.exact->actual, row.exact->expected);
    } else if (exact) {
      text += fmt::format("  {:>12}  {:>16}", "-", "-");
    }
    text += fmt::format("  {}{}\n", row.passed ? "ok" : "DIFFERENT",
                        row.note.empty() ? "" : fmt::format(" ({})", row.note));
  }
  return text + fmt::format("  {}\n", outcome.status());
}

std::string summary(const std::vector<Outcome>& outcomes) {
  std::map<std::string_view, int> count;
  for (const auto& outcome : outcomes) ++count[outcome.status()];
  return fmt::format("{} {}: {} passed, {} different, {} skipped, {} unusable", outcomes.size(),
                     outcomes.size() == 1 ? "case" : "cases", count["passed"], count["different"],
                     count["skipped"], count["unusable"]);
}

std::string to_json(const std::vector<Outcome>& outcomes) {
  const auto number = [](double value) -> nlohmann::ordered_json {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return "inf";
    return value;
  };
  auto cases = nlohmann::ordered_json::array();
  for (const auto& outcome : outcomes) {
    nlohmann::ordered_json item = {{"path", outcome.path}, {"status", outcome.status()}};
    if (!outcome.error.empty()) {
      item["reason"] = outcome.error;
    } else {
      item["module"] = outcome.report.module;
      item["dtype"] = c10::toString(outcome.report.dtype);
      item["autocast"] = outcome.report.autocast;
      if (!outcome.report.skipped.empty()) item["reason"] = outcome.report.skipped;
      auto rows = nlohmann::ordered_json::array();
      for (const auto& row : outcome.report.tensors) {
        rows.push_back({{"name", row.name},
                        {"shape", row.shape},
                        {"difference", number(row.difference)},
                        {"tolerance", number(row.tolerance)},
                        {"passed", row.passed},
                        {"note", row.note}});
        if (row.exact) {
          rows.back()["actual_float64"] = number(row.exact->actual);
          rows.back()["expected_float64"] = number(row.exact->expected);
        }
      }
      item["tensors"] = std::move(rows);
    }
    cases.push_back(std::move(item));
  }
  // A path or a message may hold bytes that are not UTF-8.
  return nlohmann::ordered_json{{"cases", cases}, {"summary", summary(outcomes)}}.dump(
      2, ' ', false, nlohmann::json::error_handler_t::replace);
}

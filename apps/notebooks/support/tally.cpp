#include "support/tally.h"

#include <algorithm>

#include <fmt/format.h>

namespace notebooks {

std::vector<std::string> tally_heads() {
  return {"document", "rows", "compared", "differ", "shown", "nearest to what it is allowed"};
}

std::vector<std::string> columns_of(const Tally& tally) {
  const auto count = [](int number) { return fmt::format("{}", number); };
  return {
      tally.document,
      count(tally.cells),
      count(tally.compared),
      count(tally.differing),
      count(tally.only_shown),
      tally.closest_at.empty() ? "-" : fmt::format("{:.0f} %, {}", 100 * tally.closest, tally.closest_at)};
}

std::vector<std::string> remarks_of(const Tally& tally) {
  std::vector<std::string> remarks;
  for (const auto& id : tally.without_expected) {
    remarks.push_back(fmt::format("{} has no expected numbers: shown, not compared", id));
  }
  if (!tally.error.empty()) remarks.push_back(tally.error);
  return remarks;
}

std::string_view conclusion(const std::vector<Tally>& tallies) {
  const auto passed = [](const Tally& tally) { return tally.passed(); };
  const auto compares = [](const Tally& tally) { return tally.compared > 0; };
  if (!std::all_of(tallies.begin(), tallies.end(), passed)) return "Some numbers do not agree.";
  return std::any_of(tallies.begin(), tallies.end(), compares) ? "Every number agrees."
                                                               : "No number was compared.";
}

}  // namespace notebooks

#include "support/cell_line.h"

#include <algorithm>

#include <fmt/format.h>

namespace notebooks {

void CellLine::add(const Check& check, const std::vector<double>& got, const Comparison& comparison) {
  if (!comparison.compared()) {
    shown = true;
    return;
  }
  numbers += got.size();
  largest = std::max(largest, comparison.largest);
  if (comparison.verdict == Verdict::Different) differing.push_back({check, got, comparison});
}

std::string CellLine::difference() const {
  if (numbers == 0) return "";
  return largest == 0 ? "0" : fmt::format("{:.1e}", largest);
}

std::string_view CellLine::verdict() const {
  if (stopped) return "STOPPED";
  if (!differing.empty()) return "DIFFERS";
  if (numbers > 0) return "ok";
  return shown ? "shown" : "text";
}

}  // namespace notebooks

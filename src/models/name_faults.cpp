#include "models/name_faults.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "io/safetensors_header.h"

namespace attentive {

size_t edit_distance(std::string_view a, std::string_view b) {
  constexpr size_t kLongest = 200;
  a = a.substr(0, kLongest);
  b = b.substr(0, kLongest);
  std::vector<size_t> row(b.size() + 1);  // the distances of a's first i characters to b's first j
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const auto replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& names) {
  std::string nearest;
  auto least = std::min<size_t>(name.size(), 200) / 3 + 1;
  for (const auto& other : names) {
    const auto distance = edit_distance(name, other);
    if (distance < least) {
      least = distance;
      nearest = other;
    }
  }
  return nearest;
}

std::string NameFaults::text() const {
  constexpr size_t kMost = 10;
  std::string text;
  const auto add = [&](std::string_view kind, const std::vector<Line>& lines) {
    for (size_t i = 0; i < std::min(kMost, lines.size()); ++i) {
      text += fmt::format("\n{} {}{}", kind, quoted_name(lines[i].name), lines[i].comment);
    }
    if (lines.size() > kMost) text += fmt::format("\n... and {} more {}", lines.size() - kMost, kind);
  };
  add("missing", missing);
  add("unexpected", unexpected);
  add("misshapen", misshapen);
  return text;
}

}  // namespace attentive

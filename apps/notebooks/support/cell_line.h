#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "support/comparison.h"

namespace notebooks {

/// A cell in one line: how many of its numbers were compared, how far one of them lies from the expected one
/// at most, and the checks that differ.
struct CellLine {
  struct Differing {
    Check check;
    std::vector<double> got;
    Comparison comparison;
  };

  size_t numbers = 0;  ///< that were compared
  double largest = 0;  ///< difference of any of them
  bool shown = false;  ///< values were shown, not compared
  bool stopped = false;
  std::vector<Differing> differing;

  void add(const Check& check, const std::vector<double>& got, const Comparison& comparison);

  /// The largest difference; empty where nothing was compared.
  std::string difference() const;
  /// "ok", "DIFFERS", "STOPPED", "shown" (values, none compared) or "text".
  std::string_view verdict() const;
};

}  // namespace notebooks

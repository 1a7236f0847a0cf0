#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "support/comparison.h"

namespace notebooks {

/// Summarises a cell in one line: how many of its numbers were compared, the largest difference, and the
/// checks that differ.
struct CellLine {
  struct Differing {
    Check check;
    std::vector<double> got;
    Comparison comparison;
  };

  size_t numbers = 0;  ///< how many numbers were compared
  double largest = 0;  ///< the largest difference
  bool shown = false;  ///< values were shown, not compared
  bool stopped = false;
  std::vector<Differing> differing;

  void add(const Check& check, const std::vector<double>& got, const Comparison& comparison);

  /// The largest difference; empty if nothing was compared.
  std::string difference() const;
  /// Returns "ok", "DIFFERS", "STOPPED", "shown" (values, none compared) or "text".
  std::string_view verdict() const;
};

}  // namespace notebooks

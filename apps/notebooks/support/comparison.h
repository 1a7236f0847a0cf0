#pragma once

#include <cstddef>
#include <vector>

#include "support/expected.h"

namespace notebooks {

enum class Verdict { Equal, Different, OnlyShown, OtherGenerator };

/// The number that used the largest part of what it was allowed, or broke it.
struct Comparison {
  double difference = 0;
  double largest = 0;  ///< difference of any number
  double allowed = 0;
  size_t place = 0;  ///< counted row by row
  Verdict verdict = Verdict::Equal;

  bool compared() const { return verdict == Verdict::Equal || verdict == Verdict::Different; }
};

/// Compares as many numbers as the check has. NaN equals NaN and an infinity equals itself, because some
/// tables print them.
Comparison compare_numbers(const Check& check, const std::vector<double>& got);

}  // namespace notebooks

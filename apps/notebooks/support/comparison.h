#pragma once

#include <cstddef>
#include <vector>

#include "support/expected.h"

namespace notebooks {

enum class Verdict { Equal, Different, OnlyShown, OtherGenerator };

/// The number that used the largest share of its tolerance, or exceeded it.
struct Comparison {
  double difference = 0;
  double largest = 0;  ///< the largest difference of any number
  double allowed = 0;
  size_t place = 0;  ///< row-major position
  Verdict verdict = Verdict::Equal;

  bool compared() const { return verdict == Verdict::Equal || verdict == Verdict::Different; }
};

/// Compares the numbers of a check. NaN equals NaN, and an infinity equals itself, because some tables print
/// them.
Comparison compare_numbers(const Check& check, const std::vector<double>& got);

}  // namespace notebooks

#include "support/comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace notebooks {
namespace {

double difference(double got, double want) {
  if (got == want || (std::isnan(got) && std::isnan(want))) return 0;
  const double distance = std::abs(got - want);
  return std::isnan(distance) ? std::numeric_limits<double>::infinity() : distance;
}

}  // namespace

Comparison compare_numbers(const Check& check, const std::vector<double>& got) {
  Comparison result;
  double closest = -1;
  for (size_t place = 0; place < got.size(); ++place) {
    const double distance = difference(got[place], check.values[place]);
    const double allowed = check.allowed(check.values[place]);
    result.largest = std::max(result.largest, distance);
    const double used = distance == 0 ? 0 : distance / allowed;  // infinite if nothing is allowed
    if (used > closest) {
      closest = used;
      result = {distance, result.largest, allowed, place,
                distance <= allowed ? Verdict::Equal : Verdict::Different};
    }
  }
  return result;
}

}  // namespace notebooks

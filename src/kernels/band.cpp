#include "kernels/band.h"

#include <algorithm>

#include <attentive/core/options.h>

namespace attentive::kernels {
namespace {

// Removes bounds that hide nothing, such as that of a single query aligned with the last key.
Band without_idle_bounds(Band band, int64_t queries, int64_t keys) {
  if (queries - 1 + band.lo <= 0) band.lo = -Band::kUnbounded;
  if (band.hi >= keys - 1) band.hi = Band::kUnbounded;
  return band;
}

}  // namespace

Band band_of(const AttentionOptions& options, int64_t queries, int64_t keys) {
  Band band{.origin = keys - queries};
  const int64_t longest = queries + keys;  // limits the window so that no sum overflows
  if (options.causal == Causal::BottomRight) band.hi = band.origin;
  if (options.causal == Causal::TopLeft) band.hi = 0;
  if (options.window.left >= 0) band.lo = band.origin - std::min(options.window.left, longest);
  if (options.window.right >= 0)
    band.hi = std::min(band.hi, band.origin + std::min(options.window.right, longest));
  return without_idle_bounds(band, queries, keys);
}

Band shifted(Band band, int64_t offset, int64_t queries, int64_t keys) {
  if (band.has_lo()) band.lo += offset;
  if (band.has_hi()) band.hi += offset;
  band.origin += offset;
  return without_idle_bounds(band, queries, keys);
}

}  // namespace attentive::kernels

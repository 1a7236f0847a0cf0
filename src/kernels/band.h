#pragma once

// The keys that a query may see by position: causality and windows as one pair of bounds, which every backend
// reads.

#include <cstdint>

#include "kernels/host_device.h"

namespace attentive {
struct AttentionOptions;
}

namespace attentive::kernels {

/// Query i may see the keys i + lo … i + hi. It is aligned with key i + origin: ALiBi's distances and the
/// indices of Counter dropout count from that position.
struct Band {
  static constexpr int64_t kUnbounded = int64_t{1} << 60;  ///< added to any index, it does not overflow

  int64_t lo = -kUnbounded, hi = kUnbounded;
  int64_t origin = 0;

  ATTENTIVE_HOST_DEVICE bool has_lo() const { return lo != -kUnbounded; }
  ATTENTIVE_HOST_DEVICE bool has_hi() const { return hi != kUnbounded; }
  bool unbounded() const { return !has_lo() && !has_hi(); }
  ATTENTIVE_HOST_DEVICE int64_t position(int64_t i) const { return i + origin; }
  /// The row index of Counter dropout: the position, so that a query draws the same bits in any part of its
  /// sequence. It is taken modulo 2^32, so that queries before the first key also have distinct rows.
  ATTENTIVE_HOST_DEVICE uint32_t counter_row(int64_t i) const { return static_cast<uint32_t>(position(i)); }
  /// Whether the band is exactly a causal mask, with either alignment.
  bool only_causal() const { return !has_lo() && (hi == 0 || hi == origin); }

  /// Query i may see the keys [key_lo, key_hi) of S; the queries [query_lo, query_hi) of L may see key j.
  ATTENTIVE_HOST_DEVICE int64_t key_lo(int64_t i, int64_t S) const { return clamped(i + lo, S); }
  ATTENTIVE_HOST_DEVICE int64_t key_hi(int64_t i, int64_t S) const { return clamped(i + hi + 1, S); }
  ATTENTIVE_HOST_DEVICE int64_t query_lo(int64_t j, int64_t L) const { return clamped(j - hi, L); }
  ATTENTIVE_HOST_DEVICE int64_t query_hi(int64_t j, int64_t L) const { return clamped(j - lo + 1, L); }
  /// Whether each of S keys may be seen by some of L queries, of which there is one at least.
  bool shows_every_key(int64_t L, int64_t S) const { return lo <= hi && lo <= 0 && S - L <= hi; }

 private:
  ATTENTIVE_HOST_DEVICE static int64_t clamped(int64_t x, int64_t most) {
    return x < 0 ? 0 : x < most ? x : most;
  }
};

/// The band of keys that checked options allow by causality and window, for sequences of these lengths.
Band band_of(const AttentionOptions& options, int64_t queries, int64_t keys);

/// The band of a part whose queries begin `offset` positions later relative to its keys.
Band shifted(Band band, int64_t offset, int64_t queries, int64_t keys);

}  // namespace attentive::kernels

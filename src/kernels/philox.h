#pragma once

// The Counter dropout stream: whether a weight survives is a pure function of a 64-bit key and of (b, h, i,
// j), where i is the position of the query (Band::counter_row) and j that of the key.
//
// Philox4x32 (Salmon et al. 2011) with 7 rounds (the fewest that pass BigCrush). One call decides 8 weights
// of one row, 16 columns apart, so that a vector of 16 lanes covers 128 neighbouring columns without a
// shuffle:
//   counter = ((j / 128) * 16 + j % 16, i, h, b),  key = (low, high) word of the key
//   half    = (j / 16) % 8;  word = half / 2
//   bits    = the low 16 bits of the word for an even half, the high 16 bits for an odd one
//   weight (b, h, i, j) survives iff bits < threshold

#include <cstdint>

#include "kernels/terms.h"

namespace attentive::kernels {

inline constexpr int kPhiloxRounds = 7;
inline constexpr uint32_t kPhiloxM0 = 0xD2511F53u;
inline constexpr uint32_t kPhiloxM1 = 0xCD9E8D57u;
inline constexpr uint32_t kPhiloxW0 = 0x9E3779B9u;
inline constexpr uint32_t kPhiloxW1 = 0xBB67AE85u;

/// A counter; after `philox`, the random bits of eight weights.
struct PhiloxWords {
  uint32_t words[4];
  ATTENTIVE_HOST_DEVICE bool survives(int half, uint32_t threshold) const {
    return ((words[half / 2] >> (16 * (half % 2))) & 0xFFFFu) < threshold;
  }
};

ATTENTIVE_HOST_DEVICE PhiloxWords philox(PhiloxWords c, uint64_t key) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(kPhiloxM0) * c.words[0];
    const uint64_t p1 = static_cast<uint64_t>(kPhiloxM1) * c.words[2];
    c = {{static_cast<uint32_t>(p1 >> 32) ^ c.words[1] ^ k0, static_cast<uint32_t>(p1),
          static_cast<uint32_t>(p0 >> 32) ^ c.words[3] ^ k1, static_cast<uint32_t>(p0)}};
    k0 += kPhiloxW0;
    k1 += kPhiloxW1;
  }
  return c;
}

/// The bits of weight (b, h, i, j) and of the seven weights decided by the same Philox call.
ATTENTIVE_HOST_DEVICE PhiloxWords dropout_words(uint64_t key, int64_t b, int64_t h, uint32_t i, int64_t j) {
  return philox({{static_cast<uint32_t>((j / 128) * 16 + j % 16), i, static_cast<uint32_t>(h),
                  static_cast<uint32_t>(b)}},
                key);
}

}  // namespace attentive::kernels

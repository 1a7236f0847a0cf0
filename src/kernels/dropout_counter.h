#pragma once

// The Counter dropout stream: which weights survive is a pure function of a 64-bit key and (b, h, i, j).
//
// Philox4x32 with 7 rounds (the fewest that pass BigCrush). One call decides 8 weights of one row, 16 columns
// apart, so that a vector of 16 lanes covers 128 neighbouring columns without a shuffle:
//   counter = ((j / 128) * 16 + j % 16, i, h, b),  key = (low, high) word of the key
//   half    = (j / 16) % 8;  word = half / 2
//   bits    = the low 16 bits of the word for an even half, the high 16 bits for an odd one
//   weight (b, h, i, j) survives iff bits < threshold
// p is rounded to the nearest multiple of 2^-16, threshold = round((1 - p) * 65536), but never to 1: at least
// one value of 65536 survives. Survivors are scaled by the inverse of the share that does survive, not of
// 1 - p, so that the mean is exact for every p.

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include "kernels/philox_constants.h"

namespace attentive::kernels {

inline std::array<uint32_t, 4> philox(std::array<uint32_t, 4> c, uint64_t key) {
  auto k0 = static_cast<uint32_t>(key);
  auto k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(kPhiloxM0) * c[0];
    const uint64_t p1 = static_cast<uint64_t>(kPhiloxM1) * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += kPhiloxW0;
    k1 += kPhiloxW1;
  }
  return c;
}

// 1 .. 65536: the number of 16-bit values that survive. p < 1.
inline uint32_t keep_threshold(double p) {
  return std::max(static_cast<uint32_t>((1.0 - p) * 65536.0 + 0.5), uint32_t{1});
}

// What survivors are multiplied by.
inline double survivor_scale(double p) {
  return 65536.0 / keep_threshold(p);
}

inline bool survives(uint64_t key, uint32_t threshold, int64_t b, int64_t h, int64_t i, int64_t j) {
  const auto words = philox({static_cast<uint32_t>((j / 128) * 16 + j % 16), static_cast<uint32_t>(i),
                             static_cast<uint32_t>(h), static_cast<uint32_t>(b)},
                            key);
  const auto half = static_cast<uint32_t>((j / 16) % 8);
  return ((words[half / 2] >> (16 * (half % 2))) & 0xFFFFu) < threshold;
}

// One 64-bit draw from a CPU generator (the default one if not set).
uint64_t draw_dropout_key(const std::optional<at::Generator>& generator);

// The part [row0, row0 + rows) x [col0, col0 + cols) of the keep mask of every (b, h), as bool (batch, heads,
// rows, cols) on the CPU. `batch_offset` is added to b.
at::Tensor counter_keep_mask(uint64_t key, double p, int64_t batch_offset, int64_t batch, int64_t heads,
                             int64_t row0, int64_t rows, int64_t col0, int64_t cols);

}  // namespace attentive::kernels

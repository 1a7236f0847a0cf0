#pragma once

// The parameters of the Counter dropout stream (philox.h) and its bits as a mask.

#include <algorithm>
#include <optional>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include "kernels/philox.h"

namespace attentive::kernels {

/// The number, 1 .. 65536, of 16-bit values for which a weight survives. p is rounded to the nearest multiple
/// of 2^-16 but never to 1: at least one value of 65536 survives.
inline uint32_t keep_threshold(double p) {
  return std::max(static_cast<uint32_t>((1.0 - p) * 65536.0 + 0.5), uint32_t{1});
}

/// The factor of surviving weights: the inverse of the actual share of survivors rather than of 1 - p, so
/// that the mean is exact for every p.
inline double survivor_scale(double p) {
  return 65536.0 / keep_threshold(p);
}

/// Draws one 64-bit number from a CPU generator (the default one if not set).
uint64_t draw_dropout_key(const std::optional<at::Generator>& generator);

/// The part [row0, row0 + rows) x [col0, col0 + cols) of the keep mask of every (b, h), as bool (batch,
/// heads, rows, cols) on the CPU. The offsets are added to b and h; rows are those of Band::counter_row.
at::Tensor counter_keep_mask(uint64_t key, double p, int64_t batch_offset, int64_t batch, int64_t head_offset,
                             int64_t heads, uint32_t row0, int64_t rows, int64_t col0, int64_t cols);

}  // namespace attentive::kernels

#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

/// A sequence in 2 W chunks of equal length, of which rank r of W holds chunk r and chunk 2 W - 1 - r: under causality, each has one
/// that is early and one that is late, and all have the same work.
namespace attentive::distributed {

/// The chunks of a rank, in the order in which it holds them.
inline std::array<int64_t, 2> chunks_of(int64_t rank, int64_t size) {
  return {rank, 2 * size - 1 - rank};
}

/// One half of a part, along `dim`.
inline at::Tensor half_of(const at::Tensor& part, int64_t half, int64_t dim) {
  const int64_t length = part.size(dim) / 2;
  return part.narrow(dim, half * length, length);
}

/// The whole sequence in its own order, from the parts by rank.
at::Tensor in_order(const std::vector<at::Tensor>& parts, int64_t dim);
/// The part of each rank, from the whole sequence.
at::Tensor part_of(const at::Tensor& whole, int64_t rank, int64_t size, int64_t dim);

}  // namespace attentive::distributed

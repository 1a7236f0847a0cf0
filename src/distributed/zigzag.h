#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

/// A sequence in 2 W chunks of equal length, of which rank r of W holds chunks r and 2 W - 1 - r: one early
/// and one late chunk, so that causal attention is the same work for all ranks.
namespace attentive::distributed {

/// The chunks of a rank, in the order in which it stores them.
inline std::array<int64_t, 2> chunks_of(int64_t rank, int64_t size) {
  return {rank, 2 * size - 1 - rank};
}

/// One half of a part along `dim`, that is, one of its two chunks.
inline at::Tensor half_of(const at::Tensor& part, int64_t half, int64_t dim) {
  const int64_t length = part.size(dim) / 2;
  return part.narrow(dim, half * length, length);
}

/// Reassembles the whole sequence in its original order from the parts, given by rank.
at::Tensor in_order(const std::vector<at::Tensor>& parts, int64_t dim);
/// Extracts the part of one rank from the whole sequence.
at::Tensor part_of(const at::Tensor& whole, int64_t rank, int64_t size, int64_t dim);

}  // namespace attentive::distributed

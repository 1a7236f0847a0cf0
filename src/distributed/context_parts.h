#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include <attentive/core/options.h>

#include "distributed/connection.h"
#include "functional/attention_part.h"

/// A sequence in parts, differentiable collective calls for attention over it, and ring attention. All
/// processes make these calls in the same order, and so are their backward passes.
///
/// The sequence lies in 2 W chunks of equal length, of which rank r of W holds chunks r and 2 W - 1 - r: one
/// early and one late chunk, so that causal attention is the same work for all ranks.
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

inline constexpr const char* kContextAttention = "context_attention";

/// Identifies the messages of one attention call and of its backward pass. Each call has its own tag, so that
/// its messages cannot be taken for those of another call if the processes run their backward passes in
/// different orders; with Gloo, a message of unexpected size would end the receiver by a signal.
struct Messages {
  std::shared_ptr<Connection> connection;
  int tag = 0;
};

/// rows (W, n), one for each process -> (W, n), one from each process. The gradient is exchanged in the
/// reverse direction.
at::Tensor exchange_rows(const Messages& messages, const at::Tensor& rows);

/// row (n) -> (W, n) in `dtype`: the rows of all processes. The gradient is the sum over the processes in
/// that dtype, added in the order of the ranks and rounded once.
at::Tensor gather_rows(const Messages& messages, const at::Tensor& row, at::ScalarType dtype);

/// Output and logsumexp of this process's queries by ring attention, without sinks. q, k and v are this
/// process's parts, in float32 or float64; the results have that dtype.
AttentionResult ring_attention(const Messages& messages, const WholeAttention& whole, const at::Tensor& q,
                               const at::Tensor& k, const at::Tensor& v);

}  // namespace attentive::distributed

#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "distributed/connection.h"

/// Differentiable collective calls for attention over a distributed sequence. All processes make them in the
/// same order, and so are their backward passes.
namespace attentive::distributed {

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

}  // namespace attentive::distributed

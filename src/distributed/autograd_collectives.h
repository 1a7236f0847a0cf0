#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "distributed/connection.h"

/// The calls of attention over a sequence in parts, with gradients. All processes make them in the same order, that of the backward
/// pass included.
namespace attentive::distributed {

inline constexpr const char* kContextAttention = "context_attention";

/// What one call sends, its backward pass included. A tag of its own keeps it apart from what another call sends, should processes make
/// their backward passes in another order: with other sizes, Gloo would end the receiver by a signal.
struct Messages {
  std::shared_ptr<Connection> connection;
  int tag = 0;
};

/// rows (W, n), one for each process -> (W, n), one from each process. Its gradient goes the other way.
at::Tensor exchange_rows(const Messages& messages, const at::Tensor& rows);

/// row (n) -> (W, n) in `dtype`, the rows of all processes. The gradient is the sum over the processes in that dtype, in the
/// order of their ranks, rounded once.
at::Tensor gather_rows(const Messages& messages, const at::Tensor& row, at::ScalarType dtype);

/// Sends to the next rank and receives from the one before, while the caller goes on.
class RingStep {
 public:
  RingStep(const Messages& messages, const at::Tensor& sent);
  /// What was received: of the shape and dtype of what was sent.
  at::Tensor wait();

 private:
  Connection& connection_;
  at::Tensor received_;
  c10d_internals::Exchange exchange_;
};

}  // namespace attentive::distributed

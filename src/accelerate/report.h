#pragma once

// Counts the calls of the report. No function here takes a lock.

#include <string>

namespace attentive::accelerate {

/// Counts a call that the kernel computes.
void count_taken();

/// Counts a call of the fused operator that is left to PyTorch, unless this thread is in a `LeavingCall`.
void count_left(const std::string& reason);

/// A call of scaled_dot_product_attention that is being left to PyTorch. When the scope ends, it counts as
/// left unless `count_taken` was called inside: PyTorch may come to its fused operator, which the kernel
/// computes.
class LeavingCall {
 public:
  explicit LeavingCall(std::string reason);
  ~LeavingCall();
  LeavingCall(const LeavingCall&) = delete;
  LeavingCall& operator=(const LeavingCall&) = delete;

 private:
  friend void count_taken();
  std::string reason_;
  LeavingCall* outer_;
  bool taken_ = false;
};

}  // namespace attentive::accelerate

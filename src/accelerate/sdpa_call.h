#pragma once

// A call of at::scaled_dot_product_attention as a problem of this package, or the reason for leaving it to
// PyTorch.

#include <atomic>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "kernels/problem.h"

namespace attentive::accelerate {

/// The last choice of the program, for every thread.
enum class Switch { Off, OurDropout, ExactDropout };

inline std::atomic<Switch>& sdpa_switch() {
  static std::atomic<Switch> value{Switch::Off};
  return value;
}

/// The arguments of an operator. Some operators allow query heads to share key heads only if they are asked
/// to.
struct SdpaCall {
  const at::Tensor& q;
  const at::Tensor& k;
  const at::Tensor& v;
  const std::optional<at::Tensor>& mask;
  double dropout_p = 0.0;
  bool causal = false;
  std::optional<double> scale = std::nullopt;
  bool shares_heads = true;
};

/// The problem that a call poses, in which autograd knows the places of the call's tensors, or the reason why
/// PyTorch computes it.
struct Decision {
  std::optional<kernels::Problem> problem;
  std::string reason;

  static Decision left(std::string why) { return {std::nullopt, std::move(why)}; }
};

/// Whether the kernel can compute the call as PyTorch defines it. Whether it may, or should, is not asked.
Decision problem_of(const SdpaCall& call);

/// Decides about a call of scaled_dot_product_attention.
Decision decide_sdpa(const SdpaCall& call);

/// Decides about a call of PyTorch's fused CPU operator, or of its backward operator, where nothing records a
/// graph any more.
Decision decide_flash(const SdpaCall& call, bool differentiated);

/// Whether autograd will ask for gradients of the call.
bool is_differentiated(const SdpaCall& call);

/// Whether the kernel is faster than PyTorch for a problem of this size: docs/guide/accelerate.md, "Sizes for
/// which PyTorch is faster".
bool worth_taking(const kernels::Problem& problem, bool differentiated);

/// For tests: calls of every size are taken, in all threads, until the end of the scope.
class EverySizeGuard {
 public:
  EverySizeGuard();
  ~EverySizeGuard();
  EverySizeGuard(const EverySizeGuard&) = delete;
  EverySizeGuard& operator=(const EverySizeGuard&) = delete;

 private:
  bool before_;
};

// The operators of PyTorch that this package's kernel computes.

/// Registers them with PyTorch's dispatcher. Until the switch is set, every one of them calls PyTorch's
/// function. Throws c10::NotImplementedError if another library has registered one of them, and registers
/// nothing then.
void register_sdpa_operators();

// Counts the calls of the report. No function here takes a lock.

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

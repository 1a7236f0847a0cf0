#pragma once

// Everything of attentive::accelerate: at::scaled_dot_product_attention computed by this package.

#include <cstdint>
#include <string>
#include <vector>

namespace attentive {

/// The random numbers that a call with dropout uses.
enum class SdpaDropout {
  Ours,   ///< this package's: a call with dropout is accelerated, and draws one key from the generator
  Exact,  ///< PyTorch's: a call with dropout is left to PyTorch and has the same bits as without this package
};

/// Which calls are accelerated.
struct SdpaOptions {
  SdpaDropout dropout = SdpaDropout::Ours;
};

/// Lets every `at::scaled_dot_product_attention` on the CPU run this package's kernel, forward and backward,
/// in C++, TorchScript and compiled graphs of this process. Gradients may be differentiated again. A call
/// that the kernel cannot compute, or for which PyTorch is faster, is left to PyTorch, with the same bits and
/// errors as before. Meant for the start of a program: it may be called from any thread at any time, but a
/// call that is running keeps its way.
///
/// A second call changes the options. What it registers with PyTorch's dispatcher stays registered; the
/// library that contains it must not be unloaded.
///
/// @throws c10::NotImplementedError if this LibTorch is not one that is supported, or if another library has
/// registered the same operators.
///
///     attentive::accelerate_sdpa();
///     auto y = at::scaled_dot_product_attention(q, k, v, {}, 0.0, /*is_causal=*/true);
void accelerate_sdpa(const SdpaOptions& options = {});

/// Leaves every later call to PyTorch. Backward passes of calls that were accelerated still run.
void stop_accelerating_sdpa();

/// Whether calls are accelerated.
bool accelerates_sdpa();

/// Accelerates calls until the end of the scope, in every thread; then what was set before holds again. Meant
/// for tests and measurements. Throws as `accelerate_sdpa` does.
///
///     const attentive::SdpaGuard guard({.dropout = attentive::SdpaDropout::Exact});
class SdpaGuard {
 public:
  explicit SdpaGuard(const SdpaOptions& options = {});
  ~SdpaGuard();
  SdpaGuard(const SdpaGuard&) = delete;
  SdpaGuard& operator=(const SdpaGuard&) = delete;

 private:
  bool accelerated_;
  SdpaOptions options_;
};

/// The calls of `at::scaled_dot_product_attention` since the process began or the report was reset.
struct SdpaReport {
  /// Calls that were left to PyTorch, for one reason.
  struct Left {
    std::string reason;
    int64_t calls;
  };
  int64_t taken = 0;       ///< calls that ran this package's kernel
  std::vector<Left> left;  ///< the most frequent reason first
};

/// The report of this moment. Calls of other threads may be counted meanwhile.
///
///     std::cout << to_string(attentive::sdpa_report());
SdpaReport sdpa_report();

/// Sets every count to 0.
void reset_sdpa_report();

/// The report as lines of text.
std::string to_string(const SdpaReport& report);

}  // namespace attentive

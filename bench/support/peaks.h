#pragma once

#include <functional>
#include <string>

#include <c10/core/Device.h>

#include "support/timing.h"

namespace bench {

/// Measures the flop/s of `loop(steps)` on `threads` threads at once, given the flops of one step.
struct Loop {
  std::function<void(int64_t steps)> run;
  double flops_a_step = 0;
  int threads = 1;

  double rate_over(int64_t steps) const;
  /// Measures with as many steps as take about `seconds` at `rate`.
  double rate_for(double seconds, double rate) const;
  /// Measures for about a second, by many short runs: on a busy machine, all threads are rarely free for
  /// longer.
  Rate measure(int64_t fewest_steps, int64_t most_steps) const;
};

/// Measures the flop/s of at::mm for square matrices on all threads, at the largest size that a second
/// allows.
enum class MatrixType { Float, BFloat16 };
Rate large_product(MatrixType type);

/// A limit that this machine cannot exceed.
struct Peak {
  double rate = 0;     ///< flop/s or bytes/s
  std::string method;  ///< how it was measured
  /// Measures the current rate for about the given number of seconds. Not set if the limit was not measured
  /// by a loop.
  std::function<double(double seconds)> probe = {};
  bool borrowed = false;  ///< float32's limit, because no product of this type is faster
};

enum class Limit { None, Fp32, Bf16, Read };

/// The limits of this machine with `threads` threads and the instruction sets in use.
struct Peaks {
  int threads = 0;
  Peak fp32;
  Peak bf16;  ///< products with float32 accumulation
  Peak read;  ///< from memory

  /// Returns nullptr for Limit::None.
  const Peak* find(Limit limit) const;
  /// Records that a probe reached `rate`: on a disturbed machine, a limit is the highest rate ever measured.
  void raise(Limit limit, double rate);
};

/// Measures all limits, in a few seconds; `say` receives each limit as text when it is known.
Peaks measure_peaks(int threads, const std::function<void(const std::string&)>& say);
/// Measures the limits of a GPU by PyTorch's large products and sums. Also runs on the CPU, for testing.
Peaks measure_device_peaks(at::Device device, const std::function<void(const std::string&)>& say);

/// Measures the current rate of `limit` for about `seconds`; 0 if there is no loop for it. Other load on the
/// machine slows this down as it slows down a timed case.
double probe(const Peaks& peaks, Limit limit, double seconds);

Peak fp32_peak(int threads);
/// If no bfloat16 product is faster than float32's limit, returns that limit, because numbers may be widened.
Peak bf16_peak(int threads, const Peak& fp32);
Peak read_peak();

void say_peak(const std::function<void(const std::string&)>& say, const char* name, const char* unit,
              const Peak& peak);

/// Reads every byte of a buffer with all threads; the returned sum prevents the compiler from removing the
/// loop.
double read_all(const float* data, long count);

}  // namespace bench

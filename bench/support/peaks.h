#pragma once

#include <string>

namespace bench {

/// What this machine can do with `threads` threads, measured when the program starts: the best of several
/// short runs, because a limit is what was reached once.
struct Peaks {
  int threads = 0;
  double fp32 = 0;          ///< flop/s
  std::string fp32_method;  ///< how it was reached
  double bf16 = 0;          ///< flop/s, products with float32 accumulation
  std::string bf16_method;
  double read = 0;  ///< bytes/s, from memory
  std::string read_method;
};

Peaks measure_peaks(int threads);

enum class Limit { None, Fp32, Bf16, Read };

/// Flop/s of the loop behind `peaks.fp32` or `peaks.bf16` right now, over about `seconds`; 0 for another
/// limit or where the limit was found in another way. What a busy machine takes from a timed case, it takes
/// from this too.
double probe(const Peaks& peaks, Limit limit, double seconds);

/// Reads every byte of a buffer with all threads; the sum keeps the compiler from leaving it out.
double read_all(const float* data, long count);

}  // namespace bench

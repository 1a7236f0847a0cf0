#pragma once

#include <functional>
#include <string>

#include <c10/core/Device.h>

namespace bench {

/// One thing that this machine cannot exceed.
struct Peak {
  double rate = 0;     ///< flop/s or bytes/s
  std::string method;  ///< how it was reached
  /// The rate right now, over about so many seconds. Not set where the limit was not found by a loop.
  std::function<double(double seconds)> probe = {};
  bool borrowed = false;  ///< float32's limit, as nothing of this type is faster
};

enum class Limit { None, Fp32, Bf16, Read };

/// What this machine can do with `threads` threads and the instruction sets in use.
struct Peaks {
  int threads = 0;
  Peak fp32;
  Peak bf16;  ///< products with float32 accumulation
  Peak read;  ///< from memory

  /// Nullptr for Limit::None.
  const Peak* of(Limit limit) const;
  /// A probe has reached `rate`: a limit is the most that was ever measured, on a machine that others disturb.
  void raise(Limit limit, double rate);
};

/// Takes a few seconds on any machine; `say` gets each limit in words as soon as it is known.
Peaks measure_peaks(int threads, const std::function<void(const std::string&)>& say);
/// The same of a GPU: PyTorch's large products and sums. On the CPU, for trying it.
Peaks measure_device_peaks(at::Device device, const std::function<void(const std::string&)>& say);

/// Rate of `limit` right now, over about `seconds`; 0 where no loop tells. What a busy machine takes from a
/// timed case, it takes from this too.
double probe(const Peaks& peaks, Limit limit, double seconds);

Peak fp32_peak(int threads);
/// Where no product of bfloat16 is faster than float32's limit, that limit: numbers may be widened.
Peak bf16_peak(int threads, const Peak& fp32);
Peak read_peak();

void say_peak(const std::function<void(const std::string&)>& say, const char* name, const char* unit,
              const Peak& peak);

/// Reads every byte of a buffer with all threads; the sum keeps the compiler from leaving it out.
double read_all(const float* data, long count);

}  // namespace bench

#include "support/peaks.h"

#include <algorithm>

#include <fmt/format.h>

namespace bench {

const Peak* Peaks::find(Limit limit) const {
  switch (limit) {
    case Limit::None:
      break;
    case Limit::Fp32:
      return &fp32;
    case Limit::Bf16:
      return &bf16;
    case Limit::Read:
      return &read;
  }
  return nullptr;
}

void Peaks::raise(Limit limit, double rate) {
  const bool shared = bf16.borrowed && (limit == Limit::Fp32 || limit == Limit::Bf16);
  if (limit == Limit::Fp32 || shared) fp32.rate = std::max(fp32.rate, rate);
  if (limit == Limit::Bf16 || shared) bf16.rate = std::max(bf16.rate, rate);
  if (limit == Limit::Read) read.rate = std::max(read.rate, rate);
}

double probe(const Peaks& peaks, Limit limit, double seconds) {
  const auto* peak = peaks.find(limit);
  return peak && peak->probe ? peak->probe(seconds) : 0;
}

void say_peak(const std::function<void(const std::string&)>& say, const char* name, const char* unit,
              const Peak& peak) {
  say(fmt::format("{} {:.4g} {} ({})", name, peak.rate / 1e9, unit, peak.method));
}

Peaks measure_peaks(int threads, const std::function<void(const std::string&)>& say) {
  Peaks peaks;
  peaks.threads = threads;
  peaks.fp32 = fp32_peak(threads);
  say_peak(say, "fp32", "GF/s", peaks.fp32);
  peaks.bf16 = bf16_peak(threads, peaks.fp32);
  say_peak(say, "bf16", "GF/s", peaks.bf16);
  peaks.read = read_peak();
  say_peak(say, "read", "GB/s", peaks.read);
  return peaks;
}

}  // namespace bench

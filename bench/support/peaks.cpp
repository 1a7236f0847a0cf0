#include "support/peaks.h"

#include <algorithm>

#include <fmt/format.h>

namespace bench {

const Peak* Peaks::of(Limit limit) const {
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
  const auto* peak = peaks.of(limit);
  return peak && peak->probe ? peak->probe(seconds) : 0;
}

Peaks measure_peaks(int threads, const std::function<void(const std::string&)>& say) {
  Peaks peaks;
  peaks.threads = threads;
  peaks.fp32 = fp32_peak(threads);
  say(fmt::format("fp32 {:.4g} GF/s ({})", peaks.fp32.rate / 1e9, peaks.fp32.method));
  peaks.bf16 = bf16_peak(threads, peaks.fp32);
  say(fmt::format("bf16 {:.4g} GF/s ({})", peaks.bf16.rate / 1e9, peaks.bf16.method));
  peaks.read = read_peak();
  say(fmt::format("read {:.3g} GB/s ({})", peaks.read.rate / 1e9, peaks.read.method));
  return peaks;
}

}  // namespace bench

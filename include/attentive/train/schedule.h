#pragma once

#include <cstdint>

namespace attentive {

/// The learning rate by step: a linear warm-up to `peak`, followed by half a cosine down to `floor`.
///
///   step < warmup:  peak * (step + 1) / (warmup + 1)
///   step >= total:  floor
///   between:        floor + (peak - floor) * (1 + cos(pi * (step - warmup) / (total - warmup))) / 2
///
///   attentive::CosineSchedule schedule{.peak = 1e-3, .floor = 1e-4, .warmup = 100, .total = 2000};
///   optimizer.options.learning_rate = schedule.at(step);
struct CosineSchedule {
  double peak = 1e-3;
  double floor = 0.0;
  int64_t warmup = 0;
  int64_t total = 0;

  /// The learning rate of a step, counted from 0. Throws c10::ValueError for invalid settings: a negative or
  /// non-finite rate, a floor above the peak, or a negative count.
  double at(int64_t step) const;
};

}  // namespace attentive

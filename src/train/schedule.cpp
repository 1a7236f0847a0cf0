#include <cmath>
#include <numbers>

#include <c10/util/Exception.h>

#include <attentive/train/schedule.h>

namespace attentive {

double CosineSchedule::at(int64_t step) const {
  constexpr const char* caller = "CosineSchedule";
  TORCH_CHECK_VALUE(std::isfinite(peak) && floor >= 0.0 && floor <= peak, caller,
                    ": expected 0 <= floor <= peak, got floor = ", floor, ", peak = ", peak);
  TORCH_CHECK_VALUE(warmup >= 0 && total >= 0, caller, ": expected warmup >= 0 and total >= 0, got ", warmup,
                    " and ", total);
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup + 1);
  if (step >= total) return floor;
  const double progress = static_cast<double>(step - warmup) / static_cast<double>(total - warmup);
  return floor + (peak - floor) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
}

}  // namespace attentive

#include <attentive/accelerate.h>

#include "accelerate/doors.h"
#include "accelerate/sdpa_call.h"

namespace attentive {

using accelerate::sdpa_switch;
using accelerate::Switch;

void accelerate_sdpa(const SdpaOptions& options) {
  // If it throws, the next call tries again.
  [[maybe_unused]] static const bool open = (accelerate::open_doors(), true);
  sdpa_switch() = options.dropout == SdpaDropout::Exact ? Switch::ExactDropout : Switch::OurDropout;
}

void stop_accelerating_sdpa() {
  sdpa_switch() = Switch::Off;
}

bool accelerates_sdpa() {
  return sdpa_switch() != Switch::Off;
}

SdpaGuard::SdpaGuard(const SdpaOptions& options) : accelerated_(accelerates_sdpa()) {
  if (sdpa_switch() == Switch::ExactDropout) options_.dropout = SdpaDropout::Exact;
  accelerate_sdpa(options);
}

SdpaGuard::~SdpaGuard() {
  if (!accelerated_) {
    stop_accelerating_sdpa();
  } else {
    sdpa_switch() = options_.dropout == SdpaDropout::Exact ? Switch::ExactDropout : Switch::OurDropout;
  }
}

}  // namespace attentive

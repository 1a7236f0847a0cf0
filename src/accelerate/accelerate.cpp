#include <attentive/accelerate.h>

#include "accelerate/doors.h"
#include "accelerate/sdpa_call.h"

namespace attentive {

using accelerate::sdpa_switch;
using accelerate::Switch;

namespace {

Switch switch_for(const SdpaOptions& options) {
  return options.dropout == SdpaDropout::Exact ? Switch::ExactDropout : Switch::OurDropout;
}

}  // namespace

void accelerate_sdpa(const SdpaOptions& options) {
  // If it throws, the next call tries again.
  [[maybe_unused]] static const bool open = (accelerate::open_doors(), true);
  sdpa_switch() = switch_for(options);
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
  sdpa_switch() = accelerated_ ? switch_for(options_) : Switch::Off;
}

}  // namespace attentive

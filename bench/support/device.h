#pragma once

#include <c10/core/Device.h>

namespace bench {

/// Waits until the device has finished its queued work. Does nothing on the CPU.
void finish(at::Device device);

}  // namespace bench

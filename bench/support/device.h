#pragma once

#include <c10/core/Device.h>

namespace bench {

/// Waits until the device has done what it was given. Nothing to do on the CPU.
void finish(at::Device device);

}  // namespace bench

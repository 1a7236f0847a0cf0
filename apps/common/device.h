#pragma once

#include <string>

#include <c10/core/Device.h>

namespace apps {

/// The device for --device: "cpu", "cuda", or "auto" for CUDA if there is a device. Throws c10::ValueError
/// for "cuda" without a CUDA device.
c10::Device choose_device(const std::string& name);

}  // namespace apps

#pragma once

// Philox4x32 (Salmon et al. 2011), shared by every implementation of the Counter dropout stream.

#include <cstdint>

namespace attentive::kernels {

inline constexpr int kPhiloxRounds = 7;
inline constexpr uint32_t kPhiloxM0 = 0xD2511F53u;
inline constexpr uint32_t kPhiloxM1 = 0xCD9E8D57u;
inline constexpr uint32_t kPhiloxW0 = 0x9E3779B9u;
inline constexpr uint32_t kPhiloxW1 = 0xBB67AE85u;

}  // namespace attentive::kernels

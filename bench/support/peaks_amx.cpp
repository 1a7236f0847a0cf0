// The loop for the bfloat16 limit of a CPU with a matrix unit. It includes no header with inline library
// code, because this unit is compiled for instructions that the CPU may lack.

namespace bench {

double amx_flops_a_step();
void amx_loop(long steps);

}  // namespace bench

// Up to release 14, clang called these macros __AMXBF16__ and __AMXTILE__.
#if (defined(__AMX_BF16__) || defined(__AMXBF16__)) && defined(__linux__)

#include <cpuid.h>
#include <cstdint>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace bench {

double amx_flops_a_step() {
  static const bool permitted = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    constexpr unsigned kBf16 = 1U << 22, kTile = 1U << 24;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kBf16) == 0 || (d & kTile) == 0) return false;
    constexpr long kRequestPermission = 0x1023, kTileData = 18;  // arch_prctl(2)
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return permitted ? 4 * 2.0 * 16 * 16 * 32 : 0;
}

void amx_loop(long steps) {
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } config;
  // The unit is slower with numbers of all kinds than with zeros, as its clock falls. These are between -4
  // and 4. GCC's intrinsics do not declare what they read.
  alignas(64) uint16_t numbers[4][16 * 32];
  uint32_t state = 1;
  for (auto& tile : numbers) {
    for (uint16_t& x : tile) {
      state = state * 1664525u + 1013904223u;
      x = static_cast<uint16_t>((state >> 16 & 0x807f) | ((state >> 30) + 125) << 7);
    }
  }
  __asm__ volatile("" : : "r"(&config), "r"(numbers) : "memory");
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, numbers[0], 64);
  _tile_loadd(5, numbers[1], 64);
  _tile_loadd(6, numbers[2], 64);
  _tile_loadd(7, numbers[3], 64);
  for (long step = 0; step < steps; ++step) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
}

}  // namespace bench

#else

namespace bench {

double amx_flops_a_step() {
  return 0;
}
void amx_loop(long) {}

}  // namespace bench

#endif

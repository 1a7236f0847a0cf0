#pragma once

// The registers of the matrix unit, by numbers that are template arguments. It is for sources that are
// compiled for AMX.

#if defined(__AMX_BF16__) || defined(__AMXBF16__)  // as clang called it up to release 14

#include <immintrin.h>

#include "kernels/simd/matrix.h"

namespace attentive::kernels::cpu {
namespace {

struct AmxTiles {
  template <int n>
  struct Number {
    static constexpr int value = n;
  };

  // GCC's tile intrinsics do not tell the compiler which memory they read and write.
  ATTENTIVE_ALWAYS_INLINE static void written_for_tiles() { __asm__ volatile("" ::: "memory"); }

  // The intrinsics take the numbers of registers as literals only.
#define ATTENTIVE_EACH_TILE(n, use) \
  if constexpr (n == 0) use(0);     \
  if constexpr (n == 1) use(1);     \
  if constexpr (n == 2) use(2);     \
  if constexpr (n == 3) use(3);     \
  if constexpr (n == 4) use(4);     \
  if constexpr (n == 5) use(5);     \
  if constexpr (n == 6) use(6);     \
  if constexpr (n == 7) use(7)
  template <int n>
  ATTENTIVE_ALWAYS_INLINE static void load_tile(const void* from, int64_t row_bytes) {
#define ATTENTIVE_USE(t) _tile_loadd(t, from, row_bytes)
    ATTENTIVE_EACH_TILE(n, ATTENTIVE_USE);
#undef ATTENTIVE_USE
  }
  // Leaves what the first cache holds in place.
  template <int n>
  ATTENTIVE_ALWAYS_INLINE static void stream_tile(const void* from, int64_t row_bytes) {
#define ATTENTIVE_USE(t) _tile_stream_loadd(t, from, row_bytes)
    ATTENTIVE_EACH_TILE(n, ATTENTIVE_USE);
#undef ATTENTIVE_USE
  }
  template <int n>
  ATTENTIVE_ALWAYS_INLINE static void store_tile(void* to, int64_t row_bytes) {
#define ATTENTIVE_USE(t) _tile_stored(t, to, row_bytes)
    ATTENTIVE_EACH_TILE(n, ATTENTIVE_USE);
#undef ATTENTIVE_USE
  }
  template <int n>
  ATTENTIVE_ALWAYS_INLINE static void zero_tile() {
    ATTENTIVE_EACH_TILE(n, _tile_zero);
  }
#undef ATTENTIVE_EACH_TILE
  // Register `sum` += register `left` times register `right`.
  template <int sum, int left, int right>
  ATTENTIVE_ALWAYS_INLINE static void multiply() {
#define ATTENTIVE_RIGHT(s, l)                                                 \
  if constexpr (sum == s && left == l && right == 6) _tile_dpbf16ps(s, l, 6); \
  if constexpr (sum == s && left == l && right == 7) _tile_dpbf16ps(s, l, 7)
#define ATTENTIVE_LEFT(s) \
  ATTENTIVE_RIGHT(s, 4);  \
  ATTENTIVE_RIGHT(s, 5)
    ATTENTIVE_RIGHT(0, 2);
    ATTENTIVE_RIGHT(0, 3);
    ATTENTIVE_RIGHT(1, 2);
    ATTENTIVE_RIGHT(1, 3);
    ATTENTIVE_LEFT(0);
    ATTENTIVE_LEFT(1);
    ATTENTIVE_LEFT(2);
    ATTENTIVE_LEFT(3);
#undef ATTENTIVE_LEFT
#undef ATTENTIVE_RIGHT
  }
};

}  // namespace
}  // namespace attentive::kernels::cpu

#endif

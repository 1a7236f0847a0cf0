#pragma once

// The operations of units (unit_operations_amx.h) in plain C++, with the same bits: for tests on machines
// without a matrix unit. A product sums even and odd features apart, each by fused multiplications, and adds
// both to the sum; numbers below the smallest normal one are 0 everywhere.

#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/attention/units.h"

namespace attentive::kernels::cpu {
namespace {

struct Ops {
  struct Floats {
    float at[16];
  };
  struct Words {
    uint16_t at[32];
  };
  template <int n>
  struct Number {
    static constexpr int value = n;
  };
  struct Tile {
    alignas(64) uint8_t bytes[16][64];
  };
  static inline thread_local Tile tiles[8];

  static void written_for_tiles() {}
  template <int n>
  static void load_tile(const void* from, int64_t row_bytes) {
    for (int64_t r = 0; r < 16; ++r)
      std::memcpy(tiles[n].bytes[r], static_cast<const char*>(from) + r * row_bytes, 64);
  }
  template <int n>
  static void stream_tile(const void* from, int64_t row_bytes) {
    load_tile<n>(from, row_bytes);
  }
  template <int n>
  static void store_tile(void* to, int64_t row_bytes) {
    for (int64_t r = 0; r < 16; ++r)
      std::memcpy(static_cast<char*>(to) + r * row_bytes, tiles[n].bytes[r], 64);
  }
  template <int n>
  static void zero_tile() {
    tiles[n] = {};
  }
  template <int sum, int left, int right>
  static void multiply() {
    for (int m = 0; m < 16; ++m) {
      for (int n = 0; n < 16; ++n) {
        float even = 0.0f, odd = 0.0f, total;
        for (int p = 0; p < 16; ++p) {
          bf16_t a[2], b[2];
          std::memcpy(a, tiles[left].bytes[m] + 4 * p, sizeof(a));
          std::memcpy(b, tiles[right].bytes[p] + 4 * n, sizeof(b));
          even = normal(std::fma(widened(a[0]), widened(b[0]), even));
          odd = normal(std::fma(widened(a[1]), widened(b[1]), odd));
        }
        std::memcpy(&total, tiles[sum].bytes[m] + 4 * n, sizeof(total));
        total = normal(normal(total) + normal(even + odd));
        std::memcpy(tiles[sum].bytes[m] + 4 * n, &total, sizeof(total));
      }
    }
  }
  static void begin() {}
  static void end() {}

  static Floats load(const float* p) { return copied<Floats>(p); }
  static void store(float* p, const Floats& x) { std::memcpy(p, &x, sizeof(x)); }
  static Words load_words(const bf16_t* p) { return copied<Words>(p); }
  static void store(bf16_t* p, const Words& x) { std::memcpy(p, &x, sizeof(x)); }
  static Floats all(float x) {
    return floats([=](int) { return x; });
  }
  static Words words(uint16_t x) {
    return each([=](int) { return x; });
  }
  static Words halves(float x) { return words(to_half(x)); }
  static Floats fma(const Floats& a, const Floats& b, const Floats& c) {
    return floats([&](int i) { return std::fma(a.at[i], b.at[i], c.at[i]); });
  }
  static Floats times(const Floats& a, const Floats& b) {
    return floats([&](int i) { return normal(a.at[i] * b.at[i]); });
  }
  static Floats inverse(const Floats& x) {
    return floats([&](int i) { return normal(1.0f / x.at[i]); });
  }
  static Floats sum_of_each(const Floats (&x)[16]) {
    return floats([&](int r) {
      Floats y = x[r];
      for (int half = 8; half > 0; half /= 2) {
        for (int i = 0; i < half; ++i) y.at[i] += y.at[i + half];
      }
      return y.at[0];
    });
  }
  static uint64_t first_bits(int32_t n) {
    return n >= 64 ? ~uint64_t{0} : n <= 0 ? 0 : (uint64_t{1} << n) - 1;
  }
  static Floats larger(const Floats& top, const Floats& x, uint16_t shown) {
    return floats([&](int i) { return (shown >> i & 1) != 0 && x.at[i] > top.at[i] ? x.at[i] : top.at[i]; });
  }
  static Floats largest_of_each(const Floats (&x)[16]) {
    return floats([&](int i) {
      float top = x[i].at[0];
      for (const float y : x[i].at) top = y > top ? y : top;
      return top;
    });
  }
  static Floats nearest(const Floats& x) {
    return floats([&](int i) { return std::nearbyint(x.at[i]); });
  }
  static uint32_t within(const Floats& x, float bound) {
    uint32_t bits = 0;
    for (int i = 0; i < 16; ++i) bits |= static_cast<uint32_t>(std::fabs(x.at[i]) <= bound) << i;
    return bits;
  }
  static uint32_t below(const Floats& x, float bound) {
    uint32_t bits = 0;
    for (int i = 0; i < 16; ++i) bits |= static_cast<uint32_t>(x.at[i] < bound) << i;
    return bits;
  }
  static void store(float* p, const Floats& x, uint32_t which) {
    for (int i = 0; i < 16; ++i) {
      if ((which >> i & 1) != 0) p[i] = x.at[i];
    }
  }

  static Words saturated(const Floats& a, const Floats& b) {
    return each([&](int i) {
      const int key = key_of_word(i);
      const auto above = static_cast<int64_t>(std::bit_cast<int32_t>(key < 16 ? a.at[key] : b.at[key - 16]));
      const int64_t x = above - 0x4b000000;
      return static_cast<uint16_t>(x < 0 ? 0 : x > 0xffff ? 0xffff : x);
    });
  }
  static Words select(const Words& which, const Words& a, const Words& b) {
    return each(
        [&](int i) { return static_cast<uint16_t>((a.at[i] & which.at[i]) | (b.at[i] & ~which.at[i])); });
  }
  static Words half_fma(const Words& a, const Words& b, const Words& c) {
    return each([&](int i) { return to_half(from_half(a.at[i]) * from_half(b.at[i]) + from_half(c.at[i])); });
  }
  static Words quarter(const Words& x) {
    return each([&](int i) { return static_cast<uint16_t>(x.at[i] >> 2); });
  }
  static Words keep(const Words& x, uint32_t shown) {
    return each([&](int i) { return (shown >> key_of_word(i) & 1) != 0 ? x.at[i] : uint16_t{0}; });
  }
  static Floats add_pairs(const Floats& total, const Words& x) {
    return floats([&](int i) {
      return normal(normal(normal(total.at[i]) + widened(x.at[2 * i + 1])) + widened(x.at[2 * i]));
    });
  }
  static Words rounded(const Floats& first, const Floats& second) {
    return each([&](int i) { return rounded(i < 16 ? first.at[i] : second.at[i - 16]); });
  }
  static void store_rounded(bf16_t* to, const Floats& first, const Floats& second) {
    store(to, rounded(first, second));
  }
  static Floats first_half(const Words& x) {
    return floats([&](int i) { return as_float(x.at[i / 4 * 8 + i % 4]); });
  }
  static Floats second_half(const Words& x) {
    return floats([&](int i) { return as_float(x.at[i / 4 * 8 + i % 4 + 4]); });
  }
  static Words in_order(const Words& x) {
    return each([&](int i) { return x.at[i % 16 / 4 * 8 + i % 4 + (i < 16 ? 0 : 4)]; });
  }
  static Floats keep(const Floats& x, uint16_t shown) {
    return floats([&](int i) { return (shown >> i & 1) != 0 ? x.at[i] : 0.0f; });
  }
  static uint32_t bits_of(const uint16_t* from, int bit) {
    uint32_t bits = 0;
    for (int i = 0; i < 32; ++i) bits |= static_cast<uint32_t>(from[i] >> bit & 1) << i;
    return bits;
  }

  static Words larger_magnitudes(const Words& top, const Words& x) {
    return each([&](int i) {
      const auto size = static_cast<uint16_t>(x.at[i] & 0x7fff);
      return size > top.at[i] ? size : top.at[i];
    });
  }
  static bool any_from(const Words& x, uint16_t bound) {
    bool any = false;
    for (const uint16_t y : x.at) any |= y >= bound;
    return any;
  }
  static Words either(const Words& a, const Words& b) {
    return each([&](int i) { return static_cast<uint16_t>(a.at[i] | b.at[i]); });
  }
  static bool any_bits(const Words& x, uint16_t bits) {
    bool any = false;
    for (const uint16_t y : x.at) any |= (y & bits) != 0;
    return any;
  }
  static uint64_t bits(const uint8_t* bytes, int64_t count) {
    uint64_t all = 0;
    for (int64_t i = 0; i < count; ++i) all |= static_cast<uint64_t>(bytes[i] != 0) << i;
    return all;
  }
  static void transpose(const bf16_t* from, int64_t stride, bf16_t* to) {
    for (int64_t r = 0; r < 16; ++r) {
      for (int64_t p = 0; p < 16; ++p) std::memcpy(to + 32 * p + 2 * r, from + r * stride + 2 * p, 4);
    }
  }
  static void interleave(const Words& x, const Words& y, bf16_t* first, bf16_t* second) {
    for (int i = 0; i < 32; ++i) {
      bf16_t* const to = (i < 16 ? first : second) + 2 * (i % 16);
      to[0] = x.at[i];
      to[1] = y.at[i];
    }
  }

 private:
  template <class To, class From>
  static To copied(const From* p) {
    To x;
    std::memcpy(&x, p, sizeof(x));
    return x;
  }
  template <class Each>
  static Floats floats(const Each& number) {
    Floats x;
    for (int i = 0; i < 16; ++i) x.at[i] = number(i);
    return x;
  }
  template <class Each>
  static Words each(const Each& number) {
    Words x;
    for (int i = 0; i < 32; ++i) x.at[i] = number(i);
    return x;
  }
  static float normal(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }
  static float as_float(bf16_t x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }
  static float widened(bf16_t x) { return normal(as_float(x)); }
  static bf16_t rounded(float x) {
    if (x != x) return static_cast<bf16_t>(std::bit_cast<uint32_t>(x) >> 16 | 0x40u);
    const auto bits = std::bit_cast<uint32_t>(normal(x));
    return static_cast<bf16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
  // Normal numbers of float16 alone, which the cubic of weights_of does not leave.
  static double from_half(uint16_t x) {
    const double size = std::ldexp(1024 + (x & 0x3ff), (x >> 10 & 0x1f) - 25);
    return (x & 0x8000) != 0 ? -size : size;
  }
  static uint16_t to_half(double x) {
    int exponent;
    const double fraction = std::frexp(std::fabs(x), &exponent);  // in [0.5, 1)
    const auto digits = static_cast<int>(std::nearbyint(fraction * 2048)) + ((exponent + 13) << 10);
    return static_cast<uint16_t>(digits | (x < 0 ? 0x8000 : 0));
  }
};

}  // namespace
}  // namespace attentive::kernels::cpu

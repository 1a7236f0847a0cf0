#include "files/zip/crc32.h"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace attentive {
namespace {

// Polynomials over GF(2) modulo P are stored reflected: bit 31 - i is the coefficient of x^i. The state is
// the remainder of the message so far; a CRC-32 is the state inverted at the beginning and at the end.
constexpr uint32_t kPolynomial = 0xEDB88320;

constexpr uint32_t times_x(uint32_t value) {
  return (value >> 1) ^ ((value & 1) ? kPolynomial : 0);
}

constexpr size_t kSlices = 16;
using Tables = std::array<std::array<uint32_t, 256>, kSlices>;

// tables[k][b]: how byte b changes the state when k more bytes follow it.
constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t state = byte;
    for (int bit = 0; bit < 8; ++bit) state = times_x(state);
    tables[0][byte] = state;
  }
  for (size_t k = 1; k < kSlices; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const auto earlier = tables[k - 1][byte];
      tables[k][byte] = (earlier >> 8) ^ tables[0][earlier & 0xFF];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

// Processes sixteen bytes per step, each with a table of its own.
uint32_t update_by_tables(uint32_t state, const unsigned char* data, size_t size) {
  static_assert(std::endian::native == std::endian::little);
  for (; size >= kSlices; data += kSlices, size -= kSlices) {
    std::array<uint32_t, 4> words;
    std::memcpy(words.data(), data, kSlices);
    words[0] ^= state;
    state = 0;
    for (size_t k = 0; k < kSlices; ++k) {
      state ^= kTables[kSlices - 1 - k][(words[k / 4] >> (8 * (k % 4))) & 0xFF];
    }
  }
  for (; size > 0; ++data, --size) state = (state >> 8) ^ kTables[0][(state ^ *data) & 0xFF];
  return state;
}

#if defined(__x86_64__)

// The carry-less product of two reflected 64-bit polynomials a and b, read as a reflected 128-bit one, is a *
// b * x. Therefore x^(n - 1) mod P in the upper half of a 64-bit word multiplies by x^n.
constexpr long long power_of_x(int n) {
  uint32_t value = 0x80000000;
  for (int i = 1; i < n; ++i) value = times_x(value);
  return static_cast<long long>(static_cast<uint64_t>(value) << 32);
}

// fold() moves a block of 128 bits to the position `kDistance` bits later. The first 8 bytes of a block, its
// low half, have the higher powers.
#define ATTENTIVE_TARGET __attribute__((target("pclmul,sse4.1")))

template <int kDistance>
ATTENTIVE_TARGET inline __m128i fold(__m128i block, __m128i next) {
  constexpr auto kHigh = power_of_x(kDistance + 64), kLow = power_of_x(kDistance);
  const __m128i powers = _mm_set_epi64x(kLow, kHigh);
  return _mm_xor_si128(next, _mm_xor_si128(_mm_clmulepi64_si128(block, powers, 0x00),
                                           _mm_clmulepi64_si128(block, powers, 0x11)));
}

ATTENTIVE_TARGET inline __m128i load(const unsigned char* data) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(data));
}

// Keeps four interleaved blocks. The sum of the blocks, each moved to the end of the message, is congruent to
// the message, so they may replace it if the state is set to zero.
ATTENTIVE_TARGET uint32_t update_by_pclmul(uint32_t state, const unsigned char* data, size_t size) {
  constexpr size_t kStep = 64;
  if (size < 4 * kStep) return update_by_tables(state, data, size);
  __m128i blocks[4];
  for (int i = 0; i < 4; ++i) blocks[i] = load(data + 16 * i);
  blocks[0] = _mm_xor_si128(blocks[0], _mm_cvtsi32_si128(static_cast<int>(state)));
  for (data += kStep, size -= kStep; size >= kStep; data += kStep, size -= kStep) {
    for (int i = 0; i < 4; ++i) blocks[i] = fold<512>(blocks[i], load(data + 16 * i));
  }
  unsigned char rest[kStep];
  std::memcpy(rest, blocks, kStep);
  return update_by_tables(update_by_tables(0, rest, kStep), data, size);
}
#undef ATTENTIVE_TARGET

#endif

template <uint32_t (*update)(uint32_t, const unsigned char*, size_t)>
uint32_t run(uint32_t before, const void* data, size_t size) {
  return ~update(~before, static_cast<const unsigned char*>(data), size);
}

constexpr Crc32Method kByTables = {"tables", run<update_by_tables>};
#if defined(__x86_64__)
constexpr Crc32Method kByPclmul = {"pclmul", run<update_by_pclmul>};
#endif

}  // namespace

const Crc32Method& select_crc32([[maybe_unused]] const CpuFeatures& cpu,
                                [[maybe_unused]] std::string_view limit) {
#if defined(__x86_64__)
  if (cpu.pclmul && limit != "default") return kByPclmul;
#endif
  return kByTables;
}

std::vector<Crc32Method> crc32_methods() {
  std::vector<Crc32Method> methods = {kByTables};
  const auto& fastest = select_crc32(this_cpu(), "");
  if (&fastest != &kByTables) methods.push_back(fastest);
  return methods;
}

uint32_t crc32(uint32_t before, const void* data, size_t size) {
  static const auto& method = select_crc32(this_cpu(), cpu_limit());
  return method.run(before, data, size);
}

}  // namespace attentive

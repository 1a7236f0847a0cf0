#include "core/digest.h"

#include <cstring>

namespace attentive {

// Each step is injective both in the digest so far and in the word, so two texts of equal length that differ
// in a single word never have the same digest.
uint64_t digest_of(std::string_view bytes) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
  uint64_t digest = bytes.size();
  const auto take = [&](const char* from, size_t count) {
    uint64_t word = 0;
    std::memcpy(&word, from, count);
    digest = (digest ^ word) * kOdd;
    digest ^= digest >> 32;
  };
  const size_t whole = bytes.size() / sizeof(uint64_t) * sizeof(uint64_t);
  for (size_t i = 0; i < whole; i += sizeof(uint64_t)) take(bytes.data() + i, sizeof(uint64_t));
  if (whole < bytes.size()) take(bytes.data() + whole, bytes.size() - whole);
  return digest;
}

}  // namespace attentive

#include "core/memory.h"

#include <cstring>
#include <sys/mman.h>

namespace attentive {

void advise_huge_pages_at(void* data, uint64_t bytes) {
  constexpr uintptr_t kLarge = uintptr_t{2} << 20;
  const auto begin = (reinterpret_cast<uintptr_t>(data) + kLarge - 1) / kLarge * kLarge;
  const auto end = (reinterpret_cast<uintptr_t>(data) + bytes) / kLarge * kLarge;
  if (begin < end) (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

at::Tensor advise_huge_pages(at::Tensor fresh) {
  constexpr size_t kFromSystem = size_t{32} << 20;  // the largest value of glibc's M_MMAP_THRESHOLD
  const auto bytes = fresh.storage().nbytes();
  if (bytes >= kFromSystem) advise_huge_pages_at(fresh.mutable_data_ptr(), bytes);
  return fresh;
}

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

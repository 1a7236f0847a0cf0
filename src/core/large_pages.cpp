#include "core/large_pages.h"

#include <sys/mman.h>

namespace attentive {

void prefer_large_pages(void* data, uint64_t bytes) {
  constexpr uintptr_t kLarge = uintptr_t{2} << 20;
  const auto begin = (reinterpret_cast<uintptr_t>(data) + kLarge - 1) / kLarge * kLarge;
  const auto end = (reinterpret_cast<uintptr_t>(data) + bytes) / kLarge * kLarge;
  if (begin < end) (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

at::Tensor in_large_pages(at::Tensor fresh) {
  constexpr size_t kFromSystem = size_t{32} << 20;  // the largest value of glibc's M_MMAP_THRESHOLD
  const auto bytes = fresh.storage().nbytes();
  if (bytes >= kFromSystem) prefer_large_pages(fresh.mutable_data_ptr(), bytes);
  return fresh;
}

}  // namespace attentive

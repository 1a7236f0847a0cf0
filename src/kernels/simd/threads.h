#pragma once

// Work that threads share, and their arithmetic meanwhile.

#include <algorithm>
#include <atomic>
#include <vector>

#include <ATen/Parallel.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace attentive::kernels::cpu {

// While it lives, results of this thread below the smallest normal number (1.2e-38) are 0. Sums that begin
// with far keys under ALiBi pass through that range, where every addition costs a hundred cycles.
class FlushTiny {
 public:
#if defined(__SSE__)
  FlushTiny() : saved_(_mm_getcsr()) {
    _mm_setcsr(saved_ | _MM_FLUSH_ZERO_ON);
  }
  ~FlushTiny() {
    _mm_setcsr(saved_);
  }
#elif defined(__aarch64__)
  // Flush-to-zero of FPCR, which takes operands of that size for 0 as well.
  FlushTiny() {
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved_));
    __asm__ volatile("msr fpcr, %0" : : "r"(saved_ | uint64_t{1} << 24) : "memory");
  }
  ~FlushTiny() {
    __asm__ volatile("msr fpcr, %0" : : "r"(saved_) : "memory");
  }
#else
  FlushTiny() {}
#endif
  FlushTiny(const FlushTiny&) = delete;
  FlushTiny& operator=(const FlushTiny&) = delete;

 private:
#if defined(__SSE__)
  unsigned saved_;
#elif defined(__aarch64__)
  uint64_t saved_;
#endif
};

// Runs `work(item)` for 0 <= item < count on all threads. Which thread takes an item has no influence on its
// result. Each begins with a range of its own, so that what it packed is what it reads next, and in the cache
// of its core; one that is done helps the others.
template <class Work>
void for_each_item(int64_t count, bool parallel, const Work& work) {
  const int64_t threads = parallel ? std::min<int64_t>(at::get_num_threads(), count) : 1;
  if (threads <= 1) {
    const FlushTiny flush;
    for (int64_t item = 0; item < count; ++item) work(item);
    return;
  }
  struct alignas(64) Next {  // a line of the cache each
    std::atomic<int64_t> item;
  };
  std::vector<Next> next(static_cast<size_t>(threads));
  const auto start_of = [&](int64_t range) { return count * range / threads; };
  for (int64_t range = 0; range < threads; ++range) next[static_cast<size_t>(range)].item = start_of(range);
  at::parallel_for(0, threads, 1, [&](int64_t own, int64_t) {
    const FlushTiny flush;
    for (int64_t n = 0; n < threads; ++n) {
      const int64_t range = (own + n) % threads, end = start_of(range + 1);
      auto& item = next[static_cast<size_t>(range)].item;
      for (int64_t taken = item++; taken < end; taken = item++) work(taken);
    }
  });
}

}  // namespace attentive::kernels::cpu

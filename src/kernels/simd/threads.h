#pragma once

// Distributes work over threads, and sets their floating-point mode meanwhile.

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace attentive::kernels::cpu {

/// Flushes results of this thread below the smallest normal number (1.2e-38) to 0 for its lifetime. Under
/// ALiBi, sums that begin with distant keys pass through that range, where every addition takes a hundred
/// cycles.
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
  /// The flush-to-zero bit of FPCR also treats operands of that size as 0.
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

/// Runs `work(item)` for 0 <= item < count on all threads. The results must not depend on which thread takes
/// an item. Each thread begins with a fixed range, so that the operands it packed are in the cache of its
/// core when it reads them; a thread that is done takes items of the others.
template <class Work>
void for_each_item(int64_t count, bool parallel, const Work& work) {
  const int64_t threads = parallel ? std::min<int64_t>(at::get_num_threads(), count) : 1;
  if (threads <= 1) {
    const FlushTiny flush;
    for (int64_t item = 0; item < count; ++item) work(item);
    return;
  }
  struct alignas(64) Next {  // one cache line per thread
    std::atomic<int64_t> item;
  };
  std::vector<Next> next(static_cast<size_t>(threads));
  const auto start_of = [&](int64_t range) { return count * range / threads; };
  for (int64_t range = 0; range < threads; ++range) next[static_cast<size_t>(range)].item = start_of(range);
  at::parallel_for(0, threads, 1, [&](int64_t thread, int64_t) {
    const FlushTiny flush;
    for (int64_t n = 0; n < threads; ++n) {
      const int64_t range = (thread + n) % threads, end = start_of(range + 1);
      auto& item = next[static_cast<size_t>(range)].item;
      for (int64_t taken = item++; taken < end; taken = item++) work(taken);
    }
  });
}

/// Groups of items that need the same preparation, such as the queries of a head that need its packed keys.
struct PreparedGroups {
  int64_t count;
  int64_t steps;  ///< of the preparation of each group
  int64_t items;  ///< of each group
  /// Where preparations are kept: one place for each group, or one for each thread that may work.
  int64_t places;
};

/// Runs `work(group, item, place)` for all items on all threads, after `prepare(group, step, place)` for all
/// steps of the group. The results must not depend on which thread takes a step or an item. Each thread
/// begins with groups of its own, whose preparation is then in the cache of its core, and waits for no other
/// thread unless it needs its place again; when these are done, it helps with those of the others, from the
/// last one on. `prepare` must not throw, since other threads may wait for it.
template <class Prepare, class Work>
void for_each_prepared_item(const PreparedGroups& groups, bool parallel, const Prepare& prepare,
                            const Work& work) {
  const int64_t most = groups.count * std::max(groups.steps, groups.items);
  const int64_t threads = parallel ? std::min<int64_t>(at::get_num_threads(), most) : 1;
  struct alignas(64) State {  // one cache line per group
    std::atomic<int64_t> step = 0, prepared = 0, item = 0, done = 0, place = -1;
  };
  std::vector<State> states(static_cast<size_t>(groups.count));
  const auto state_of = [&](int64_t group) -> State& { return states[static_cast<size_t>(group)]; };
  const bool shared = groups.places < groups.count;
  // `last` is the group that has the place of `thread`.
  const auto place_of = [&](int64_t group, int64_t thread, int64_t& last) {
    if (!shared) return group;
    std::atomic<int64_t>& place = state_of(group).place;
    int64_t none = place;
    if (none < 0) {
      while (last >= 0 && state_of(last).done < groups.items) std::this_thread::yield();
      if (place.compare_exchange_strong(none, thread)) last = group;
    }
    return place.load();
  };
  const auto complete = [&](int64_t group, int64_t thread, int64_t& last) {
    State& state = state_of(group);
    if (state.item.load(std::memory_order_relaxed) >= groups.items) return;
    const int64_t place = place_of(group, thread, last);
    for (int64_t taken = state.step++; taken < groups.steps; taken = state.step++) {
      prepare(group, taken, place);
      ++state.prepared;
    }
    while (state.prepared < groups.steps) std::this_thread::yield();
    struct Done {  // also if `work` throws, since the thread whose place it is waits for all items
      std::atomic<int64_t>& count;
      ~Done() { ++count; }
    };
    for (int64_t taken = state.item++; taken < groups.items; taken = state.item++) {
      const Done done{state.done};
      work(group, taken, place);
    }
  };
  const auto start_of = [&](int64_t range) { return groups.count * range / std::max<int64_t>(threads, 1); };
  at::parallel_for(0, threads, 1, [&](int64_t thread, int64_t) {
    const FlushTiny flush;
    int64_t last = -1;
    for (int64_t group = start_of(thread); group < start_of(thread + 1); ++group)
      complete(group, thread, last);
    for (int64_t n = 1; n < threads; ++n) {
      const int64_t range = (thread + n) % threads;
      for (int64_t group = start_of(range + 1); group-- > start_of(range);) complete(group, thread, last);
    }
  });
}

}  // namespace attentive::kernels::cpu

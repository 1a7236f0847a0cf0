#pragma once

// Which key heads of a backward pass are computed at the same time, and by how many threads.

#include "kernels/attention/call.h"
#include "kernels/simd/threads.h"

namespace attentive::kernels::cpu {

constexpr int64_t kPackedBytes = int64_t{32} << 20;  ///< limit on the memory of heads computed at a time
constexpr int64_t kItems = 16;                       ///< the fewest items of work that threads should share

/// Key heads that are computed at the same time, as numbers b * Hkv + h.
struct Turn {
  int64_t first, count, step;
  int64_t head(int64_t n) const { return first + n * step; }
};

/// Calls run(turn) for all key heads. Those whose pairs have the same gradient take turns in adding to it,
/// which fixes the order of the sum.
template <class Run>
void for_each_turn(const CpuArguments& call, const Strided<float>& pair_sums, const Run& run) {
  const int64_t items = call.B, heads = call.Hkv;
  const int64_t item_turns = pair_sums && pair_sums.b == 0 ? items : 1,
                head_turns = pair_sums && pair_sums.h == 0 ? heads : 1;
  for (int64_t b = 0; b < item_turns; ++b) {
    for (int64_t h = 0; h < head_turns; ++h) {
      run(Turn{b * heads + h, items / item_turns * (heads / head_turns), head_turns == 1 ? 1 : heads});
    }
  }
}

/// The work of a turn: heads of `parts` parts each, which take `bytes` of memory per head.
struct TurnWork {
  int64_t parts, bytes;
  bool parallel;
};

/// Computes the heads of a turn. Either each thread computes whole(head) for heads of its own, so that what
/// they need stays in its cache and no step waits for another head; or all threads share(first, count) the
/// heads from number `first` of the turn on. Both must give the same bits.
template <class Whole, class Share>
void compute_turn(const Turn& turn, const TurnWork& work, const Whole& whole, const Share& share) {
  const int64_t heads = turn.count, threads = work.parallel ? at::get_num_threads() : 1;
  const int64_t at_work = std::min(heads, threads);
  const bool busy = work.parts == 1 || heads % threads == 0 || heads >= 4 * threads;
  if (busy && (at_work == 1 || at_work * work.bytes <= kPackedBytes)) {
    for_each_item(heads, work.parallel, [&](int64_t n) { whole(turn.head(n)); });
    return;
  }
  const int64_t wanted = (std::max(kItems, 2 * threads) + work.parts - 1) / work.parts;
  const int64_t at_once = std::clamp<int64_t>(std::min(kPackedBytes / work.bytes, wanted), 1, heads);
  for (int64_t first = 0; first < heads; first += at_once) share(first, std::min(at_once, heads - first));
}

}  // namespace attentive::kernels::cpu

#pragma once

// The key heads of a forward pass, of which a bounded number has packed copies at the same time.

#include <algorithm>

#include "kernels/attention/passes.h"
#include "kernels/simd/threads.h"

namespace attentive::kernels::cpu {

/// Limit on the packed keys of the heads of one parallel region, by the type of the operands.
template <class T>
constexpr int64_t kPackedBytes = int64_t{kIsBf16<T> ? 3 : 1} << 20;

/// Blocks of queries have `rows` rows. A remainder of less than half a block belongs to the last one, because
/// a block of a few rows would cost as much to begin as a whole one.
inline int64_t blocks_of_rows(const Call& call, int64_t rows) {
  return std::max<int64_t>((call.L + rows / 2) / rows, 1);
}

class PackedHeads {
 public:
  /// `bytes`: those of the packed copy of a head; `limit`: of all that are in memory.
  template <class T>
  PackedHeads(const Call& call, const ForwardTensors<T>& tensors, int64_t bytes, int64_t limit)
      : call_(call),
        sharing_(tensors.k.b == 0 && tensors.v.b == 0 ? call.B : 1),
        heads_(call.B / sharing_ * call.Hkv),
        at_once_(std::min(heads_, std::max(limit / std::max<int64_t>(bytes, 1), kAtLeast))) {}

  /// How many heads have memory at the same time.
  int64_t at_once() const { return at_once_; }
  /// Items of the batch that share their keys, and so one packed copy.
  int64_t sharing() const { return sharing_; }

  /// Runs pack(n, b, hkv, step) for all steps of each key head, and attend(n, b, h, block) for the blocks of
  /// all rows that read it, from the last one on: that has the most keys of a causal call, so the last items
  /// are small and threads finish together. n is the head's place among those in memory.
  template <class Pack, class Attend>
  void run(int64_t steps, int64_t blocks, const Pack& pack, const Attend& attend) const {
    for (int64_t first = 0; first < heads_; first += at_once_) {
      for_each_prepared_item(
          {std::min(at_once_, heads_ - first), steps, sharing_ * call_.group * blocks},
          call_.worth_threads(call_.D + call_.Dv),
          [&](int64_t n, int64_t step) { pack(n, (first + n) / call_.Hkv, (first + n) % call_.Hkv, step); },
          [&](int64_t n, int64_t item) {
            const int64_t head = first + n, reader = item / blocks;
            attend(n, head / call_.Hkv + reader / call_.group,
                   call_.query_head(head % call_.Hkv, reader % call_.group), blocks - 1 - item % blocks);
          });
    }
  }

 private:
  static constexpr int64_t kAtLeast = 2;  // which halves the number of barriers
  const Call& call_;
  const int64_t sharing_, heads_, at_once_;
};

}  // namespace attentive::kernels::cpu

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
  /// `bytes`: those of the packed copy of a head; `limit`: of all that are in memory. Where it allows one for
  /// each thread, a thread packs a head where it packed the last one, which is still in its core's cache.
  template <class T>
  PackedHeads(const Call& call, const ForwardTensors<T>& tensors, int64_t bytes, int64_t limit)
      : call_(call),
        sharing_(tensors.k.b == 0 && tensors.v.b == 0 ? call.B : 1),
        heads_(call.B / sharing_ * call.Hkv),
        parallel_(call.worth_threads(call.D + call.Dv)) {
    const int64_t threads = parallel_ ? at::get_num_threads() : 1, fit = limit / std::max<int64_t>(bytes, 1);
    places_ = std::min(heads_, threads <= fit ? threads : std::max(fit, kAtLeast));
    at_once_ = threads <= fit ? heads_ : places_;
  }

  /// How many heads have memory at the same time.
  int64_t places() const { return places_; }
  /// Items of the batch that share their keys, and so one packed copy.
  int64_t sharing() const { return sharing_; }

  /// Runs pack(place, b, hkv, step) for all steps of each key head, and attend(place, b, h, block) for the
  /// blocks of all rows that read it, from the last one on: that has the most keys of a causal call, so the
  /// last items are small and threads finish together.
  template <class Pack, class Attend>
  void run(int64_t steps, int64_t blocks, const Pack& pack, const Attend& attend) const {
    for (int64_t first = 0; first < heads_; first += at_once_) {
      for_each_prepared_item(
          {std::min(at_once_, heads_ - first), steps, sharing_ * call_.group * blocks, places_}, parallel_,
          [&](int64_t n, int64_t step, int64_t place) {
            pack(place, (first + n) / call_.Hkv, (first + n) % call_.Hkv, step);
          },
          [&](int64_t n, int64_t item, int64_t place) {
            const int64_t head = first + n, reader = item / blocks;
            attend(place, head / call_.Hkv + reader / call_.group,
                   call_.query_head(head % call_.Hkv, reader % call_.group), blocks - 1 - item % blocks);
          });
    }
  }

 private:
  static constexpr int64_t kAtLeast = 2;  // which halves the number of barriers
  const Call& call_;
  const int64_t sharing_, heads_;
  const bool parallel_;
  int64_t places_, at_once_;
};

}  // namespace attentive::kernels::cpu

#pragma once

// Writes the gradients of the logits of a tile, which is transposed: its rows are keys. And which key heads
// of a backward pass are computed at the same time, since those that add to the same gradient take turns.

#include <algorithm>
#include <cstdint>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "kernels/attention/passes.h"
#include "kernels/gemm/operands.h"
#include "kernels/simd/threads.h"

namespace attentive::kernels::cpu {

/// Sets numbers to zero. `past_caches`: whole lines are written without being fetched first, for numbers that
/// the caches would not keep until they are read.
template <class T>
void clear(T* to, int64_t count, [[maybe_unused]] bool past_caches) {
#if defined(__x86_64__)
  constexpr int64_t kLineBytes = 64, kLine = kLineBytes / static_cast<int64_t>(sizeof(T));
  if (past_caches) {
    const auto beyond = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) % kLineBytes / sizeof(T));
    const int64_t first = std::min(count, (kLine - beyond) % kLine);
    std::fill_n(to, first, T{});
    to += first;
    count -= first;
    for (; count >= kLine; to += kLine, count -= kLine) {
      auto* const line = reinterpret_cast<__m128i*>(to);
      for (int n = 0; n < 4; ++n) _mm_stream_si128(line + n, _mm_setzero_si128());
    }
  }
#endif
  std::fill_n(to, count, T{});
}

/// T is the element type of the gradients of pairs that are not summed.
template <class T>
class LogitGradientWriter {
 public:
  LogitGradientWriter(const Call& call, const LogitGradients<T>& to)
      : call_(call),
        to_(to),
        large_(call.B * call.H * call.L * call.S * static_cast<int64_t>(sizeof(T)) > kCacheBytes) {}

  explicit operator bool() const { return to_.any_of_tiles(); }
  bool writes_pairs() const { return to_.pairs || to_.pair_sums; }
  /// Whether pairs have to be zero before a tile is added to them.
  bool adds_to_pairs() const { return static_cast<bool>(to_.pair_sums); }

  /// Begins the sums over the queries of a block of keys.
  void begin_keys(const Pairs& block) const {
    if (to_.by_key) std::fill_n(to_.by_key + at(block), block.keys, 0.0f);
    if (to_.slopes) std::fill_n(to_.slopes + at(block), block.keys, 0.0f);
  }

  /// Sets pairs to zero, for the first head if several are summed. `last`: nothing is added to them.
  void clear_pairs(const Pairs& some, bool last) const {
    if (!writes_pairs()) return;
    const auto& sums = to_.pair_sums;
    const bool first = to_.begins_sums(some.b, some.h);
    for (int64_t i = some.i0; i < some.i0 + some.queries; ++i) {
      if (to_.pairs) clear(to_.pairs.at(some.b, some.h, i, some.j0), some.keys, last && large_);
      if (sums && first) std::fill_n(sums.at(some.b, some.h, i, some.j0), some.keys, 0.0f);
    }
#if defined(__x86_64__)
    if (last && large_) _mm_sfence();  // before what this or another thread writes or reads next
#endif
  }

  /// Asks for the pairs of query i of a tile, which `add` writes later.
  void prefetch(const Pairs& tile, int64_t i) const {
    if (to_.pairs) prefetch_to_write(to_.pairs.at(tile.b, tile.h, i, tile.j0), tile.keys);
    if (to_.pair_sums) prefetch_to_write(to_.pair_sums.at(tile.b, tile.h, i, tile.j0), tile.keys);
  }

  /// Writes the gradients of a tile or adds them to their sums. `rows` is memory for a row per query.
  void add(const Pairs& tile, const Matrix<const float>& gradients, const Matrix<float>& rows) const {
    if (writes_pairs()) write(tile, gradients, rows.block(0, tile.queries, 0, tile.keys));
    if (!to_.by_key && !to_.slopes) return;
    for (int64_t r = 0; r < tile.keys; ++r) {
      const auto distance = static_cast<float>(call_.band.position(tile.i0) - (tile.j0 + r));
      const LogitSums sums = rows_code().logit_sums(gradients.row(r), distance, tile.queries);
      if (to_.by_key) to_.by_key[at(tile) + r] += sums.total;
      if (to_.slopes) to_.slopes[at(tile) + r] -= sums.by_distance;
    }
  }

 private:
  static constexpr int64_t kCacheBytes = int64_t{8} << 20;  // more are not in a cache when they are read

  int64_t at(const Pairs& some) const {
    return call_.key_index(some.b, some.h, some.j0);
  }

  void write(const Pairs& tile, const Matrix<const float>& gradients, const Matrix<float>& rows) const {
    if (const auto& pairs = to_.pairs) {
      products().transpose(gradients, Matrix<T>{pairs.at(tile.b, tile.h, tile.i0, tile.j0), tile.queries,
                                                tile.keys, pairs.row});
    }
    if (const auto& sums = to_.pair_sums) {
      products().transpose(gradients, rows);
      for (int64_t i = 0; i < tile.queries; ++i)
        elementwise().add(rows.row(i), sums.at(tile.b, tile.h, tile.i0 + i, tile.j0), tile.keys);
    }
  }

  const Call& call_;
  const LogitGradients<T>& to_;
  const bool large_;  // whether the pairs exceed the caches
};

constexpr int64_t kBatchBytes = int64_t{32} << 20;  ///< limit on the memory of heads computed at a time
constexpr int64_t kBatchItems = 16;                 ///< the fewest items of work that threads should share

/// Key heads that are computed at the same time, as numbers b * Hkv + h.
struct HeadBatch {
  int64_t first, count, step;
  int64_t head(int64_t n) const { return first + n * step; }
};

/// Calls run(batch) for all key heads. Those that add to the same gradient, of pairs or of shared keys, take
/// turns, which fixes the order of the sum.
template <class T, class Run>
void for_each_batch_of_heads(const Call& call, const BackwardTensors<T>& to, const Run& run) {
  const auto& pair_sums = to.logits.pair_sums;
  const int64_t items = call.B, heads = call.Hkv;
  const bool shared = to.shared_grad_k || to.shared_grad_v;
  const int64_t item_batches = shared || (pair_sums && pair_sums.b == 0) ? items : 1,
                head_batches = pair_sums && pair_sums.h == 0 ? heads : 1;
  for (int64_t b = 0; b < item_batches; ++b) {
    for (int64_t h = 0; h < head_batches; ++h) {
      run(HeadBatch{b * heads + h, items / item_batches * (heads / head_batches),
                    head_batches == 1 ? 1 : heads});
    }
  }
}

/// The work of a batch: heads of `parts` parts each, which take `bytes` of memory per head.
struct HeadBatchWork {
  int64_t parts, bytes;
  bool parallel;
};

/// Computes the heads of a batch. Either each thread computes whole(head) for heads of its own, so that what
/// they need stays in its cache and no step waits for another head; or all threads share(first, count) the
/// heads from number `first` of the batch on. Both must give the same bits.
template <class Whole, class Share>
void compute_batch_of_heads(const HeadBatch& batch, const HeadBatchWork& work, const Whole& whole,
                            const Share& share) {
  const int64_t heads = batch.count, threads = work.parallel ? at::get_num_threads() : 1;
  const int64_t at_work = std::min(heads, threads);
  const bool busy = work.parts == 1 || heads % threads == 0 || heads >= 4 * threads;
  if (busy && (at_work == 1 || at_work * work.bytes <= kBatchBytes)) {
    for_each_item(heads, work.parallel, [&](int64_t n) { whole(batch.head(n)); });
    return;
  }
  const int64_t wanted = (std::max(kBatchItems, 2 * threads) + work.parts - 1) / work.parts;
  const int64_t at_once = std::clamp<int64_t>(std::min(kBatchBytes / work.bytes, wanted), 1, heads);
  for (int64_t first = 0; first < heads; first += at_once) share(first, std::min(at_once, heads - first));
}

}  // namespace attentive::kernels::cpu

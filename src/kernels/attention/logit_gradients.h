#pragma once

// Writes the gradients of the logits of a tile, which is transposed: its rows are keys.

#include <algorithm>
#include <cstdint>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "kernels/attention/passes.h"
#include "kernels/gemm/operands.h"

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
  LogitGradientWriter(const CpuArguments& call, const LogitGradients<T>& to)
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
    return (some.b * call_.H + some.h) * call_.S + some.j0;
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

  const CpuArguments& call_;
  const LogitGradients<T>& to_;
  const bool large_;  // whether the pairs exceed the caches
};

}  // namespace attentive::kernels::cpu

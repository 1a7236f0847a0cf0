#pragma once

// The heads of a backward pass: their packed queries, the sums of dQ, and which blocks of keys and panels of
// queries see each other. And the terms of a call, transposed, which RowInputs reads by rows.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/attention/passes.h"
#include "kernels/attention/row_inputs.h"
#include "kernels/attention/units.h"
#include "kernels/gemm/operands.h"
#include "kernels/gemm/scratch.h"

namespace attentive::kernels::cpu {

/// Tile sizes, and the parts into which the keys of a head are dealt, depend only on the shape of the head,
/// so that its gradients have the same bits whatever else the call contains.
struct BackwardTiles {
  bool narrow;  ///< a window that is bounded on both sides
  int64_t keys, queries;
};

inline BackwardTiles backward_tiles(const Call& call) {
  const bool narrow = call.band.has_lo() && call.band.has_hi() && call.band.hi - call.band.lo < 512;
  const int64_t tile = narrow ? 64 : kMostOfTile;
  return {narrow, tile, std::min(tile, round_up(call.L, 16))};
}

/// Stored is the element type of the tensors, T that of the operands of products.
template <class Stored, class T>
class BackwardHeads {
 public:
  BackwardHeads(const Call& call, const BackwardTensors<Stored>& tensors)
      : call_(call),
        t_(tensors),
        tiles_(backward_tiles(call)),
        query_blocks_((call.L + tiles_.queries - 1) / tiles_.queries),
        key_blocks_((call.S + tiles_.keys - 1) / tiles_.keys),
        parts_(std::clamp<int64_t>((call.S + kPartKeys - 1) / kPartKeys, 1, kParts)),
        queries_(query_blocks_ * tiles_.queries),
        panel_size_((inner<T>(call.D) + inner<T>(call.Dv) + call.D + call.Dv) * tiles_.queries) {}

 protected:
  static constexpr int64_t kParts = 16;      ///< the most parts of a head's keys
  static constexpr int64_t kPartKeys = 256;  ///< a head has one part per so many keys, up to kParts
  static constexpr int64_t kSweepBytes = int64_t{1} << 20;  ///< half of a second cache of 2 MiB

  struct Range {
    int64_t first, end;
    bool has(int64_t x) const { return x >= first && x < end; }
    bool empty() const { return first >= end; }
    Range within(const Range& other) const {
      return {std::max(first, other.first), std::min(end, other.end)};
    }
  };
  /// The panels of query heads that are computed before those after them: together with the sums of their dQ
  /// they stay in the second cache, while all blocks of keys pass.
  struct Sweep {
    Range heads, panels;
  };
  /// Memory for some key heads. For as many of their query heads and panels as are computed together it holds
  /// the packed operands, the statistics, and sums of dQ. It is in a separate arena of the calling thread,
  /// because that thread's tiles reuse the usual one.
  struct HeadMemory {
    T* packed;
    float *statistics, *sums;
    float* key_sums;        ///< dK and dV of all blocks of keys between sweeps; null: there is one sweep
    int64_t slots;          ///< sums of dQ per query head
    int64_t heads, panels;  ///< query heads per key head, and panels of each
  };
  HeadMemory memory_for(int64_t key_heads, int64_t slots) const {
    return memory_for(key_heads, slots, call_.group, query_blocks_);
  }
  HeadMemory memory_for(int64_t key_heads, int64_t slots, int64_t heads, int64_t panels) const {
    thread_local Scratch arena;
    arena.reset();
    const int64_t count = key_heads * heads;
    const bool sweeps = heads < call_.group || panels < query_blocks_;
    return {arena.take<T>(count * panels * panel_size_),
            arena.take<float>(count * 4 * queries_),
            arena.take<float>(count * slots * call_.D * panels * tiles_.queries),
            sweeps ? arena.take<float>(key_blocks_ * tiles_.keys * (call_.D + call_.Dv)) : nullptr,
            slots,
            heads,
            panels};
  }
  /// The panels of a sweep.
  int64_t panels_of_sweep(int64_t slots) const {
    const int64_t bytes = panel_size_ * static_cast<int64_t>(sizeof(T)) +
                          slots * call_.D * tiles_.queries * static_cast<int64_t>(sizeof(float));
    return std::clamp<int64_t>(kSweepBytes / bytes, 1, query_blocks_);
  }
  /// One key head, and its index among the key heads that share the memory.
  struct Group {
    const HeadMemory& memory;
    int64_t place, head;
    const detail::CapturedView* captured = nullptr;  ///< see BackwardTensors::captured_lanes
  };

  /// One query head. `packed` holds the operands that every block of keys reads, in one panel per block of
  /// queries: Qᵀ and dOᵀ as rhs, then Q and dO as rhs.
  struct Head {
    int64_t b, hkv, h;
    int64_t panels;  ///< that the memory holds
    T* packed;
    float* statistics;
    float* sums;
  };
  Head head_of(const Group& group, int64_t g) const {
    const auto& [packed, statistics, sums, key_sums, slots, heads, panels] = group.memory;
    const int64_t offset = group.place * heads + g % heads, hkv = group.head % call_.Hkv;
    return {group.head / call_.Hkv,
            hkv,
            call_.query_head(hkv, g),
            panels,
            packed + offset * panels * panel_size_,
            statistics + offset * 4 * queries_,
            sums + offset * slots * call_.D * panels * tiles_.queries};
  }

  /// One panel of one packed operand. `before` is how many numbers per query the operands before it take.
  Rhs<T> panel_at(const Head& head, int64_t before, int64_t panel, int64_t rows, int64_t cols) const {
    return {head.packed + before * head.panels * tiles_.queries + panel % head.panels * rows * cols, rows,
            cols, cols};
  }
  Rhs<T> q_transposed(const Head& head, int64_t panel) const {
    return panel_at(head, 0, panel, inner<T>(call_.D), tiles_.queries);
  }
  Rhs<T> grad_transposed(const Head& head, int64_t panel) const {
    return panel_at(head, inner<T>(call_.D), panel, inner<T>(call_.Dv), tiles_.queries);
  }
  Rhs<T> q_rows(const Head& head, int64_t panel) const {
    return panel_at(head, inner<T>(call_.D) + inner<T>(call_.Dv), panel, tiles_.queries, call_.D);
  }
  Rhs<T> grad_rows(const Head& head, int64_t panel) const {
    return panel_at(head, inner<T>(call_.D) + inner<T>(call_.Dv) + call_.D, panel, tiles_.queries, call_.Dv);
  }
  float* maximum(const Head& head, int64_t i) const { return head.statistics + i; }
  float* log_total(const Head& head, int64_t i) const { return head.statistics + queries_ + i; }  // base 2
  float* delta(const Head& head, int64_t i) const { return head.statistics + 2 * queries_ + i; }
  /// Whether units may compute a panel: 1 if its numbers are finite and its totals within kMostLogTotal.
  float* fits(const Head& head, int64_t panel) const { return head.statistics + 3 * queries_ + panel; }
  /// The sum of dQᵀ for a panel, in one slot.
  Matrix<float> grad_q_transposed(const Head& head, int64_t slot, int64_t panel) const {
    return {head.sums + (slot * head.panels + panel % head.panels) * tiles_.queries * call_.D, call_.D,
            tiles_.queries, tiles_.queries};
  }

  /// The blocks of keys of one part: every parts_-th block, so that under a causal mask all parts are about
  /// the same work. In a narrow window they are consecutive, so that a query's keys lie in one part or two.
  struct Blocks {
    int64_t first, end, step;
  };
  Blocks blocks_of(int64_t part) const {
    if (!tiles_.narrow) return {part, key_blocks_, parts_};
    return {key_blocks_ * part / parts_, key_blocks_ * (part + 1) / parts_, 1};
  }
  /// The queries that may see a key of the block. For a later block, this range begins and ends at later
  /// queries or at the same ones.
  Range queries_of(int64_t b, int64_t block) const {
    const int64_t j0 = block * tiles_.keys, last = std::min(j0 + tiles_.keys, call_.S);
    const int64_t seen = call_.key_lengths ? std::min(last, call_.key_lengths[b]) : last;
    if (seen <= j0) return {0, 0};
    const Range queries{call_.query_lo(j0), std::min(call_.query_hi(b, seen - 1), call_.L)};
    return queries.first < queries.end ? queries : Range{0, 0};
  }
  /// The panels that contain these queries.
  Range panels_of(int64_t b, int64_t block) const {
    const Range queries = queries_of(b, block);
    return {queries.first / tiles_.queries, (queries.end + tiles_.queries - 1) / tiles_.queries};
  }
  /// The pairs of a block of keys and a panel of queries that may see them.
  Pairs pairs_of(const Head& head, int64_t block, int64_t panel) const {
    const Range queries = queries_of(head.b, block);
    const int64_t p0 = panel * tiles_.queries, j0 = block * tiles_.keys;
    const int64_t from = std::max(p0, queries.first / 16 * 16),
                  to = std::min(queries.end, p0 + tiles_.queries);
    return {head.b, head.h, from, to - from, j0, std::min(tiles_.keys, call_.S - j0)};
  }
  bool reaches(int64_t b, int64_t part, int64_t panel) const {
    const Blocks blocks = blocks_of(part);
    for (int64_t block = blocks.first; block < blocks.end; block += blocks.step) {
      if (panels_of(b, block).has(panel)) return true;
    }
    return false;
  }

  /// Asks for the biases and the gradients of the weights of the n-th query of these pairs, to be transposed
  /// later.
  void prefetch_terms(const Pairs& pairs, int64_t n) const {
    if (n >= pairs.queries) return;
    const int64_t i = pairs.i0 + n;
    prefetch_bias(call_, pairs.b, pairs.h, i, pairs.j0, pairs.keys);
    const auto& grads = t_.grad_weights;
    if (grads) prefetch_row(grads.at(pairs.b, pairs.h, i, pairs.j0), grads.col, pairs.keys);
  }

  void pack(const Head& head, int64_t panel) const {
    const int64_t i0 = panel * tiles_.queries, rows = std::min(tiles_.queries, call_.L - i0);
    const auto q = rows_of(t_.q, head.b, head.h, i0, rows, call_.D);
    const auto grad = rows_of(t_.grad_output, head.b, head.h, i0, rows, call_.Dv);
    // Rows of the next panel, which may lie far apart.
    for (int64_t i = i0 + rows; i < std::min(i0 + 2 * rows, call_.L); ++i) {
      prefetch_row(t_.q.at(head.b, head.h, i), 1, call_.D);
      prefetch_row(t_.grad_output.at(head.b, head.h, i), 1, call_.Dv);
      prefetch_row(t_.output.at(head.b, head.h, i), 1, call_.Dv);
    }
    pack_transposed(q, q_transposed(head, panel));
    pack_transposed(grad, grad_transposed(head, panel));
    bool fit = pack_panel(q, q_rows(head, panel));
    fit &= pack_panel(grad, grad_rows(head, panel));

    const int64_t offset = call_.row_index(head.b, head.h, i0);
    const float unit = call_.rule_of(head.b, head.h).to_natural(static_cast<bool>(call_.bias)) * kLog2e;
    for (int64_t r = 0; r < tiles_.queries; ++r) {
      *maximum(head, i0 + r) = r < rows ? t_.statistics.maximum[offset + r] : 0.0f;
      *log_total(head, i0 + r) = r < rows ? t_.statistics.log_total[offset + r] * kLog2e : kInfinity;
      *delta(head, i0 + r) = 0.0f;
      if (r >= rows) continue;
      const float total = *log_total(head, i0 + r);
      fit &= total == kInfinity || std::fabs(*maximum(head, i0 + r) * unit + total) <= kMostLogTotal;
      // δ = rowsum(dO ∘ O), and the row's part of rowsum(dW ∘ W)
      float dot = elementwise().dot(t_.output.at(head.b, head.h, i0 + r), grad.row(r), call_.Dv);
      if (t_.weight_dots) dot += t_.weight_dots[offset + r];
      *delta(head, i0 + r) = dot - (t_.grad_logsumexp ? t_.grad_logsumexp[offset + r] : 0.0f);
      write_row_sums(call_, t_, head.b, head.h, i0 + r, *delta(head, i0 + r));
    }
    *fits(head, panel) = fit ? 1.0f : 0.0f;
  }

  /// Returns whether all numbers are finite. Products of bfloat16 read whole panels, so the rows beyond the
  /// last query are zero.
  bool pack_panel(const Matrix<const Stored>& rows, const Rhs<T>& to) const {
    if (kIsBf16<T> && rows.rows < to.rows)
      std::memset(to.data, 0, static_cast<size_t>(to.rows * to.cols) * sizeof(T));
    return products().pack_rows(rows, to);
  }

  void add_slot(const Head& head, int64_t slot, int64_t panel) const {
    elementwise().add(grad_q_transposed(head, slot, panel).data, grad_q_transposed(head, 0, panel).data,
                      call_.D * tiles_.queries);
  }

  /// Transposes the sums of slot 0 and writes them to the gradient of q.
  void write_grad_q(const Head& head, int64_t panel) const {
    constexpr int64_t kRowsAtOnce = 16;  // at a time
    const auto sums = grad_q_transposed(head, 0, panel);
    const int64_t i0 = panel * tiles_.queries, end = std::min(i0 + tiles_.queries, call_.L);
    for (int64_t i = i0; i < end; i += kRowsAtOnce) {
      const int64_t rows = std::min(kRowsAtOnce, end - i);
      for (int64_t next = i + kRowsAtOnce; next < std::min(i + 2 * kRowsAtOnce, end); ++next)
        prefetch_to_write(t_.grad_q.at(head.b, head.h, next), call_.D);
      products().transpose(sums.block(0, call_.D, i - i0, rows),
                           rows_of(t_.grad_q, head.b, head.h, i, rows, call_.D));
    }
  }

  const Call& call_;
  const BackwardTensors<Stored>& t_;
  const BackwardTiles tiles_;
  const int64_t query_blocks_, key_blocks_, parts_;
  const int64_t queries_;     ///< rounded up to whole panels
  const int64_t panel_size_;  ///< numbers packed per panel
};

/// Transposes a part of a bias or of the weights' gradient. `rows` is memory for a row per query.
template <class T>
void transpose_numbers(const Strided<const T>& given, const Pairs& part, const Matrix<float>& rows,
                       const Matrix<float>& to) {
  const T* const first = given.at(part.b, part.h, part.i0, part.j0);
  const auto transposed = to.block(0, part.keys, 0, part.queries);
  if (given.col == 1) {
    products().transpose(Matrix<const T>{first, part.queries, part.keys, given.row}, transposed);
    return;
  }
  const auto wide = rows.block(0, part.queries, 0, part.keys);
  for (int64_t i = 0; i < part.queries; ++i)
    widen_row(first + i * given.row, given.col, wide.row(i), part.keys);
  products().transpose(wide, transposed);
}

/// Transposes 8 by 8 bytes: byte j of word i becomes byte i of word j.
inline void transpose_bytes(uint64_t (&words)[8]) {
  static_assert(std::endian::native == std::endian::little);
  // Exchanges the upper part of each group of bits of one word with the lower part of the other's.
  const auto exchange = [&](int i, int j, int bits, uint64_t lower) {
    const uint64_t difference = ((words[i] >> bits) ^ words[j]) & lower;
    words[j] ^= difference;
    words[i] ^= difference << bits;
  };
  for (int i = 0; i < 4; ++i) exchange(i, i + 4, 32, 0x00000000ffffffff);
  for (const int i : {0, 1, 4, 5}) exchange(i, i + 2, 16, 0x0000ffff0000ffff);
  for (const int i : {0, 2, 4, 6}) exchange(i, i + 1, 8, 0x00ff00ff00ff00ff);
}

/// Transposes a part of the mask `keep`. Returns false if it hides all of it.
inline bool transpose_keep(const Strided<const bool>& keep, const Pairs& part, const Matrix<uint8_t>& to) {
  uint64_t any = 0;
  const int64_t whole_i = keep.col == 1 ? part.queries / 8 * 8 : 0, whole_r = part.keys / 8 * 8;
  for (int64_t i = 0; i < whole_i; i += 8) {
    for (int64_t r = 0; r < whole_r; r += 8) {
      uint64_t words[8];
      for (int n = 0; n < 8; ++n) {
        std::memcpy(&words[n], keep.at(part.b, part.h, part.i0 + i + n, part.j0 + r), sizeof(words[n]));
        any |= words[n];
      }
      transpose_bytes(words);
      for (int n = 0; n < 8; ++n) std::memcpy(to.row(r + n) + i, &words[n], sizeof(words[n]));
    }
  }
  for (int64_t i = 0; i < part.queries; ++i) {
    const bool* const row = keep.at(part.b, part.h, part.i0 + i, part.j0);
    for (int64_t r = i < whole_i ? whole_r : 0; r < part.keys; ++r) {
      const bool kept = row[r * keep.col];
      to.row(r)[i] = kept;
      any |= static_cast<uint64_t>(kept);
    }
  }
  return any != 0;
}

/// Hides the pairs of a part that the program's own mask hides, besides those that are hidden.
inline void transpose_user_mask(const Call& call, const Pairs& part, const Matrix<uint8_t>& to) {
  UserRows user_rows(call, UserRows::Along::Queries);
  for (int64_t r = 0; r < part.keys; ++r) {
    const int64_t j = part.j0 + r;
    if (!call.keep) std::fill_n(to.row(r), part.queries, uint8_t{1});
    user_rows.mask({part.b, part.h, part.i0, part.queries, j, 1},
                   {std::max<int64_t>(call.query_lo(j) - part.i0, 0),
                    std::min(call.query_hi(part.b, j) - part.i0, part.queries)},
                   to.row(r));
  }
}

}  // namespace attentive::kernels::cpu

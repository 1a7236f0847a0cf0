// The forward pass in units of 16 queries by 64 keys (units.h), for a block of queries of one head after the
// other:
//
//   for each group of units' rows of the block:
//     for each 64 keys that they may see:
//       for each of the group:
//         S  = Q Kᵀ               of this unit, while the unit before it takes its
//         P  = 2^(t - r - 40)     t: logits in base 2; r: the reference of the row; while
//         O  = O + P V            is that of the unit before
//   O = O / ℓ, where ℓ is the row's sum of P
//
// No maximum follows the scores. A row takes its reference from the first keys that it sees, and the total
// shows whether a later score was too large for it: such a row is left to the pass of forward.cpp, and so is
// one that sees numbers too large or too small for units. Every such decision depends on what the row itself
// sees.

#include "kernels/attention/forward_units.h"

#include <cstring>
#include <utility>
#include <vector>

#include "kernels/attention/packed_heads.h"
#include "kernels/attention/units.h"
#include "kernels/gemm/operands.h"
#include "kernels/gemm/scratch.h"
#include "kernels/simd/vector_code.h"

namespace attentive::kernels::cpu {
namespace {

constexpr int64_t kBlockRows = 128;  // queries of an item of work
// Units' rows that read the same 64 keys.
constexpr int64_t kRowsTogether = 2;
constexpr int64_t kPackedAtATime = 1024;  // keys
constexpr int64_t kBitsAtATime = 1024;    // keys for which a row's bits of dropout are drawn

class ForwardUnits {
 public:
  ForwardUnits(const Call& call, const ForwardTensors<bf16_t>& tensors, const UnitFunctions& code,
               RowsLeft& left)
      : call_(call), t_(tensors), code_(code), left_(left), keys_(round_up(call.S, kUnitKeys)) {}

  void run() const {
    const PackedHeads heads(call_, t_, head_size() * static_cast<int64_t>(sizeof(bf16_t)),
                            kPackedBytes<bf16_t>);
    // As in forward.cpp, packed keys have an arena of the calling thread.
    thread_local Scratch shared;
    shared.reset();
    auto* const packed = shared.take<bf16_t>(heads.at_once() * head_size());
    auto* const fit = shared.take<uint8_t>(heads.at_once() * keys_);
    auto* const all_fit = shared.take<uint8_t>(heads.at_once() * steps());
    const auto head_at = [&](int64_t n) {
      return Head{packed + n * head_size(), fit + n * keys_, all_fit + n * steps()};
    };
    heads.run(
        steps(), blocks(),
        [&](int64_t n, int64_t b, int64_t hkv, int64_t step) { pack(b, hkv, step, head_at(n)); },
        [&](int64_t n, int64_t b, int64_t h, int64_t block) { attend(b, h, block, head_at(n)); });
  }

 private:
  // The packed keys and values of a head, whether each key fits, and whether all of a step do.
  struct Head {
    bf16_t* packed;
    uint8_t *fit, *all_fit;
  };

  int64_t head_size() const { return keys_ * (call_.D + call_.Dv); }
  int64_t steps() const { return (call_.S + kPackedAtATime - 1) / kPackedAtATime; }
  int64_t blocks() const { return blocks_of_rows(call_, kBlockRows); }
  bf16_t* keys_at(const Head& head, int64_t j) const { return head.packed + j * call_.D; }
  bf16_t* values_at(const Head& head, int64_t j) const {
    return head.packed + keys_ * call_.D + j * call_.Dv;
  }

  void pack(int64_t b, int64_t hkv, int64_t step, const Head& head) const {
    bool all = true;
    const int64_t from = step * kPackedAtATime, to = std::min(from + kPackedAtATime, call_.S);
    for (int64_t j = from; j < to; j += kUnitKeys) {
      for (int64_t next = j + kUnitKeys; next < std::min(j + 2 * kUnitKeys, to); ++next) {
        prefetch_row(t_.k.at(b, hkv, next), 1, call_.D);
        prefetch_row(t_.v.at(b, hkv, next), 1, call_.Dv);
      }
      const int64_t count = std::min(kUnitKeys, to - j);
      all &= code_.pack({rows_of(t_.k, b, hkv, j, count, call_.D), rows_of(t_.v, b, hkv, j, count, call_.Dv),
                         keys_at(head, j), values_at(head, j), head.fit + j});
    }
    head.all_fit[step] = all;
  }

  // A unit's 16 rows, of which the last ones may lie beyond the last query.
  struct Rows {
    int64_t i0, count;
    const bf16_t* queries;
    float* sums;
    UnitRows* state;
    int64_t lo, hi;  // the keys that some row may see
    int64_t begun;   // all rows that see a key have begun before this key
    // Dropout's of the keys from bits_from on, in turns, since a step later than the one that brings them
    // reads them.
    uint16_t* bits[2];
    int* bits_turn;
    int64_t bits_from = -1;
    bool started = false;  // whether a unit has been added
  };

  // A pipeline: the scores of a unit are computed beside the weights of the one before and the sums of the
  // one before that.
  class Steps {
   public:
    Steps(const UnitFunctions& code, int64_t d, UnitMemory& memory, UnitRows& no_rows, float scale)
        : code_(d == 64 ? code.of_64 : code.of_128), memory_(memory), scale_(scale) {
      memory_.late[0] = memory_.late[1] = nullptr;
      none_.rows = &no_rows;
      none_.edge = true;
      for (Unit& unit : units_) unit = none_;
    }
    // The unit that comes next, to be filled in.
    Unit& next() { return units_[n_ % 3]; }
    // Memory for its bits of shown keys.
    uint64_t* shown() { return shown_[n_ % 3]; }
    void add() {
      code_.step(units_[n_ % 3], units_[(n_ + 2) % 3], units_[(n_ + 1) % 3], memory_, n_ & 1, scale_);
      ++n_;
    }
    void finish() {
      for (int i = 0; i < 2; ++i) {
        next() = none_;
        add();
      }
      code_.flush(memory_);
    }

   private:
    const UnitSteps& code_;
    UnitMemory& memory_;
    const float scale_;
    uint32_t n_ = 0;
    Unit none_{}, units_[3];
    uint64_t shown_[3][kUnitRows];
  };

  void attend(int64_t b, int64_t h, int64_t number, const Head& head) const {
    const int64_t block = number * kBlockRows, end = number + 1 < blocks() ? block + kBlockRows : call_.L;
    const int64_t count = (end - block + kUnitRows - 1) / kUnitRows;
    Scratch& scratch = Scratch::of_this_thread();
    scratch.reset();
    auto* const queries = scratch.take<bf16_t>(count * kUnitRows * call_.D);
    auto* const sums = scratch.take<float>(count * kUnitRows * call_.Dv);
    auto* const states = scratch.take<UnitRows>(count + 1);
    constexpr int64_t kBits = kBitsAtATime / 16;
    int bits_turns[kRowsTogether] = {};
    auto* const bits = scratch.take<uint16_t>(call_.dropout ? kRowsTogether * 2 * kUnitRows * kBits : 0);
    states[count] = {};
    Steps steps(code_, call_.D, *scratch.take<UnitMemory>(1), states[count], scale());
    code_.begin();
    for (int64_t first = 0; first < count; first += kRowsTogether) {
      Rows set[kRowsTogether];
      const int64_t several = std::min(kRowsTogether, count - first);
      int64_t from = call_.S, to = 0;
      for (int64_t n = 0; n < several; ++n) {
        Rows& rows = set[n];
        rows = rows_at(b, block + (first + n) * kUnitRows, end);
        rows.queries = queries + (first + n) * kUnitRows * call_.D;
        rows.sums = sums + (first + n) * kUnitRows * call_.Dv;
        rows.state = states + first + n;
        if (call_.dropout) {
          for (int64_t turn = 0; turn < 2; ++turn)
            rows.bits[turn] = bits + (2 * n + turn) * kUnitRows * kBits;
          rows.bits_turn = &bits_turns[n];
        }
        *rows.state = {};
        rows.state->unfit = code_.copy_queries(rows_of(t_.q, b, h, rows.i0, rows.count, call_.D),
                                               queries + (first + n) * kUnitRows * call_.D);
        // Rows that are written at last or read next, which may lie far apart.
        for (int64_t i = rows.i0; i < rows.i0 + rows.count; ++i) {
          prefetch_to_write(t_.output.at(b, h, i), call_.Dv);
          const int64_t later = i + kRowsTogether * kUnitRows;
          if (later < end) prefetch_row(t_.q.at(b, h, later), 1, call_.D);
        }
        if (rows.lo >= rows.hi) continue;
        from = std::min(from, rows.lo / kUnitKeys * kUnitKeys);
        to = std::max(to, rows.hi);
      }
      for (int64_t j = from; j < to; j += kUnitKeys) {
        for (int64_t n = 0; n < several; ++n) {
          if (j >= set[n].hi || j + kUnitKeys <= set[n].lo) continue;
          if (set_unit(b, h, set[n], j, head, steps)) steps.add();
        }
      }
      for (int64_t n = 0; n < several; ++n) {
        if (!set[n].started) std::fill_n(set[n].sums, kUnitRows * call_.Dv, 0.0f);
      }
    }
    steps.finish();
    code_.end();
    for (int64_t n = 0; n < count; ++n) {
      finish(b, h, rows_at(b, block + n * kUnitRows, end), states[n], sums + n * kUnitRows * call_.Dv, head);
    }
  }

  Rows rows_at(int64_t b, int64_t i0, int64_t end) const {
    Rows rows{};
    rows.i0 = i0;
    rows.count = std::min(kUnitRows, end - i0);
    const int64_t last = i0 + rows.count - 1;
    rows.lo = call_.key_lo(i0);
    rows.hi = call_.key_hi(b, last);
    rows.begun = call_.key_lo(last) / kUnitKeys * kUnitKeys + kUnitKeys;
    return rows;
  }

  // The bits of the keys from j on that the mask of pairs shows to rows. Returns whether there are any.
  bool shows_any(int64_t b, int64_t h, const Rows& rows, int64_t j, uint64_t* shown) const {
    uint64_t any = 0;
    const int64_t keys = std::min(kUnitKeys, call_.S - j);
    for (int64_t r = 0; r < kUnitRows; ++r) {
      const bool same = r > 0 && call_.keep.row == 0;
      shown[r] =
          r >= rows.count ? 0
          : same          ? shown[0]
                 : code_.bits(reinterpret_cast<const uint8_t*>(call_.keep.at(b, h, rows.i0 + r, j)), keys);
      any |= shown[r];
    }
    return any != 0;
  }

  // Sets the next unit, unless it has no pair to show.
  bool set_unit(int64_t b, int64_t h, Rows& rows, int64_t j, const Head& head, Steps& steps) const {
    Unit& unit = steps.next();
    unit.shown = call_.keep ? steps.shown() : nullptr;
    if (call_.keep && !shows_any(b, h, rows, j, steps.shown())) return false;
    const auto place = [&](int64_t key) {
      constexpr int64_t kFar = 1 << 20;
      return static_cast<int32_t>(std::clamp(key - j, -kFar, kFar));
    };
    unit.queries = rows.queries;
    unit.keys = keys_at(head, j);
    unit.values = values_at(head, j);
    unit.sums = rows.sums;
    unit.rows = rows.state;
    unit.parts = static_cast<int32_t>(std::min<int64_t>((rows.hi - j + 15) / 16, 4));
    unit.begins = !std::exchange(rows.started, true);
    unit.lo = place(rows.i0 + call_.band.lo);
    unit.hi = place(rows.i0 + call_.band.hi + 1);
    unit.end = place(call_.key_lengths ? std::clamp<int64_t>(call_.key_lengths[b], 0, call_.S) : call_.S);
    const auto width = static_cast<int32_t>(kUnitKeys);
    unit.edge = call_.keep || j < rows.begun || unit.lo + static_cast<int32_t>(kUnitRows) > 1 ||
                unit.hi < width || unit.end < width;
    unit.survivors = nullptr;
    if (!call_.dropout) return true;
    const int64_t first = j / kBitsAtATime * kBitsAtATime;
    constexpr int64_t kBits = kBitsAtATime / 16;
    if (rows.bits_from != first) {
      rows.bits_from = first;
      *rows.bits_turn ^= 1;
      // From the block of 128 keys on that holds key j.
      const int64_t from = j / 128 * 128, to = std::min(first + kBitsAtATime, rows.hi);
      for (int64_t r = 0; r < rows.count; ++r) {
        call_.dropout_bits(b, h, rows.i0 + r, from, to,
                           rows.bits[*rows.bits_turn] + r * kBits + (from - first) / 16, 1);
      }
    }
    unit.survivors = rows.bits[*rows.bits_turn] + (j - first) / 16;
    unit.stride = kBits;
    return true;
  }

  // The factor from scores to logits in base 2.
  float scale() const { return call_.rule.scale * kLog2e; }

  // Whether query i sees a key that units cannot multiply.
  bool sees_unfit(int64_t b, int64_t h, int64_t i, const Head& head) const {
    const uint8_t* const end = head.fit + call_.key_hi(b, i);
    for (const uint8_t* at = head.fit + call_.key_lo(i); at < end; ++at) {
      at = static_cast<const uint8_t*>(std::memchr(at, 0, static_cast<size_t>(end - at)));
      if (!at) return false;
      if (call_.unmasked(b, h, i, at - head.fit)) return true;
    }
    return false;
  }

  // Ends a unit's rows from the sums of their weights.
  void finish(int64_t b, int64_t h, const Rows& rows, const UnitRows& state, const float* sums,
              const Head& head) const {
    alignas(64) float totals[kUnitRows], factors[kUnitRows] = {};
    code_.totals(state, totals);
    const int64_t first = rows.lo / kPackedAtATime, last = (rows.hi + kPackedAtATime - 1) / kPackedAtATime;
    const bool all_fit =
        first >= last || !std::memchr(head.all_fit + first, 0, static_cast<size_t>(last - first));
    const bool wanted = t_.logsumexp || t_.statistics.maximum || t_.statistics.log_total || call_.sinks;
    uint32_t unfit = 0;
    for (int64_t r = 0; r < rows.count; ++r) {
      const int64_t i = rows.i0 + r;
      const bool begun = (state.begun >> r & 1) != 0;
      // A weight of 1 is, or may have been, larger than a weight can be.
      if ((state.unfit >> r & 1) != 0 || !(totals[r] < 1.0f) || (!all_fit && sees_unfit(b, h, i, head))) {
        unfit |= 1u << r;
      } else if (!wanted) {
        if (begun) factors[r] = 1.0f / totals[r] * call_.survivor_scale;
      } else {
        constexpr float kWeightOfReference = 1.0f / static_cast<float>(int64_t{1} << kHeadroom);
        const RowEnd end = end_of_row(call_, b, h, i, begun ? state.reference[r] / scale() : -kInfinity,
                                      totals[r] / kWeightOfReference);
        t_.write_statistics(call_.row_index(b, h, i), end);
        if (end.factor != 0.0f) factors[r] = end.factor / kWeightOfReference * call_.survivor_scale;
      }
    }
    if (unfit == 0)
      return code_.write(sums, factors, rows.count, call_.Dv, t_.output.at(b, h, rows.i0), t_.output.row);
    left_.add(call_, b, h, rows.i0, unfit);
    for (int64_t r = 0; r < rows.count; ++r) {
      if ((unfit >> r & 1) == 0)
        code_.write(sums + r * call_.Dv, factors + r, 1, call_.Dv, t_.output.at(b, h, rows.i0 + r),
                    t_.output.row);
    }
  }

  const Call& call_;
  const ForwardTensors<bf16_t>& t_;
  const UnitFunctions& code_;
  RowsLeft& left_;
  const int64_t keys_;
};

}  // namespace

bool units_compute(const Call& call, const ForwardTensors<bf16_t>& tensors) {
  const float scale = call.rule.scale;
  return selection().units && only_scaled(call) && scale >= kSmallestScale && scale <= kLargestScale &&
         call.D == call.Dv && (call.D == 64 || call.D == 128) && (!call.keep || call.keep.col == 1) &&
         !tensors.weights && call.L > 0 && call.S > 0;
}

void forward_units(const Call& call, const ForwardTensors<bf16_t>& tensors, RowsLeft& left) {
  ForwardUnits(call, tensors, *selection().units, left).run();
}

}  // namespace attentive::kernels::cpu

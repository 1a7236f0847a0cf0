// The forward pass in units of 16 queries by 64 keys (units.h), for a block of queries of one head after the
// other:
//
//   for each unit's rows of the block:
//     for each 64 keys that they may see:
//       S  = Q Kᵀ               of this unit, while the unit before it takes its
//       P  = 2^(t - r - 40)     t: logits in base 2; r: the reference of the row; while
//       O  = O + P V            is that of the unit before
//     O = O / ℓ, where ℓ is the row's sum of P, a few units later
//
// No maximum follows the scores. A row takes its reference from the first keys that it sees, and the total
// shows whether a later score was too large for it: such a row is left to the pass of forward.cpp, and so is
// one that sees numbers too large or too small for units. Every such decision depends on what the row itself
// sees.

#include "kernels/attention/forward_units.h"

#include <bit>
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

// Queries of an item of work: fewer unless there are so many items for each thread.
constexpr int64_t kBlockRows = 256, kFewBlockRows = 128, kManyBlocks = 4;
// The sums of a unit are stored when the third one after it has been added, so those of three units' rows may
// be waited for.
constexpr uint32_t kLag = 4;
constexpr int kSlots = 4;
constexpr int64_t kPackedAtATime = 1024;  // keys
constexpr int64_t kBitsAtATime = 1024;    // keys for which a row's bits of dropout are drawn

class ForwardUnits {
 public:
  ForwardUnits(const Call& call, const ForwardTensors<bf16_t>& tensors, const UnitFunctions& code,
               RowsLeft& left)
      : call_(call),
        t_(tensors),
        code_(code),
        left_(left),
        keys_(round_up(call.S, kUnitKeys)),
        block_rows_(call.B * call.H * call.L < kManyBlocks * kBlockRows * at::get_num_threads()
                        ? kFewBlockRows
                        : kBlockRows) {}

  void run() const {
    const PackedHeads heads(call_, t_, head_size() * static_cast<int64_t>(sizeof(bf16_t)),
                            kPackedBytes<bf16_t>);
    // As in forward.cpp, packed keys have an arena of the calling thread.
    thread_local Scratch shared;
    shared.reset();
    auto* const packed = shared.take<bf16_t>(heads.places() * head_size());
    auto* const fit = shared.take<uint8_t>(heads.places() * keys_);
    auto* const all_fit = shared.take<uint8_t>(heads.places() * steps());
    const auto head_at = [&](int64_t place) {
      return Head{packed + place * head_size(), fit + place * keys_, all_fit + place * steps()};
    };
    heads.run(
        steps(), blocks(),
        [&](int64_t place, int64_t b, int64_t hkv, int64_t step) { pack(b, hkv, step, head_at(place)); },
        [&](int64_t place, int64_t b, int64_t h, int64_t block) { attend(b, h, block, head_at(place)); });
  }

 private:
  // The packed keys and values of a head, whether each key fits, and whether all of a step do.
  struct Head {
    bf16_t* packed;
    uint8_t *fit, *all_fit;
  };

  int64_t head_size() const { return keys_ * (call_.D + call_.Dv); }
  int64_t steps() const { return (call_.S + kPackedAtATime - 1) / kPackedAtATime; }
  int64_t blocks() const { return blocks_of_rows(call_, block_rows_); }
  bf16_t* keys_at(const Head& head, int64_t j) const { return head.packed + j * call_.D; }
  bf16_t* values_at(const Head& head, int64_t j) const {
    return head.packed + keys_ * call_.D + j * call_.Dv;
  }

  void pack(int64_t b, int64_t hkv, int64_t step, const Head& head) const {
    bool all = true;
    const int64_t from = step * kPackedAtATime, to = std::min(from + kPackedAtATime, call_.S);
    for (int64_t j = from; j < to; j += kUnitKeys) {
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
    int64_t lo, hi;         // the keys that some row may see
    int64_t from, to, end;  // row r may see the keys from `from` + r to `to` + r, or `end`
    const uint16_t* bits;   // dropout's, of the keys from bits_from on
    int64_t bits_from = -1;
    bool started = false;  // whether a unit has been added
    uint32_t last = 0;     // the number of the last one
  };

  // Memory for bits of dropout, in turns, since a step later than the one that brings them reads them.
  static constexpr int64_t kBits = kBitsAtATime / 16;  // per row
  struct Bits {
    uint16_t* of[2];
    int turn = 0;
  };

  // A pipeline: the scores of a unit are computed beside the weights of the one before and the sums of the
  // one before that.
  class Steps {
   public:
    Steps(const UnitFunctions& code, int64_t d, UnitMemory& memory, float scale)
        : code_(d == 64 ? code.of_64 : code.of_128), memory_(memory), scale_(scale) {
      memory_.late[0] = memory_.late[1] = nullptr;
    }
    // The unit that comes next, to be filled in.
    Unit& next() { return units_[n_ % 3]; }
    const Unit& last() const { return units_[(n_ + 2) % 3]; }
    // Memory for its bits of shown keys.
    uint64_t* shown() { return shown_[n_ % 3]; }
    void add() {
      code_.step(units_[n_ % 3], units_[(n_ + 2) % 3], units_[(n_ + 1) % 3], memory_, n_ & 1, scale_);
      ++n_;
    }
    // How many there have been.
    uint32_t count() const { return n_; }
    void finish() {
      for (int i = 0; i < 2; ++i) {
        next() = {};
        add();
      }
      code_.flush(memory_);
    }

   private:
    const UnitSteps& code_;
    UnitMemory& memory_;
    const float scale_;
    uint32_t n_ = 0;
    Unit units_[3] = {};
    uint64_t shown_[3][kUnitRows];
  };

  void attend(int64_t b, int64_t h, int64_t number, const Head& head) const {
    const int64_t block = number * block_rows_, end = number + 1 < blocks() ? block + block_rows_ : call_.L;
    Scratch& scratch = Scratch::of_this_thread();
    scratch.reset();
    auto* const queries = scratch.take<bf16_t>(kSlots * kUnitRows * call_.D);
    auto* const sums = scratch.take<float>(kSlots * kUnitRows * call_.Dv);
    auto* const states = scratch.take<UnitRows>(kSlots);
    Bits bits{};
    for (uint16_t*& of : bits.of) of = scratch.take<uint16_t>(call_.dropout ? kUnitRows * kBits : 0);
    Steps steps(code_, call_.D, *scratch.take<UnitMemory>(1), scale());
    Rows slots[kSlots];
    uint32_t taken = 0;  // one bit per slot
    const auto finish_those = [&](auto&& of) {
      for (int slot = 0; slot < kSlots; ++slot) {
        if ((taken >> slot & 1) == 0 || !of(slots[slot])) continue;
        finish(b, h, slots[slot], head);
        taken &= ~(1u << slot);
      }
    };
    code_.begin();
    for (int64_t i0 = block; i0 < end; i0 += kUnitRows) {
      finish_those([&](const Rows& rows) { return !rows.started || rows.last + kLag <= steps.count(); });
      const int slot = std::countr_one(taken);
      taken |= 1u << slot;
      Rows& rows = slots[slot];
      rows = rows_at(b, i0, end);
      rows.queries = queries + slot * kUnitRows * call_.D;
      rows.sums = sums + slot * kUnitRows * call_.Dv;
      rows.state = states + slot;
      code_.start_rows(rows_of(t_.q, b, h, i0, rows.count, call_.D), queries + slot * kUnitRows * call_.D,
                       *rows.state);
      for (int64_t j = rows.lo / kUnitKeys * kUnitKeys; j < rows.hi; j += kUnitKeys) {
        if (!set_unit(b, h, rows, j, head, bits, steps)) continue;
        steps.add();
        if (steps.last().edge || call_.dropout) continue;
        // The units that follow differ in their keys.
        for (; j + 2 * kUnitKeys <= std::min(rows.to, rows.end); j += kUnitKeys) {
          Unit& unit = steps.next() = steps.last();
          unit.keys += kUnitKeys * call_.D;
          unit.values += kUnitKeys * call_.Dv;
          unit.begins = false;
          steps.add();
        }
      }
      rows.last = steps.count() - 1;
      if (!rows.started) std::fill_n(rows.sums, kUnitRows * call_.Dv, 0.0f);
    }
    steps.finish();
    finish_those([](const Rows&) { return true; });
    code_.end();
  }

  Rows rows_at(int64_t b, int64_t i0, int64_t end) const {
    Rows rows{};
    rows.i0 = i0;
    rows.count = std::min(kUnitRows, end - i0);
    const int64_t last = i0 + rows.count - 1;
    rows.lo = call_.key_lo(i0);
    rows.hi = call_.key_hi(b, last);
    rows.from = i0 + call_.band.lo;
    rows.to = i0 + call_.band.hi + 1;
    rows.end = call_.key_lengths ? std::clamp<int64_t>(call_.key_lengths[b], 0, call_.S) : call_.S;
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
  bool set_unit(int64_t b, int64_t h, Rows& rows, int64_t j, const Head& head, Bits& bits,
                Steps& steps) const {
    Unit& unit = steps.next();
    unit.shown = call_.keep ? steps.shown() : nullptr;
    if (call_.keep && !shows_any(b, h, rows, j, steps.shown())) return false;
    unit.queries = rows.queries;
    unit.keys = keys_at(head, j);
    unit.values = values_at(head, j);
    unit.sums = rows.sums;
    unit.rows = rows.state;
    unit.parts = static_cast<int32_t>(std::min<int64_t>((rows.hi - j + 15) / 16, 4));
    unit.begins = !std::exchange(rows.started, true);
    const int64_t lo = rows.from - j, hi = rows.to - j, last = rows.end - j;
    unit.edge = call_.keep || lo + kUnitRows > 1 || std::min(hi, last) < kUnitKeys;
    if (unit.edge) {
      const auto near = [](int64_t place) {
        return static_cast<int32_t>(std::clamp<int64_t>(place, -kUnitKeys, 2 * kUnitKeys));
      };
      unit.lo = near(lo);
      unit.hi = near(hi);
      unit.end = near(last);
    }
    unit.survivors = nullptr;
    if (!call_.dropout) return true;
    const int64_t first = j / kBitsAtATime * kBitsAtATime;
    if (rows.bits_from != first) {
      uint16_t* const of = bits.of[bits.turn ^= 1];
      rows.bits_from = first;
      rows.bits = of;
      // From the block of 128 keys on that holds key j.
      const int64_t from = j / 128 * 128, to = std::min(first + kBitsAtATime, rows.hi);
      call_.dropout_bits(b, h, rows.i0, rows.count, from, to, of + (from - first) / 16, kBits, 1);
    }
    unit.survivors = rows.bits + (j - first) / 16;
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
  void finish(int64_t b, int64_t h, const Rows& rows, const Head& head) const {
    const UnitRows& state = *rows.state;
    const float* const sums = rows.sums;
    alignas(64) float totals[kUnitRows], factors[kUnitRows] = {};
    // A weight of 1 is, or may have been, larger than a weight can be.
    uint32_t unfit = (state.unfit | ~code_.totals(state, totals, factors)) & ((1u << rows.count) - 1);
    const int64_t first = rows.lo / kPackedAtATime, last = (rows.hi + kPackedAtATime - 1) / kPackedAtATime;
    if (first < last && std::memchr(head.all_fit + first, 0, static_cast<size_t>(last - first))) {
      for (int64_t r = 0; r < rows.count; ++r)
        unfit |= static_cast<uint32_t>(sees_unfit(b, h, rows.i0 + r, head)) << r;
    }
    const bool wanted = t_.logsumexp || t_.statistics.maximum || t_.statistics.log_total || call_.sinks;
    for (int64_t r = 0; r < rows.count; ++r) {
      if (wanted && (unfit >> r & 1) == 0) {
        const int64_t i = rows.i0 + r;
        constexpr float kWeightOfReference = 1.0f / static_cast<float>(int64_t{1} << kHeadroom);
        const float maximum = (state.begun >> r & 1) != 0 ? state.reference[r] / scale() : -kInfinity;
        const RowEnd end = end_of_row(call_, b, h, i, maximum, totals[r] / kWeightOfReference);
        t_.write_statistics(call_.row_index(b, h, i), end);
        factors[r] = end.factor / kWeightOfReference;
      }
      factors[r] *= call_.survivor_scale;
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
  const int64_t keys_, block_rows_;
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

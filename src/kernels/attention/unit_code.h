#pragma once

// The code of units, over the operations `Ops`: those of unit_operations_amx.h or unit_operations_portable.h.

#ifdef ATTENTIVE_UNITS_ON_AMX
#include "kernels/attention/unit_operations_amx.h"
#else
#include "kernels/attention/unit_operations_portable.h"
#endif
#include "kernels/attention/units.h"

namespace attentive::kernels::cpu {
namespace {

using Floats = Ops::Floats;  // 16 numbers
using Words = Ops::Words;    // 32 numbers of 16 bits

constexpr int64_t kTile = 512;             // bf16 numbers of a register of the matrix unit: 16 rows of 32
constexpr float kFraction = 512.0f;        // a weight's exponent is computed as a whole number of 1/512
constexpr float kMagic = 0x1p23f;          // adding it rounds to a whole number
constexpr float kMostReference = 8192.0f;  // up to here, `shift` is exact

// The weights of 32 keys, in the order of Ops::saturated: 2^(t - reference - headroom) as bf16, where s *
// scale + shift is 2^23 + 512 (t - reference - headroom + 127). The sum's lowest bits are the exponent field
// and nine bits of the fraction f; a cubic in float16 gives 1 + (2^f - 1) / 8, whose lowest seven bits are
// the mantissa.
ATTENTIVE_ALWAYS_INLINE Words weights_of(Floats s0, Floats s1, Floats scale, Floats shift0, Floats shift1) {
  const Words fixed = Ops::saturated(Ops::fma(s0, scale, shift0), Ops::fma(s1, scale, shift1));
  const Words x = Ops::select(Ops::words(0x1ff), fixed, Ops::words(0x3c00));  // 1 + f / 2 in float16
  Words z = Ops::half_fma(Ops::halves(0.077941895f), x, Ops::halves(-0.12078857f));
  z = Ops::half_fma(z, x, Ops::halves(0.18151855f));
  z = Ops::half_fma(z, x, Ops::halves(0.86132812f));
  return Ops::select(Ops::words(0x3f80), Ops::quarter(fixed), z);
}

// Which keys of an edge a row may see, one bit each.
ATTENTIVE_ALWAYS_INLINE uint64_t shown_keys(const Unit& unit, int r) {
  const int32_t hi = unit.hi + r;
  uint64_t shown = Ops::first_bits(hi < unit.end ? hi : unit.end) & ~Ops::first_bits(unit.lo + r);
  if (unit.shown) shown &= unit.shown[r];
  return shown;
}

// Takes the references of rows from the first keys that they see.
template <bool kEdge>
ATTENTIVE_ALWAYS_INLINE void begin_rows(const Unit& unit, const float* scores, float scale) {
  UnitRows& rows = *unit.rows;
  Floats tops[kUnitRows];
  uint32_t begin = 0;
  const int parts = kEdge ? unit.parts : 4;
  for (int r = 0; r < kUnitRows; ++r) {
    const uint64_t shown = kEdge ? shown_keys(unit, r) : ~uint64_t{0};
    tops[r] = Ops::all(-__builtin_inff());
    for (int part = 0; part < parts; ++part)
      tops[r] = Ops::larger(tops[r], Ops::load(scores + r * kUnitKeys + 16 * part),
                            static_cast<uint16_t>(shown >> 16 * part));
    begin |= static_cast<uint32_t>(shown != 0) << r;
  }
  begin &= ~rows.begun;
  const Floats reference = Ops::nearest(Ops::times(Ops::largest_of_each(tops), Ops::all(scale * kFraction)));
  const uint32_t fit = Ops::within(reference, kMostReference * kFraction);
  Ops::store(rows.reference, Ops::times(reference, Ops::all(1 / kFraction)), begin & fit);
  Ops::store(rows.shift,
             Ops::fma(reference, Ops::all(-1.0f), Ops::all(kMagic + kFraction * (127 - kHeadroom))),
             begin & fit);
  rows.begun |= begin;
  rows.unfit |= begin & ~fit;
}

// The weights of row r of a unit.
template <bool kEdge, bool kDrop>
struct RowWeights {
  const Unit& unit;
  const float* scores;
  bf16_t* weights;
  Floats scale;  // times kFraction

  ATTENTIVE_ALWAYS_INLINE void operator()(int r) const {
    UnitRows& rows = *unit.rows;
    const float* const s = scores + r * kUnitKeys;
    uint64_t shown = 0;
    if constexpr (kEdge) shown = shown_keys(unit, r);
    const Floats shift = Ops::all(rows.shift[r]);
    const bool two = !kEdge || unit.parts > 2;  // else nothing reads the weights of the last 32 keys
    Words first = weights_of(Ops::load(s), Ops::load(s + 16), scale, shift, shift), second{};
    if (two) second = weights_of(Ops::load(s + 32), Ops::load(s + 48), scale, shift, shift);
    if constexpr (kEdge) {
      first = Ops::keep(first, static_cast<uint32_t>(shown));
      if (two) second = Ops::keep(second, static_cast<uint32_t>(shown >> 32));
    }
    Floats total = Ops::add_pairs(Ops::load(rows.totals[r]), first);
    if (two) total = Ops::add_pairs(total, second);
    Ops::store(rows.totals[r], total);
    if constexpr (kDrop) {
      uint64_t survivors;
      __builtin_memcpy(&survivors, unit.survivors + r * unit.stride, sizeof(survivors));
      first = Ops::keep(first, static_cast<uint32_t>(survivors));
      if (two) second = Ops::keep(second, static_cast<uint32_t>(survivors >> 32));
    }
    Ops::store(weights + r * kUnitKeys, first);
    if (two) Ops::store(weights + r * kUnitKeys + 32, second);
  }
};

// The register of sums whose numbers have not been stored yet.
template <int kSum>
ATTENTIVE_ALWAYS_INLINE void store_sums(float* to, int64_t row_bytes) {
  if (to) Ops::store_tile<kSum>(to, row_bytes);
}

// Stores what the step before left.
template <int kD>
ATTENTIVE_ALWAYS_INLINE void store_late(const UnitMemory& memory) {
  store_sums<2>(memory.late[0], kD * 4);
  store_sums<3>(memory.late[1], kD * 4);
}

// One accumulator after the other. A store waits for its products, and what is issued behind it waits too, so
// it is issued among the products of the accumulator after the next one; the last two of a step are left to
// the next step.
template <int kD, class Rows>
ATTENTIVE_ALWAYS_INLINE void products_among(const Unit& next, float* scores, const Unit& before,
                                            const bf16_t* weights, UnitMemory& memory, const Rows& row) {
  constexpr int kSteps = kD / 32, kFirstLeft = 6 - kSteps;  // registers of the queries
  constexpr int kSums = kD == 64 ? 4 : 2;                   // registers of scores
  static_assert(kD == 64 || kD == 128);
  const bf16_t* const q = next.queries;
  if constexpr (kSums == 2) store_late<kD>(memory);
  if (next.parts > 0) {
    Ops::load_tile<kFirstLeft>(q, kD * 2);
    Ops::load_tile<kFirstLeft + 1>(q + 32, kD * 2);
    if constexpr (kSteps == 4) {
      Ops::load_tile<kFirstLeft + 2>(q + 64, kD * 2);
      Ops::load_tile<kFirstLeft + 3>(q + 96, kD * 2);
    }
  }
  const auto scores_of = [&](int part) { return part < next.parts ? scores + 16 * part : nullptr; };
  const auto part_of_scores = [&](auto number) {
    constexpr int kPart = decltype(number)::value, kSum = kPart % kSums;
    const bf16_t* const k = next.keys + kPart * kSteps * kTile;
    const bool needed = kPart < next.parts;
    if (needed) {
      Ops::zero_tile<kSum>();
      Ops::stream_tile<6>(k, 64);
      Ops::multiply<kSum, kFirstLeft, 6>();
    }
    if constexpr (kSums == 4) {
      if constexpr (kPart < 2) {
        store_sums<kPart + 2>(memory.late[kPart], kD * 4);
      } else {
        store_sums<kPart - 2>(scores_of(kPart - 2), kUnitKeys * 4);
      }
    } else if constexpr (kPart > 0) {
      store_sums<(kPart - 1) % 2>(scores_of(kPart - 1), kUnitKeys * 4);
    }
    row(2 * kPart);
    if (needed) {
      Ops::stream_tile<7>(k + kTile, 64);
      Ops::multiply<kSum, kFirstLeft + 1, 7>();
      if constexpr (kSteps == 4) {
        Ops::stream_tile<6>(k + 2 * kTile, 64);
        Ops::multiply<kSum, kFirstLeft + 2, 6>();
        Ops::stream_tile<7>(k + 3 * kTile, 64);
        Ops::multiply<kSum, kFirstLeft + 3, 7>();
      }
    }
    row(2 * kPart + 1);
  };
  part_of_scores(Ops::Number<0>{});
  part_of_scores(Ops::Number<1>{});
  part_of_scores(Ops::Number<2>{});
  part_of_scores(Ops::Number<3>{});

  constexpr int kColumns = kD / 16, kRowsEach = 8 / kColumns;  // of 16 columns of the sums
  const bool some = before.parts > 0, two = before.parts > 2;
  if (some) {
    Ops::load_tile<4>(weights, kUnitKeys * 2);
    if (two) Ops::load_tile<5>(weights + 32, kUnitKeys * 2);
  }
  const auto columns_of_sums = [&](auto number) {
    constexpr int kColumn = decltype(number)::value, kSum = kColumn % 4;
    const bf16_t* const v = before.values + kColumn * kTile;
    float* const sums = before.sums + 16 * kColumn;
    if (some) {
      if (before.begins) {
        Ops::zero_tile<kSum>();
      } else {
        Ops::load_tile<kSum>(sums, kD * 4);
      }
      Ops::stream_tile<6>(v, 64);
      Ops::multiply<kSum, 4, 6>();
    }
    if constexpr (kColumn >= 2) {
      store_sums<(kColumn - 2) % 4>(some ? sums - 32 : nullptr, kD * 4);
    } else if constexpr (kSums == 4) {
      store_sums<kColumn + 2>(scores_of(kColumn + 2), kUnitKeys * 4);
    } else if constexpr (kColumn == 0) {
      store_sums<1>(scores_of(3), kUnitKeys * 4);
    }
    if constexpr (kRowsEach > 1) row(8 + kRowsEach * kColumn);
    if (two) {
      Ops::stream_tile<7>(v + kColumns * kTile, 64);
      Ops::multiply<kSum, 5, 7>();
    }
    row(8 + kRowsEach * kColumn + kRowsEach - 1);
  };
  columns_of_sums(Ops::Number<0>{});
  columns_of_sums(Ops::Number<1>{});
  columns_of_sums(Ops::Number<2>{});
  columns_of_sums(Ops::Number<3>{});
  if constexpr (kColumns == 8) {
    columns_of_sums(Ops::Number<4>{});
    columns_of_sums(Ops::Number<5>{});
    columns_of_sums(Ops::Number<6>{});
    columns_of_sums(Ops::Number<7>{});
  }
  for (int i = 0; i < 2; ++i) memory.late[i] = some ? before.sums + kD - 32 + 16 * i : nullptr;
}

template <int kD, bool kEdge, bool kDrop>
void step_of(const Unit& next, const Unit& now, const Unit& before, UnitMemory& memory, int turn,
             float scale) {
  const RowWeights<kEdge, kDrop> row{now, memory.scores[turn ^ 1], memory.weights[turn],
                                     Ops::all(scale * kFraction)};
  if (now.rows->begun != (1u << kUnitRows) - 1) begin_rows<kEdge>(now, memory.scores[turn ^ 1], scale);
  products_among<kD>(next, memory.scores[turn], before, memory.weights[turn ^ 1], memory, row);
  Ops::written_for_tiles();
}

// A step without weights, before the first unit and after the last.
template <int kD>
void step_of_products(const Unit& next, const Unit&, const Unit& before, UnitMemory& memory, int turn,
                      float) {
  products_among<kD>(next, memory.scores[turn], before, memory.weights[turn ^ 1], memory, [](int) {});
  Ops::written_for_tiles();
}

template <int kD>
void flush(UnitMemory& memory) {
  store_late<kD>(memory);
  memory.late[0] = memory.late[1] = nullptr;
  Ops::written_for_tiles();
}

template <int kD>
void step(const Unit& next, const Unit& now, const Unit& before, UnitMemory& memory, int turn, float scale) {
  const auto chosen = now.parts == 0  ? step_of_products<kD>
                      : now.survivors ? (now.edge ? step_of<kD, true, true> : step_of<kD, false, true>)
                                      : (now.edge ? step_of<kD, true, false> : step_of<kD, false, false>);
  chosen(next, now, before, memory, turn, scale);
}

// The backward pass.

template <bool kDrop>
void gradients_of(const UnitGradients& tile) {
  alignas(64) float shifts[kMostOfTile], deltas[kMostOfTile];
  for (int64_t c = 0; c < tile.columns; c += 16) {
    const Floats t =
        Ops::fma(Ops::load(tile.maximum + c), Ops::all(tile.unit), Ops::load(tile.log_total + c));
    // A query without keys has an infinite total, and weights of 0.
    Ops::store(shifts + c, Ops::fma(t, Ops::all(-kFraction), Ops::all(kMagic + kFraction * 127)));
    Ops::store(deltas + c, Ops::times(Ops::load(tile.delta + c), Ops::all(-tile.scale)));
  }
  const Floats fraction = Ops::all(tile.unit * kFraction);
  const Floats factor = Ops::all(kDrop ? tile.scale * tile.survivor_scale : tile.scale);
  const auto below = [](int64_t n) { return n >= 32 ? ~uint32_t{0} : n <= 0 ? 0 : (uint32_t{1} << n) - 1; };
  for (int64_t r = 0; r < tile.keys; r += 2) {
    for (int64_t c = 0; c < tile.columns; c += 32) {
      const int64_t second = c + 16 < tile.columns ? c + 16 : c;  // which hides its columns if there are none
      Words both[2] = {Ops::words(0), Ops::words(0)};
      for (int64_t n = 0; n < 2 && r + n < tile.keys; ++n) {
        const UnitGradientRow& row = tile.rows[r + n];
        const float *const s = tile.scores.row(r + n), *const products = tile.products.row(r + n);
        const uint32_t shown = below(row.hi - c) & ~below(row.lo - c) & (second == c ? 0xffff : ~uint32_t{0});
        const Words weights = Ops::keep(weights_of(Ops::load(s + c), Ops::load(s + second), fraction,
                                                   Ops::load(shifts + c), Ops::load(shifts + second)),
                                        shown);
        const Floats w0 = Ops::first_half(weights), w1 = Ops::second_half(weights);
        Floats p0 = Ops::load(products + c), p1 = Ops::load(products + second);
        bf16_t* const to = tile.weights.row(r + n) + c;
        if constexpr (kDrop) {
          const uint32_t survives = Ops::bits_of(row.drop + c, row.drop_bit) & shown;
          const Floats scale = Ops::all(tile.survivor_scale);
          p0 = Ops::keep(p0, static_cast<uint16_t>(survives));
          p1 = Ops::keep(p1, static_cast<uint16_t>(survives >> 16));
          Ops::store_rounded(to, Ops::keep(Ops::times(w0, scale), static_cast<uint16_t>(survives)),
                             Ops::keep(Ops::times(w1, scale), static_cast<uint16_t>(survives >> 16)));
        } else {
          Ops::store(to, Ops::in_order(weights));
        }
        const Floats g0 = Ops::times(w0, Ops::fma(p0, factor, Ops::load(deltas + c))),
                     g1 = Ops::times(w1, Ops::fma(p1, factor, Ops::load(deltas + second)));
        // Products of hidden pairs may not be finite.
        both[n] = Ops::rounded(Ops::keep(g0, static_cast<uint16_t>(shown)),
                               Ops::keep(g1, static_cast<uint16_t>(shown >> 16)));
        Ops::store(tile.gradients.row(r + n) + c, both[n]);
      }
      bf16_t* const pairs = tile.pairs.data + r * tile.pairs.stride + 2 * c;
      Ops::interleave(both[0], both[1], pairs, pairs + 32);
    }
  }
}

void gradients(const UnitGradients& tile) {
  tile.rows[0].drop ? gradients_of<true>(tile) : gradients_of<false>(tile);
}

// Packing.

constexpr int64_t kPackedRows = 32;
// What makes keys, values and queries unfit for units: products of numbers beyond 2^50 could overflow on the
// way, and values none of which reaches 2^-63 would vanish when they are multiplied by a weight.
constexpr uint16_t kBeyond = static_cast<uint16_t>((127 + 50) << 7) + 1;  // the first number above 2^50
constexpr uint16_t kAnyLargeBits = 0x6000;  // one of them is set in a number of at least 2^-63

// Packs 32 keys and values.
ATTENTIVE_ALWAYS_INLINE void pack_block(const Matrix<const bf16_t>& k, const Matrix<const bf16_t>& v,
                                        bf16_t* keys, bf16_t* values) {
  for (int64_t half = 0; half < 2; ++half) {
    for (int64_t d = 0; d < k.cols; d += 32)
      Ops::transpose(k.row(16 * half) + d, k.stride, keys + (half * k.cols / 32 + d / 32) * kTile);
  }
  // The keys of pair r, in the order of Ops::saturated.
  for (int64_t r = 0; r < 16; ++r) {
    const int64_t key = key_of_word(2 * static_cast<int>(r));
    for (int64_t d = 0; d < v.cols; d += 32) {
      bf16_t* const to = values + d / 16 * kTile + 32 * r;
      Ops::interleave(Ops::load_words(v.row(key) + d), Ops::load_words(v.row(key + 1) + d), to, to + kTile);
    }
  }
}

// Whether units may multiply all of these keys and values.
ATTENTIVE_ALWAYS_INLINE bool all_fit(const Matrix<const bf16_t>& k, const Matrix<const bf16_t>& v) {
  Words top = Ops::words(0);
  bool large = true;
  for (int64_t j = 0; j < k.rows; ++j) {
    for (int64_t d = 0; d < k.cols; d += 32) top = Ops::larger_magnitudes(top, Ops::load_words(k.row(j) + d));
    Words any = Ops::words(0);
    for (int64_t d = 0; d < v.cols; d += 32) {
      const Words x = Ops::load_words(v.row(j) + d);
      top = Ops::larger_magnitudes(top, x);
      any = Ops::either(any, x);
    }
    large &= Ops::any_bits(any, kAnyLargeBits);
  }
  return large && !Ops::any_from(top, kBeyond);
}

bool pack(const UnitKeys& to) {
  const Matrix<const bf16_t>&k = to.k, &v = to.v;
  const int64_t end = (k.rows + kUnitKeys - 1) / kUnitKeys * kUnitKeys;
  bool all = true;
  for (int64_t j = 0; j < end; j += kPackedRows) {
    const int64_t rows = k.rows - j < kPackedRows ? k.rows - j : kPackedRows;
    bf16_t *const keys = to.keys + j * k.cols, *const values = to.values + j * v.cols;
    if (rows == kPackedRows && all_fit(k.part(j, rows), v.part(j, rows))) {
      __builtin_memset(to.fit + j, 1, kPackedRows);
      pack_block(k.part(j, rows), v.part(j, rows), keys, values);
      continue;
    }
    // Copies with zeros for what does not fit, or is beyond the last key.
    alignas(64) bf16_t copies[2][kPackedRows * 128] = {};
    for (int64_t r = 0; r < rows; ++r) {
      bool beyond = false, large = false, any = false;
      for (int64_t d = 0; d < k.cols; ++d) beyond |= (k.row(j + r)[d] & 0x7fff) >= kBeyond;
      for (int64_t d = 0; d < v.cols; ++d) {
        const uint16_t size = v.row(j + r)[d] & 0x7fff;
        beyond |= size >= kBeyond;
        large |= (size & kAnyLargeBits) != 0;
        any |= size != 0;
      }
      const bool fits = !beyond && (large || !any);
      to.fit[j + r] = fits;
      all &= fits;
      if (!fits) continue;
      __builtin_memcpy(copies[0] + r * k.cols, k.row(j + r), static_cast<size_t>(k.cols) * sizeof(bf16_t));
      __builtin_memcpy(copies[1] + r * v.cols, v.row(j + r), static_cast<size_t>(v.cols) * sizeof(bf16_t));
    }
    pack_block({copies[0], kPackedRows, k.cols, k.cols}, {copies[1], kPackedRows, v.cols, v.cols}, keys,
               values);
  }
  return all;
}

void start_rows(const Matrix<const bf16_t>& queries, bf16_t* to, UnitRows& rows) {
  uint32_t unfit = 0;
  for (int64_t r = 0; r < kUnitRows; ++r) {
    Ops::store(rows.totals[r], Ops::all(0.0f));
    Words top = Ops::words(0);
    for (int64_t d = 0; d < queries.cols; d += 32) {
      const Words x = r < queries.rows ? Ops::load_words(queries.row(r) + d) : Ops::words(0);
      top = Ops::larger_magnitudes(top, x);
      Ops::store(to + r * queries.cols + d, x);
    }
    if (Ops::any_from(top, kBeyond)) unfit |= 1u << r;
  }
  rows.begun = 0;
  rows.unfit = unfit;
}

void write(const float* sums, const float* factors, int64_t rows, int64_t width, bf16_t* to, int64_t stride) {
  for (int64_t r = 0; r < rows; ++r) {
    const Floats factor = Ops::all(factors[r]);
    for (int64_t c = 0; c < width; c += 32) {
      const float* const from = sums + r * width + c;
      Ops::store_rounded(to + r * stride + c, Ops::times(Ops::load(from), factor),
                         Ops::times(Ops::load(from + 16), factor));
    }
  }
}

uint32_t totals(const UnitRows& rows, float* to, float* inverse) {
  Floats of_row[kUnitRows];
  for (int r = 0; r < kUnitRows; ++r) of_row[r] = Ops::load(rows.totals[r]);
  const Floats total = Ops::sum_of_each(of_row);
  Ops::store(to, total);
  Ops::store(inverse, Ops::inverse(total), rows.begun);
  return Ops::below(total, 1.0f);
}

constexpr UnitFunctions kUnitFunctions = {.pack = pack,
                                          .bits = Ops::bits,
                                          .start_rows = start_rows,
                                          .of_64 = {step<64>, flush<64>},
                                          .of_128 = {step<128>, flush<128>},
                                          .gradients = gradients,
                                          .totals = totals,
                                          .write = write,
                                          .begin = Ops::begin,
                                          .end = Ops::end};

}  // namespace
}  // namespace attentive::kernels::cpu

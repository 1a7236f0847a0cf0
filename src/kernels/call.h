#pragma once

// A call in the form that this package's own kernels read, on the CPU and on CUDA. It does not include ATen,
// whose headers would cost nvcc half a minute.

#include <cstdint>

#include "kernels/terms.h"

namespace attentive {
struct AttentionOptions;
namespace detail {
struct CapturedView;
struct PairFunctionCode;
}  // namespace detail
}  // namespace attentive

namespace attentive::kernels {

/// The keys that a query may see by position: causality and windows as one pair of bounds, which every
/// backend reads. Query i may see the keys i + lo … i + hi. It is aligned with key i + origin: ALiBi's
/// distances and the indices of Counter dropout count from that position.
struct Band {
  static constexpr int64_t kUnbounded = int64_t{1} << 60;  ///< added to any index, it does not overflow

  int64_t lo = -kUnbounded, hi = kUnbounded;
  int64_t origin = 0;

  ATTENTIVE_HOST_DEVICE bool has_lo() const { return lo != -kUnbounded; }
  ATTENTIVE_HOST_DEVICE bool has_hi() const { return hi != kUnbounded; }
  bool unbounded() const { return !has_lo() && !has_hi(); }
  ATTENTIVE_HOST_DEVICE int64_t position(int64_t i) const { return i + origin; }
  /// The row index of Counter dropout: the position, so that a query draws the same bits in any part of its
  /// sequence. It is taken modulo 2^32, so that queries before the first key also have distinct rows.
  ATTENTIVE_HOST_DEVICE uint32_t counter_row(int64_t i) const { return static_cast<uint32_t>(position(i)); }
  /// Whether the band is exactly a causal mask, with either alignment.
  bool only_causal() const { return !has_lo() && (hi == 0 || hi == origin); }

  /// Query i may see the keys [key_lo, key_hi) of S; the queries [query_lo, query_hi) of L may see key j.
  ATTENTIVE_HOST_DEVICE int64_t key_lo(int64_t i, int64_t S) const { return clamped(i + lo, S); }
  ATTENTIVE_HOST_DEVICE int64_t key_hi(int64_t i, int64_t S) const { return clamped(i + hi + 1, S); }
  ATTENTIVE_HOST_DEVICE int64_t query_lo(int64_t j, int64_t L) const { return clamped(j - hi, L); }
  ATTENTIVE_HOST_DEVICE int64_t query_hi(int64_t j, int64_t L) const { return clamped(j - lo + 1, L); }
  /// Whether each of S keys may be seen by some of L queries, of which there is one at least.
  bool shows_every_key(int64_t L, int64_t S) const { return lo <= hi && lo <= 0 && S - L <= hi; }

 private:
  ATTENTIVE_HOST_DEVICE static int64_t clamped(int64_t x, int64_t most) {
    return x < 0 ? 0 : x < most ? x : most;
  }
};

/// The band of keys that checked options allow by causality and window, for sequences of these lengths.
Band band_of(const AttentionOptions& options, int64_t queries, int64_t keys);

/// The band of a part whose queries begin `offset` positions later relative to its keys.
Band shifted(Band band, int64_t offset, int64_t queries, int64_t keys);

/// Where a problem lies within a larger one, of which it is a part.
struct Places {
  int64_t batch_offset = 0, head_offset = 0;  ///< added to b and h in dropout, score and mask functions
  /// The place of the first key, and the lengths of the whole call (0: those of this problem), for score and
  /// mask functions; a part of a call has those of the whole.
  int64_t key_offset = 0, whole_queries = 0, whole_keys = 0;
};

/// One sequence of a packed problem: its rows of q, and of k and v, and the band for its own lengths.
struct Sequence {
  int64_t first_query = 0, queries = 0, first_key = 0, keys = 0;
  Band band = {};
  int64_t item = 0;                           ///< the batch item of every tensor that it reads and writes
  int64_t whole_queries = 0, whole_keys = 0;  ///< see Places
};

/// The element types of q, k and v.
enum class Element { Float32, BFloat16, Float16 };

/// A view of a tensor of rank 4 or less; a broadcast dimension has stride 0.
template <class T>
struct Strided {
  T* data = nullptr;
  int64_t b = 0, h = 0, row = 0, col = 1;

  ATTENTIVE_HOST_DEVICE T* at(int64_t ib, int64_t ih, int64_t ir = 0, int64_t ic = 0) const {
    return data + ib * b + ih * h + ir * row + ic * col;
  }
  /// The view from a batch item, row and column on; none of none.
  Strided part(int64_t ib, int64_t ir, int64_t ic = 0) const {
    return {data ? at(ib, 0, ir, ic) : nullptr, b, h, row, col};
  }
  ATTENTIVE_HOST_DEVICE explicit operator bool() const { return data != nullptr; }
};

/// A view of a bias (B, H, L, S) in its own element type; a broadcast dimension has stride 0.
struct BiasView {
  const void* data = nullptr;
  Element element = Element::Float32;
  int64_t b = 0, h = 0, row = 0, col = 1;

  /// The view as one of numbers of type T, which must be that of `element`.
  template <class T>
  ATTENTIVE_HOST_DEVICE Strided<const T> as() const {
    return {static_cast<const T*>(data), b, h, row, col};
  }
  /// The view from a batch item, row and column on.
  BiasView part(int64_t ib, int64_t ir, int64_t ic) const {
    const int64_t bytes = element == Element::Float32 ? 4 : 2;
    return {data ? static_cast<const char*>(data) + (ib * b + ir * row + ic * col) * bytes : nullptr,
            element,
            b,
            h,
            row,
            col};
  }
  ATTENTIVE_HOST_DEVICE explicit operator bool() const { return data != nullptr; }
};

/// A function of pairs that the program supplies.
struct UserFunction {
  const void* object = nullptr;
  const detail::PairFunctionCode* code = nullptr;  ///< null: there is no function

  explicit operator bool() const { return code != nullptr; }
};

/// The functions of pairs that a call's program supplies. The caller keeps them alive.
struct UserFunctions {
  UserFunction score, mask;
  const detail::CapturedView* captured = nullptr;
  /// detail::BlockClasses::Class, (B, H, blocks of queries, blocks of keys)
  Strided<const uint8_t> blocks = {};
};

/// Null means that a term is absent. `CallTensors` own what the pointers refer to. Functions without a body
/// here are the CPU kernel's (attention/user_functions.cpp).
struct Call : Places {
  int64_t B = 0, H = 0, Hkv = 0, L = 0, S = 0, D = 0, Dv = 0;
  int64_t group = 1;                   ///< query heads per key head
  Element element = Element::Float32;  ///< of q, k, v, the output and their gradients
  Band band = {};
  ScoreRule rule = {};    ///< without ALiBi
  bool normalise = true;  ///< whether a softmax turns scores into weights
  bool dropout = false;
  uint64_t dropout_key = 0;
  uint32_t threshold = 65536;  ///< a weight survives if its 16 random bits are below it
  float survivor_scale = 1.0f;
  /// Numbers per head of the tensors (B, H, L) and (B, H, S) that the passes read and write: L and S, or for
  /// a sequence of a packed call those of the whole call.
  int64_t rows_of_head = 0, keys_of_head = 0;
  const Sequence* sequences = nullptr;  ///< of a packed call; null: it is not packed
  int64_t sequence_count = 0;

  Strided<const bool> keep = {};         ///< (B, H, L, S)
  BiasView bias = {};                    ///< (B, H, L, S); float32 on CUDA
  const int64_t* key_lengths = nullptr;  ///< (B)
  Strided<const float> slopes = {};      ///< ALiBi: (B, H)
  const float* sinks = nullptr;          ///< (H)
  UserFunctions user = {};

  int64_t kv_head(int64_t h) const { return h / group; }
  /// The n-th query head of a key head.
  int64_t query_head(int64_t hkv, int64_t n) const { return hkv * group + n; }
  /// The index of a query in a tensor (B, H, L), and of a key in one of (B, H, S).
  int64_t row_index(int64_t b, int64_t h, int64_t i) const { return (b * H + h) * rows_of_head + i; }
  int64_t key_index(int64_t b, int64_t h, int64_t j) const { return (b * H + h) * keys_of_head + j; }
  /// Whether a call with this many multiplications per pair of query and key is worth several threads: for
  /// less work, waking a thread costs more than it saves.
  bool worth_threads(int64_t flops_per_pair) const {
    return B * H * L * S * flops_per_pair > (int64_t{1} << 18);
  }

  /// Keys [lo, hi) that query i of batch item b may see by position and length.
  ATTENTIVE_HOST_DEVICE int64_t key_lo(int64_t i) const { return band.key_lo(i, S); }
  ATTENTIVE_HOST_DEVICE int64_t key_hi(int64_t b, int64_t i) const {
    const int64_t hi = band.key_hi(i, S);
    if (!key_lengths) return hi;
    const int64_t length = key_lengths[b];
    return length < 0 ? 0 : length < hi ? length : hi;
  }
  /// Queries [lo, hi) that may see key j.
  int64_t query_lo(int64_t j) const { return band.query_lo(j, L); }
  int64_t query_hi(int64_t b, int64_t j) const {
    return key_lengths && j >= key_lengths[b] ? 0 : band.query_hi(j, L);
  }
  /// The rule of a head's scores.
  ATTENTIVE_HOST_DEVICE ScoreRule rule_of(int64_t b, int64_t h) const {
    ScoreRule result = user.score.code ? ScoreRule{} : rule;  // a score function has taken scale and cap
    if (slopes) result.alibi.slope = *slopes.at(b, h);
    return result;
  }
  /// Whether no mask hides key j from query i, but for the program's own.
  bool unmasked(int64_t b, int64_t h, int64_t i, int64_t j) const;
  /// Whether the program's own mask, which there must be, shows the pair.
  bool unhidden(int64_t b, int64_t h, int64_t i, int64_t j) const;
  bool sees(int64_t b, int64_t h, int64_t i, int64_t j) const {
    return j >= key_lo(i) && j < key_hi(b, i) && unmasked(b, h, i, j) && (!user.mask || unhidden(b, h, i, j));
  }
  bool sees_a_key(int64_t b, int64_t h, int64_t i) const {
    for (int64_t j = key_lo(i); j < key_hi(b, i); ++j) {
      if (unmasked(b, h, i, j) && (!user.mask || unhidden(b, h, i, j))) return true;
    }
    return false;
  }
  /// The detail::BlockClasses::Class of the tile that holds this pair.
  int block_of(int64_t b, int64_t h, int64_t i, int64_t j) const;
  /// Writes the dropout bits of `count` queries from i on for the blocks of 128 keys that cover [from, to).
  /// out[n * row_stride + g * stride] gets group g of 16 keys of query i + n, counted from the start of the
  /// first block.
  void dropout_bits(int64_t b, int64_t h, int64_t i, int64_t count, int64_t from, int64_t to, uint16_t* out,
                    int64_t row_stride, int64_t stride) const;

  /// The n-th sequence of this call, which is packed, as a call of one item, without the classes of its
  /// tiles.
  Call of_sequence(const Sequence& sequence, int64_t n) const {
    Call one = *this;
    one.L = sequence.queries;
    one.S = sequence.keys;
    one.B = 1;
    one.band = sequence.band;
    one.batch_offset += n;
    one.whole_queries = sequence.whole_queries;
    one.whole_keys = sequence.whole_keys;
    one.sequences = nullptr;
    one.keep = keep.part(sequence.item, sequence.first_query, sequence.first_key);
    one.bias = bias.part(sequence.item, sequence.first_query, sequence.first_key);
    one.key_lengths = nullptr;  // there are no more keys
    one.slopes = slopes.part(sequence.item, 0);
    return one;
  }
};

}  // namespace attentive::kernels

#pragma once

// The arguments of a call, with the bounds and mask tests that the loops over tiles need.

#include <algorithm>
#include <limits>

#include <attentive/score/pair_functions.h>

#include "kernels/arguments.h"
#include "kernels/attention/rows.h"
#include "kernels/simd/elementwise.h"

namespace attentive::kernels::cpu {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

inline int64_t round_up(int64_t x, int64_t to) {
  return (x + to - 1) / to * to;
}

/// A view of `count` rows of a tensor, with `width` contiguous numbers each.
template <class T>
Matrix<T> rows_of(const Strided<T>& x, int64_t b, int64_t h, int64_t row, int64_t count, int64_t width) {
  return {x.at(b, h, row), count, width, x.row};
}

/// The pairs of some queries and keys of one head.
struct Pairs {
  int64_t b, h, i0, queries, j0, keys;
};

/// Calls work(T{}) for the type T of an element type.
template <class Work>
void for_element(Element element, const Work& work) {
  switch (element) {
    case Element::Float32:
      return work(float{});
    case Element::BFloat16:
      return work(bf16_t{});
    case Element::Float16:
      return work(f16_t{});
  }
}

/// A function that the program supplies.
struct OwnFunction {
  const void* object = nullptr;
  const detail::PairFunctionCode* code = nullptr;  ///< null: there is no function

  explicit operator bool() const { return code != nullptr; }
};

/// The functions of pairs that a call's program supplies. The caller keeps them alive.
struct OwnFunctions {
  OwnFunction score, mask;
  const detail::CapturedView* captured = nullptr;
  Strided<const uint8_t> blocks =
      {};  ///< detail::BlockClasses::Class, (B, H, blocks of queries, blocks of keys)

  /// The class of the tile that holds this pair.
  int block_of(int64_t b, int64_t h, int64_t i, int64_t j) const {
    if (!mask) return detail::BlockClasses::Full;
    if (!blocks) return detail::BlockClasses::Partial;
    return *blocks.at(b, h, i / detail::BlockClasses::kSize, j / detail::BlockClasses::kSize);
  }
};

struct CpuArguments : KernelArguments {
  int64_t group = 1;                   ///< query heads per key head
  Element element = Element::Float32;  ///< of q, k, v, the output and their gradients
  bool normalise = true;               ///< whether a softmax turns scores into weights
  OwnFunctions own = {};

  int64_t kv_head(int64_t h) const { return h / group; }
  /// The n-th query head of a key head.
  int64_t query_head(int64_t hkv, int64_t n) const { return hkv * group + n; }
  /// Whether a call with this many multiplications per pair of query and key is worth several threads: for
  /// less work, waking a thread costs more than it saves.
  bool worth_sharing(int64_t numbers) const { return B * H * L * S * numbers > (int64_t{1} << 18); }

  /// Keys [lo, hi) that query i of batch item b may see by position and length.
  int64_t key_lo(int64_t i) const { return band.key_lo(i, S); }
  int64_t key_hi(int64_t b, int64_t i) const {
    const int64_t hi = band.key_hi(i, S);
    return key_lengths ? std::clamp<int64_t>(key_lengths[b], 0, hi) : hi;
  }
  /// Whether no mask hides key j from query i, but for the program's own.
  bool unmasked(int64_t b, int64_t h, int64_t i, int64_t j) const {
    if (keep && !*keep.at(b, h, i, j)) return false;
    return !bias || bias_at(b, h, i, j) != -kInfinity;
  }
  float bias_at(int64_t b, int64_t h, int64_t i, int64_t j) const {
    float number = 0.0f;
    for_element(bias.element, [&](auto type) {
      elementwise().convert(bias.as<decltype(type)>().at(b, h, i, j), &number, 1);
    });
    return number;
  }
  bool sees(int64_t b, int64_t h, int64_t i, int64_t j) const {
    return j >= key_lo(i) && j < key_hi(b, i) && unmasked(b, h, i, j) && (!own.mask || unhidden(b, h, i, j));
  }
  bool sees_a_key(int64_t b, int64_t h, int64_t i) const {
    const int64_t hi = key_hi(b, i);
    for (int64_t j = key_lo(i); j < hi; ++j) {
      if (unmasked(b, h, i, j) && (!own.mask || unhidden(b, h, i, j))) return true;
    }
    return false;
  }
  /// Whether the program's own mask, which there must be, shows the pair.
  bool unhidden(int64_t b, int64_t h, int64_t i, int64_t j) const;
  /// Queries [lo, hi) that may see key j.
  int64_t query_lo(int64_t j) const { return band.query_lo(j, L); }
  int64_t query_hi(int64_t b, int64_t j) const {
    return key_lengths && j >= key_lengths[b] ? 0 : band.query_hi(j, L);
  }
  /// The rule of a head's scores; a score function has taken scale and softcap.
  ScoreRule rule_of(int64_t b, int64_t h) const {
    const float slope = slopes ? *slopes.at(b, h) : 0.0f;
    return own.score ? ScoreRule{1.0f, 0.0f, slope} : ScoreRule{scale, softcap, slope};
  }
  /// Writes the dropout bits of query i for the blocks of 128 keys that cover [from, to). out[g * stride]
  /// gets group g of 16 keys, counted from the start of the first block.
  void dropout_bits(int64_t b, int64_t h, int64_t i, int64_t from, int64_t to, uint16_t* out,
                    int64_t stride) const {
    for (int64_t block = from / 128; block * 128 < to; ++block) {
      elementwise().dropout_bits(dropout_key, threshold, static_cast<uint32_t>(b + batch_offset),
                                 static_cast<uint32_t>(h + head_offset), band.counter_row(i),
                                 static_cast<uint32_t>(block), out, stride);
      out += 8 * stride;
    }
  }
};

}  // namespace attentive::kernels::cpu

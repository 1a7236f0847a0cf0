#pragma once

// A problem as the native kernel's loops see it: pointers, strides in elements, numbers.

#include <algorithm>
#include <atomic>
#include <limits>
#include <optional>
#include <vector>

#include <ATen/Parallel.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "kernels/numbers.h"
#include "kernels/simd/simd.h"

namespace attentive::kernels::cpu {

constexpr float kLog2e = 1.44269504088896340736f;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

inline int64_t round_up(int64_t x, int64_t to) {
  return (x + to - 1) / to * to;
}

// Rank 4; a broadcast dimension has stride 0.
template <class T>
struct Strided {
  T* data = nullptr;
  int64_t b = 0, h = 0, row = 0, col = 1;

  T* at(int64_t ib, int64_t ih, int64_t ir) const { return data + ib * b + ih * h + ir * row; }
  explicit operator bool() const { return data != nullptr; }
};

struct Call : Numbers {
  int64_t group = 1;  // query heads that share a head of keys
  bool is_bf16 = false;
  Strided<const float> bias = {};
  Strided<const bool> keep = {};
  const int64_t* key_lengths = nullptr;
  const float* slopes = nullptr;  // (B, H) with strides below
  int64_t slope_b = 0, slope_h = 0;
  const float* sinks = nullptr;  // (H)

  // Keys [lo, hi) that query i of batch item b may see by position and length.
  int64_t key_lo(int64_t i) const { return band.key_lo(i, S); }
  int64_t key_hi(int64_t b, int64_t i) const {
    const int64_t hi = band.key_hi(i, S);
    return key_lengths ? std::clamp<int64_t>(key_lengths[b], 0, hi) : hi;
  }
  // Whether no mask hides key j from query i.
  bool unmasked(int64_t b, int64_t h, int64_t i, int64_t j) const {
    if (keep && !keep.at(b, h, i)[j * keep.col]) return false;
    return !bias || bias.at(b, h, i)[j * bias.col] != -kInfinity;
  }
  bool sees_a_key(int64_t b, int64_t h, int64_t i) const {
    const int64_t hi = key_hi(b, i);
    for (int64_t j = key_lo(i); j < hi; ++j) {
      if (unmasked(b, h, i, j)) return true;
    }
    return false;
  }
  // Queries [lo, hi) that may see key j.
  int64_t query_lo(int64_t j) const { return band.query_lo(j, L); }
  int64_t query_hi(int64_t b, int64_t j) const {
    return key_lengths && j >= key_lengths[b] ? 0 : band.query_hi(j, L);
  }
  ScoreRule rule_of(int64_t b, int64_t h) const {
    return {scale, softcap, slopes ? slopes[b * slope_b + h * slope_h] : 0.0f};
  }
  // Dropout bits of query i for 128-column blocks that cover [from, to): group g of 16 columns, counted from
  // the first block, lies at out[g * stride].
  void dropout_bits(int64_t b, int64_t h, int64_t i, int64_t from, int64_t to, uint16_t* out,
                    int64_t stride) const {
    for (int64_t block = from / 128; block * 128 < to; ++block) {
      simd().dropout_bits(dropout_key, threshold, static_cast<uint32_t>(b + batch_offset),
                          static_cast<uint32_t>(h), static_cast<uint32_t>(i), static_cast<uint32_t>(block),
                          out, stride);
      out += 8 * stride;
    }
  }
};

// While it lives, results of this thread below the smallest normal number (1.2e-38) are 0. Sums that begin
// with far keys under ALiBi pass through that range, where every addition costs a hundred cycles.
class FlushTiny {
 public:
#if defined(__SSE__)
  FlushTiny() : saved_(_mm_getcsr()) {
    _mm_setcsr(saved_ | _MM_FLUSH_ZERO_ON);
  }
  ~FlushTiny() {
    _mm_setcsr(saved_);
  }
#else
  FlushTiny() {}
#endif
  FlushTiny(const FlushTiny&) = delete;
  FlushTiny& operator=(const FlushTiny&) = delete;

 private:
#if defined(__SSE__)
  unsigned saved_;
#endif
};

// Runs `work(item)` for 0 <= item < count on all threads. Which thread takes an item has no influence on its
// result. Each begins with a range of its own, so that what it packed is what it reads next, and in the cache
// of its core; one that is done helps the others.
template <class Work>
void for_each_item(int64_t count, bool parallel, const Work& work) {
  const int64_t threads = parallel ? std::min<int64_t>(at::get_num_threads(), count) : 1;
  if (threads <= 1) {
    const FlushTiny flush;
    for (int64_t item = 0; item < count; ++item) work(item);
    return;
  }
  struct alignas(64) Next {  // a line of the cache each
    std::atomic<int64_t> item;
  };
  std::vector<Next> next(static_cast<size_t>(threads));
  const auto start_of = [&](int64_t range) { return count * range / threads; };
  for (int64_t range = 0; range < threads; ++range) next[static_cast<size_t>(range)].item = start_of(range);
  at::parallel_for(0, threads, 1, [&](int64_t own, int64_t) {
    const FlushTiny flush;
    for (int64_t n = 0; n < threads; ++n) {
      const int64_t range = (own + n) % threads, end = start_of(range + 1);
      auto& item = next[static_cast<size_t>(range)].item;
      for (int64_t taken = item++; taken < end; taken = item++) work(taken);
    }
  });
}

// One row of a mask or bias as contiguous numbers: the row itself, or a copy in `buffer`.
template <class To, class From>
const To* contiguous_row(const Strided<From>& from, int64_t b, int64_t h, int64_t i, int64_t j, int64_t n,
                         To* buffer) {
  static_assert(sizeof(To) == sizeof(From));
  const From* row = from.at(b, h, i);
  if (from.col == 1) return reinterpret_cast<const To*>(row + j);
  for (int64_t c = 0; c < n; ++c) buffer[c] = static_cast<To>(row[(j + c) * from.col]);
  return buffer;
}

}  // namespace attentive::kernels::cpu

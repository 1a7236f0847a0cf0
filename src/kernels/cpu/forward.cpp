#include "kernels/cpu/forward.h"

#include <cmath>
#include <vector>

#include "kernels/cpu/tiles.h"

namespace attentive::kernels::cpu {
namespace {

// Tile sizes depend on shapes alone, never on the number of threads.
struct Tiles {
  int64_t rows, cols;
};

Tiles tiles_for(const Call& call) {
  // A narrow window wastes what a wide tile covers beyond it.
  if (call.window.left >= 0 && call.window.left < 512 && call.causal != Causal::None) return {64, 128};
  if (call.L <= 256) return {32, 128};
  if (call.L <= 1024) return {64, 256};
  return {128, 512};
}

constexpr int64_t kPackedBytes = int64_t{6} << 20;

// Keys of one head as right sides (D, width) of the score products, one panel per block of keys; for bf16 the
// values too, as right sides (width, Dv) in pairs.
template <class T>
struct Panels {
  int64_t width;                 // keys per panel
  int64_t blocks;                // panels per head
  int64_t key_size, value_size;  // elements of one panel

  Panels(const Call& call, int64_t cols)
      : width(std::min(cols, round_up(call.S, 16))),
        blocks((call.S + width - 1) / width),
        key_size(inner<T>(call.D) * width),
        value_size(kIsBf16<T> ? call.Dv * width : 0) {}
  int64_t head_size() const { return blocks * (key_size + value_size); }
  T* key(T* head, int64_t block) const { return head + block * key_size; }
  T* value(T* head, int64_t block) const { return head + blocks * key_size + block * value_size; }
};

template <class T>
class Forward {
 public:
  Forward(const Call& call, const ForwardTensors<T>& tensors)
      : call_(call), t_(tensors), tiles_(tiles_for(call)), panels_(call, tiles_.cols) {}

  void run() {
    const int64_t heads = call_.B * call_.Hkv;
    const int64_t bytes = panels_.head_size() * static_cast<int64_t>(sizeof(T));
    const int64_t at_once = std::clamp<int64_t>(kPackedBytes / std::max<int64_t>(bytes, 1), 1, heads);
    const int64_t blocks = panels_.blocks;
    const int64_t row_blocks = (call_.L + tiles_.rows - 1) / tiles_.rows;
    // Work that is too small to share costs more by waking threads than by doing it.
    const bool parallel = call_.B * call_.H * call_.L * call_.S * (call_.D + call_.Dv) > (int64_t{1} << 18);

    // The packed keys belong to the calling thread, whose own tiles use another arena.
    thread_local Scratch shared;
    shared.reset();
    T* packed = shared.take<T>(at_once * panels_.head_size());
    auto* finite = shared.take<uint8_t>(at_once * call_.S);
    for (int64_t first = 0; first < heads; first += at_once) {
      const int64_t count = std::min(at_once, heads - first);
      for_each_item(count * blocks, parallel, [&](int64_t item) {
        pack(first + item / blocks, item % blocks, packed + item / blocks * panels_.head_size(),
             finite + item / blocks * call_.S);
      });
      // Heads one after the other, long rows first: what is left at the end is small.
      for_each_item(count * call_.group * row_blocks, parallel, [&](int64_t item) {
        const int64_t head = item / (call_.group * row_blocks), in_group = item / row_blocks % call_.group;
        const int64_t block = row_blocks - 1 - item % row_blocks;
        attend(first + head, in_group, block, packed + head * panels_.head_size(), finite + head * call_.S);
      });
    }
  }

 private:
  void pack(int64_t head, int64_t block, T* packed, uint8_t* finite) const {
    const int64_t b = head / call_.Hkv, h = head % call_.Hkv, from = block * panels_.width;
    const int64_t keys = std::min(panels_.width, call_.S - from);
    pack_right_transposed(t_.k.at(b, h, from), t_.k.row, keys, call_.D, panels_.key(packed, block),
                          panels_.width);
    if constexpr (kIsBf16<T>) {
      simd().pack_pairs(t_.v.at(b, h, from), t_.v.row, panels_.value(packed, block), call_.Dv, keys,
                        call_.Dv);
    }
    for (int64_t j = from; j < from + keys; ++j) finite[j] = row_is_finite(t_.v.at(b, h, j), call_.Dv);
  }

  void attend(int64_t head, int64_t in_group, int64_t block, T* packed, const uint8_t* finite) const {
    const int64_t b = head / call_.Hkv, hkv = head % call_.Hkv, h = hkv * call_.group + in_group;
    const int64_t i0 = block * tiles_.rows, rows = std::min(tiles_.rows, call_.L - i0);
    const int64_t ld =
        panels_.width + 16;  // not a power of two: rows would fall on the same lines of the cache
    Scratch& scratch = Scratch::of_this_thread();
    scratch.reset();
    float* scores = scratch.take<float>(tiles_.rows * ld);
    float* sums = scratch.take<float>(tiles_.rows * call_.Dv);
    float* maximum = scratch.take<float>(tiles_.rows);
    float* total = scratch.take<float>(tiles_.rows);
    T* weights = kIsBf16<T> ? scratch.take<T>(tiles_.rows * ld) : reinterpret_cast<T*>(scores);
    T* values = scratch.take<T>(round_up(panels_.width, 2) * call_.Dv);
    T* query_copy = scratch.take<T>(kIsBf16<T> ? tiles_.rows * inner<T>(call_.D) : 0);
    auto* drop = scratch.take<uint16_t>(call_.dropout ? (panels_.width / 16 + 16) * tiles_.rows : 0);
    auto* keep_row = scratch.take<uint8_t>(panels_.width);
    float* bias_row = scratch.take<float>(panels_.width);

    std::fill_n(maximum, rows, -kInfinity);
    std::fill_n(total, rows, 0.0f);
    int64_t ldq = 0;
    const T* query = left_of_rows(t_.q.at(b, h, i0), t_.q.row, rows, call_.D, query_copy, &ldq);
    const ScoreRule rule = call_.rule_of(b, h);
    const int64_t begin = call_.key_lo(i0) / 16 * 16, end = call_.key_hi(b, i0 + rows - 1);
    bool started = false;

    for (int64_t panel = begin / panels_.width; panel * panels_.width < end; ++panel) {
      const int64_t from = std::max(begin, panel * panels_.width);
      if (from >= end) break;  // a window that lies wholly beyond the keys of a short sequence
      const int64_t cols = std::min(end, (panel + 1) * panels_.width) - from;
      if (call_.keep && !any_kept(b, h, i0, rows, from, cols)) continue;
      const int64_t wide = std::min(round_up(cols, 16), (panel + 1) * panels_.width - from);
      const T* right = panels_.key(packed, panel) + (from - panel * panels_.width) * (kIsBf16<T> ? 2 : 1);
      gemm(rows, wide, inner<T>(call_.D), query, ldq, right, panels_.width, scores, ld, false);

      if (call_.dropout) {
        for (int64_t r = 0; r < rows; ++r)
          call_.dropout_bits(b, h, i0 + r, from, from + cols, drop + r, tiles_.rows);
      }
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t i = i0 + r;
        SoftmaxRow row{.scores = scores + r * ld};
        if constexpr (kIsBf16<T>) row.weights16 = weights + r * ld;
        row.cols = wide;
        row.lo = std::max<int64_t>(call_.key_lo(i) - from, 0);
        row.hi = std::clamp<int64_t>(call_.key_hi(b, i) - from, 0, cols);
        row.rule = rule;
        row.distance = static_cast<float>(i + call_.shift - from);
        if (call_.bias) row.bias = contiguous_row(call_.bias, b, h, i, from, cols, bias_row);
        if (call_.keep) row.keep = contiguous_row(call_.keep, b, h, i, from, cols, keep_row);
        if (call_.dropout) {
          row.drop = drop + from % 128 / 16 * tiles_.rows + r;
          row.drop_stride = tiles_.rows;
        }
        row.maximum = maximum[r];
        row.sum = total[r];
        simd().softmax_row(row);
        maximum[r] = row.maximum;
        total[r] = row.sum;
        if (started && row.rescale != 1.0f) simd().scale(sums + r * call_.Dv, row.rescale, call_.Dv);
      }

      const auto hidden = [&](int64_t c) {
        return !finite[from + c] && !column_seen(b, h, i0, rows, from + c);
      };
      bool any_hidden = std::memchr(finite + from, 0, static_cast<size_t>(cols)) != nullptr;
      if (any_hidden) {
        any_hidden = false;
        for (int64_t c = 0; c < cols && !any_hidden; ++c) any_hidden = hidden(c);
      }
      // The pair of an odd last column is read as well, at weight 0.
      if (inner<T>(cols) != cols && from + cols < call_.S) any_hidden |= !finite[from + cols];
      int64_t ldv = call_.Dv;
      const T* right_values = panels_.value(packed, panel) + (from - panel * panels_.width) * call_.Dv;
      if (any_hidden || !kIsBf16<T>) {
        right_values =
            right_of_rows(t_.v.at(b, hkv, from), t_.v.row, cols, call_.Dv, any_hidden, hidden, values, &ldv);
      }
      gemm(rows, call_.Dv, inner<T>(cols), weights, ld, right_values, ldv, sums, call_.Dv, started);
      started = true;
    }
    gemm_done();
    finish(b, h, i0, rows, started, maximum, total, sums);
  }

  // Output and statistics of a block of rows; a row without keys is zero.
  void finish(int64_t b, int64_t h, int64_t i0, int64_t rows, bool started, const float* maximum,
              const float* total, float* sums) const {
    if (!started) std::fill_n(sums, rows * call_.Dv, 0.0f);
    for (int64_t r = 0; r < rows; ++r) {
      float factor = 0.0f, lse = -kInfinity;
      if (total[r] != 0.0f) finish_row(call_, b, h, maximum[r], total[r], &factor, &lse);
      T* out = t_.output.at(b, h, i0 + r);
      if constexpr (kIsBf16<T>) {
        simd().store_scaled16(sums + r * call_.Dv, factor, out, call_.Dv);
      } else {
        simd().store_scaled(sums + r * call_.Dv, factor, out, call_.Dv);
      }
      t_.logsumexp[(b * call_.H + h) * call_.L + i0 + r] = lse;
    }
  }

  bool any_kept(int64_t b, int64_t h, int64_t i0, int64_t rows, int64_t from, int64_t cols) const {
    const int64_t distinct = call_.keep.row == 0 ? 1 : rows;
    for (int64_t r = 0; r < distinct; ++r) {
      const bool* row = call_.keep.at(b, h, i0 + r);
      for (int64_t c = from; c < from + cols; ++c) {
        if (row[c * call_.keep.col]) return true;
      }
    }
    return false;
  }

  // Whether any of the rows may see key j.
  bool column_seen(int64_t b, int64_t h, int64_t i0, int64_t rows, int64_t j) const {
    for (int64_t i = i0; i < i0 + rows; ++i) {
      if (j < call_.key_lo(i) || j >= call_.key_hi(b, i)) continue;
      if (call_.keep && !call_.keep.at(b, h, i)[j * call_.keep.col]) continue;
      if (call_.bias && call_.bias.at(b, h, i)[j * call_.bias.col] == -kInfinity) continue;
      return true;
    }
    return false;
  }

  const Call& call_;
  const ForwardTensors<T>& t_;
  const Tiles tiles_;
  const Panels<T> panels_;
};

}  // namespace

void finish_row(const Call& call, int64_t b, int64_t h, float maximum, float total, float* factor,
                float* logsumexp) {
  maximum *= call.rule_of(b, h).unit(static_cast<bool>(call.bias));
  float shrink = 1.0f;
  if (call.sinks) {
    // The sink joins at the end as one more logit whose value is zero.
    const float sink = call.sinks[h] * kLog2e;
    const float top = std::max(maximum, sink);
    shrink = std::exp2(maximum - top);
    total = total * shrink + std::exp2(sink - top);
    maximum = top;
  }
  *factor = shrink / total * call.survivor_scale;
  *logsumexp = maximum * kLn2 + std::log(total);
}

template <class T>
void forward(const Call& call, const ForwardTensors<T>& tensors) {
  Forward<T>(call, tensors).run();
}

template void forward<float>(const Call&, const ForwardTensors<float>&);
template void forward<bf16_t>(const Call&, const ForwardTensors<bf16_t>&);

}  // namespace attentive::kernels::cpu

#include "kernels/attention/forward.h"

#include <cstring>

#include "kernels/attention/tiles.h"

namespace attentive::kernels::cpu {
namespace {

// Sizes of tiles depend on shapes alone, never on the number of threads: a block of queries meets the keys
// tile by tile while these are in the cache, a strip of its rows after the other, and no strip computes what
// none of its rows sees.
// Strips have the rows that two registers of the matrix unit hold, or a multiple of the register blocks' rows.
template <class T>
constexpr int64_t kStripRows = kIsBf16<T> ? 32 : 24;

constexpr int64_t kCols = 1024;
constexpr int64_t kPanel = 64;
constexpr int64_t kFirst = 32;  // a strip begins at a multiple of what the matrix unit takes at once

// Of the keys that are packed before their queries run: much more would leave the second cache in between. Two
// heads at least, so that threads wait for each other once for both.
template <class T>
constexpr int64_t kPackedBytes = int64_t{kIsBf16<T> ? 3 : 1} << 20;
constexpr int64_t kHeadsAtLeast = 2;

// Keys of one head as right sides (D, width) of the score products, in panels. The values too, as right sides
// (keys, Dv): in pairs for bf16, side by side for floats that lie apart or are widened.
template <class Stored, class T>
struct Panels {
  int64_t width;   // keys per panel
  int64_t keys;    // rounded up to whole panels
  int64_t blocks;  // parts that are packed one by one, of kCols keys
  int64_t D, Dv;
  bool has_values;

  Panels(const Call& call, int64_t value_row)
      : width(std::min(kPanel, round_up(call.S, 16))),
        keys(round_up(call.S, width)),
        blocks((call.S + kCols - 1) / kCols),
        D(inner<T>(call.D)),
        Dv(call.Dv),
        has_values(kIsBf16<Stored> || (value_row != call.Dv && call.L > kStripRows<T>)) {}
  int64_t head_size() const { return keys * (D + (has_values ? Dv : 0)); }
  // Where a panel begins that holds key j as its first.
  int64_t key(int64_t j) const { return j * D; }
  // Where the value of key j (an even number, for bf16) begins.
  int64_t value(int64_t j) const { return keys * D + j * Dv; }
};

// Stored: the type of the tensors. T: that of the products' operands.
template <class Stored, class T>
class Forward {
  static constexpr int64_t kStrip = kStripRows<T>, kRows = kIsBf16<T> ? 128 : 120;

 public:
  Forward(const Call& call, const ForwardTensors<Stored>& tensors)
      : call_(call), t_(tensors), panels_(call, tensors.v.row) {}

  void run() {
    const int64_t heads = call_.B * call_.Hkv;
    const int64_t bytes = panels_.head_size() * static_cast<int64_t>(sizeof(T));
    const int64_t at_once =
        std::min(heads, std::max(kPackedBytes<T> / std::max<int64_t>(bytes, 1), kHeadsAtLeast));
    const int64_t blocks = panels_.blocks;
    const int64_t row_blocks = (call_.L + kRows - 1) / kRows;
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
    const int64_t b = head / call_.Hkv, h = head % call_.Hkv, from = block * kCols;
    const int64_t keys = std::min(kCols, call_.S - from);
    for (int64_t j = from; j < from + keys; j += panels_.width) {
      pack_right_transposed(t_.k.at(b, h, j), t_.k.row, std::min(panels_.width, from + keys - j), call_.D,
                            packed + panels_.key(j), panels_.width);
    }
    const Stored* v = t_.v.at(b, h, from);
    const bool all = panels_.has_values ? pack_rows(v, t_.v.row, keys, call_.Dv, packed + panels_.value(from))
                                        : rows_are_finite(v, t_.v.row, keys, call_.Dv);
    if (all) {
      std::memset(finite + from, 1, static_cast<size_t>(keys));
    } else {
      for (int64_t j = 0; j < keys; ++j) finite[from + j] = row_is_finite(v + j * t_.v.row, call_.Dv);
    }
  }

  // A block of queries on its way through the keys.
  struct Block {
    int64_t b, h, hkv, i0;
    const T* packed;
    const uint8_t* finite;
    const T* query;
    int64_t ldq;
    float *scores, *sums, *maximum, *total;
    T *weights, *values;
    uint16_t* drop;
    uint8_t* keep_rows;  // copies of rows whose numbers lie apart
    float* bias_rows;
    SoftmaxRow* rows;
    int64_t ld;  // of scores and weights
  };

  void attend(int64_t head, int64_t in_group, int64_t block, T* packed, const uint8_t* finite) const {
    Block at{};
    at.b = head / call_.Hkv;
    at.hkv = head % call_.Hkv;
    at.h = at.hkv * call_.group + in_group;
    at.i0 = block * kRows;
    at.packed = packed;
    at.finite = finite;
    // Not a power of two: rows would fall on the same lines of the cache.
    at.ld = std::min(kCols, panels_.keys) + 16;
    const int64_t i0 = at.i0, rows = std::min(kRows, call_.L - i0);
    Scratch& scratch = Scratch::of_this_thread();
    scratch.reset();
    at.scores = scratch.take<float>(kStrip * at.ld);
    at.sums = scratch.take<float>(kRows * call_.Dv);
    at.maximum = scratch.take<float>(kRows);
    at.total = scratch.take<float>(kRows);
    at.weights = kIsBf16<T> ? scratch.take<T>(kStrip * at.ld) : reinterpret_cast<T*>(at.scores);
    at.values = scratch.take<T>(at.ld * call_.Dv);
    T* query_copy = scratch.take<T>(kRows * inner<T>(call_.D));
    at.drop = scratch.take<uint16_t>(call_.dropout ? (at.ld / 16 + 16) * kStrip : 0);
    at.keep_rows = scratch.take<uint8_t>(call_.keep.col != 1 ? kStrip * at.ld : 0);
    at.bias_rows = scratch.take<float>(call_.bias.col != 1 ? kStrip * at.ld : 0);
    at.rows = scratch.take<SoftmaxRow>(kStrip);
    // What stays the same from strip to strip is written once.
    SoftmaxRow row{.scores = at.scores, .rule = call_.rule_of(at.b, at.h), .drop_stride = kStrip};
    if constexpr (kIsBf16<T>) row.weights16 = at.weights;
    for (int64_t r = 0; r < kStrip; ++r, row.scores += at.ld) {
      at.rows[r] = row;
      if constexpr (kIsBf16<T>) row.weights16 += at.ld;
    }

    std::fill_n(at.sums, rows * call_.Dv, 0.0f);
    std::fill_n(at.maximum, rows, -kInfinity);
    std::fill_n(at.total, rows, 0.0f);
    at.query = left_of_rows(t_.q.at(at.b, at.h, i0), t_.q.row, rows, call_.D, query_copy, &at.ldq);
    const int64_t end = call_.key_hi(at.b, i0 + rows - 1);
    // From the first key that is seen: a narrow window then falls into one tile.
    for (int64_t from = call_.key_lo(i0) / kPanel * kPanel; from < end; from += kCols) {
      const int64_t to = std::min(end, from + kCols);
      for (int64_t r = 0; r < rows; r += kStrip) {
        const int64_t strip = std::min(kStrip, rows - r);
        add(at, r, strip, std::max(from, call_.key_lo(i0 + r) / kFirst * kFirst),
            std::min(to, call_.key_hi(at.b, i0 + r + strip - 1)));
      }
    }
    gemm_done();
    finish(at, rows);
  }

  // Adds the keys [from, to) of one tile to the strip of `rows` rows that begins at row r0 of the block.
  void add(const Block& at, int64_t r0, int64_t rows, int64_t from, int64_t to) const {
    if (from >= to) return;
    const int64_t i0 = at.i0 + r0, cols = to - from, wide = round_up(cols, 16);
    if (call_.keep && !any_kept(at.b, at.h, i0, rows, from, cols)) return;
    float* scores = at.scores;
    T* weights = at.weights;
    const int64_t reach = call_.key_hi(at.b, i0) - from;  // each row sees at most one key more
    for (int64_t j = from; j < from + wide;) {
      const int64_t in_panel = j % panels_.width, n = std::min(panels_.width - in_panel, from + wide - j);
      gemm_causal(rows, n, inner<T>(call_.D), at.query + r0 * at.ldq, at.ldq,
                  at.packed + panels_.key(j - in_panel) + in_panel * (kIsBf16<T> ? 2 : 1), panels_.width,
                  scores + j - from, at.ld, false, {.columns = reach - (j - from)});
      j += n;
    }

    if (call_.dropout) {
      for (int64_t r = 0; r < rows; ++r)
        call_.dropout_bits(at.b, at.h, i0 + r, from, to, at.drop + r, kStrip);
    }
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t i = i0 + r;
      SoftmaxRow& row = at.rows[r];
      row.cols = wide;
      row.lo = std::max<int64_t>(call_.key_lo(i) - from, 0);
      row.hi = std::clamp<int64_t>(call_.key_hi(at.b, i) - from, 0, cols);
      row.distance = static_cast<float>(i + call_.band.origin - from);
      if (call_.bias)
        row.bias = contiguous_row(call_.bias, at.b, at.h, i, from, cols, at.bias_rows + r * at.ld);
      if (call_.keep)
        row.keep = contiguous_row(call_.keep, at.b, at.h, i, from, cols, at.keep_rows + r * at.ld);
      if (call_.dropout) row.drop = at.drop + from % 128 / 16 * kStrip + r;
      row.maximum = at.maximum[r0 + r];
      row.sum = at.total[r0 + r];
    }
    simd().softmax_rows(at.rows, rows);
    for (int64_t r = 0; r < rows; ++r) {
      const SoftmaxRow& row = at.rows[r];
      const bool begun = at.total[r0 + r] != 0.0f;
      at.maximum[r0 + r] = row.maximum;
      at.total[r0 + r] = row.sum;
      if (begun && row.rescale != 1.0f) simd().scale(at.sums + (r0 + r) * call_.Dv, row.rescale, call_.Dv);
    }

    int64_t ldv = call_.Dv;
    const T* values = values_of(at, i0, rows, from, cols, &ldv);
    gemm_causal(rows, call_.Dv, inner<T>(cols), weights, at.ld, values, ldv, at.sums + r0 * call_.Dv,
                call_.Dv, true, {.inner = reach});
  }

  // The right side of the product with the values; those that none of the rows sees and that are not finite
  // are zero in it, since 0 * NaN is NaN.
  const T* values_of(const Block& at, int64_t i0, int64_t rows, int64_t from, int64_t cols,
                     int64_t* ld) const {
    const auto hidden = [&](int64_t c) {
      return !at.finite[from + c] && !column_seen(at.b, at.h, i0, rows, from + c);
    };
    bool any_hidden = std::memchr(at.finite + from, 0, static_cast<size_t>(cols)) != nullptr;
    if (any_hidden) {
      any_hidden = false;
      for (int64_t c = 0; c < cols && !any_hidden; ++c) any_hidden = hidden(c);
    }
    // The pair of an odd last column is read as well, at weight 0.
    if (inner<T>(cols) != cols && from + cols < call_.S) any_hidden |= !at.finite[from + cols];
    if (!any_hidden && panels_.has_values) {
      *ld = call_.Dv;
      return at.packed + panels_.value(from);
    }
    const auto right_of = [&](const T* rows_of_values, int64_t row) {
      return right_of_rows(rows_of_values, row, cols, call_.Dv, any_hidden, hidden, at.values, ld);
    };
    if constexpr (std::is_same_v<T, Stored>) {
      return right_of(t_.v.at(at.b, at.hkv, from), t_.v.row);
    } else {
      return right_of(at.packed + panels_.value(from), call_.Dv);
    }
  }

  // Output and statistics of a block of rows; a row without keys is zero.
  void finish(const Block& at, int64_t rows) const {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t i = at.i0 + r, index = (at.b * call_.H + at.h) * call_.L + i;
      const RowEnd end = end_of_row(call_, at.b, at.h, i, at.maximum[r], at.total[r]);
      const float factor = end.factor * call_.survivor_scale;
      Stored* out = t_.output.at(at.b, at.h, i);
      if constexpr (kIsBf16<Stored>) {
        simd().store_scaled16(at.sums + r * call_.Dv, factor, out, call_.Dv);
      } else {
        simd().store_scaled(at.sums + r * call_.Dv, factor, out, call_.Dv);
      }
      if (t_.logsumexp) t_.logsumexp[index] = end.logsumexp();
      if (t_.statistics.maximum) t_.statistics.maximum[index] = end.maximum;
      if (t_.statistics.log_total) t_.statistics.log_total[index] = end.log_total();
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
      if (j >= call_.key_lo(i) && j < call_.key_hi(b, i) && call_.unmasked(b, h, i, j)) return true;
    }
    return false;
  }

  const Call& call_;
  const ForwardTensors<Stored>& t_;
  const Panels<Stored, T> panels_;
};

}  // namespace

template <class T>
void forward(const Call& call, const ForwardTensors<T>& tensors) {
  if (kIsBf16<T> && !has_gemm_bf16()) {
    Forward<T, float>(call, tensors).run();
  } else {
    Forward<T, T>(call, tensors).run();
  }
}

template void forward<float>(const Call&, const ForwardTensors<float>&);
template void forward<bf16_t>(const Call&, const ForwardTensors<bf16_t>&);

}  // namespace attentive::kernels::cpu

// O = softmax(scale · Q Kᵀ, masked) V, for a block of queries of one head after the other:
//
//   for each tile of keys that the block may see:
//     for each strip of the block's rows:
//       S  = Q Kᵀ
//       m′ = max(m, rowmax S)                 over the visible keys
//       P  = exp(scale · (S − m′))            0 for a hidden key
//       ℓ  = ℓ · exp(scale · (m − m′)) + rowsum P
//       P  = P without what dropout removes
//       O  = O · exp(scale · (m − m′)) + P V
//       m  = m′
//   O = O / ℓ, logsumexp = scale · m + ln ℓ

#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "kernels/attention/forward_units.h"
#include "kernels/attention/packed_heads.h"
#include "kernels/attention/passes.h"
#include "kernels/attention/row_inputs.h"
#include "kernels/attention/user_functions.h"
#include "kernels/gemm/operands.h"

namespace attentive::kernels::cpu {
namespace {

// Sizes of tiles depend on shapes alone, never on the number of threads. A strip has as many rows as two
// registers of the matrix unit, or a multiple of the rows of a register block.
template <class T>
constexpr int64_t kStripRows = kIsBf16<T> ? 32 : 24;

constexpr int64_t kTileKeys = 1024;  // keys of a tile
constexpr int64_t kFirst = 32;  // the keys of a strip begin at a multiple of the matrix unit's inner size

// The keys and values of a head, packed for products. Keys are packed transposed, in panels that are an rhs
// (D, width). Values are packed as an rhs (keys, Dv): bfloat16 in pairs of rows; float32 only if its rows
// are not contiguous or were widened from a half type.
template <class Stored, class T>
class PackedKeys {
 public:
  static constexpr int64_t kPanelKeys = 64;        // keys per panel
  static constexpr int64_t kPackedAtATime = 1024;  // keys that are packed at a time

  PackedKeys(const Call& call, const ForwardTensors<Stored>& tensors, bool one_strip)
      : call_(call),
        t_(tensors),
        width_(std::min(kPanelKeys, round_up(call.S, 16))),
        keys_(round_up(call.S, width_)),
        has_values_(!std::is_same_v<Stored, float> || (tensors.v.row != call.Dv && !one_strip)) {}

  // The packed memory of one head, and for each value row whether it is finite.
  struct Head {
    T* packed;
    uint8_t* finite;
  };

  int64_t blocks() const { return (call_.S + kPackedAtATime - 1) / kPackedAtATime; }
  int64_t head_size() const { return keys_ * (inner<T>(call_.D) + (has_values_ ? call_.Dv : 0)); }
  int64_t keys() const { return keys_; }  // rounded up to whole panels
  bool has_values() const { return has_values_; }

  void pack(int64_t b, int64_t hkv, int64_t block, const Head& head) const {
    const int64_t from = block * kPackedAtATime, keys = std::min(kPackedAtATime, call_.S - from);
    for (int64_t j = from; j < from + keys; j += width_) {
      // Rows that are read next, which may lie far apart.
      for (int64_t next = j; next < std::min(j + width_, call_.S); ++next) {
        prefetch_row(t_.v.at(b, hkv, next), 1, call_.Dv);
        if (next + width_ < call_.S) prefetch_row(t_.k.at(b, hkv, next + width_), 1, call_.D);
      }
      pack_transposed(rows_of(t_.k, b, hkv, j, std::min(width_, from + keys - j), call_.D), panel(head, j));
    }
    const auto v = rows_of(t_.v, b, hkv, from, keys, call_.Dv);
    const bool all =
        has_values_ ? products().pack_rows(v, values(head, from, keys)) : elementwise().all_finite(v);
    if (all) {
      std::memset(head.finite + from, 1, static_cast<size_t>(keys));
    } else {
      for (int64_t j = 0; j < keys; ++j) head.finite[from + j] = row_is_finite(v.row(j), call_.Dv);
    }
  }

  // The keys from j to the end of j's panel, at most `n`, as an rhs (D, keys).
  Rhs<const T> keys_from(const Head& head, int64_t j, int64_t n) const {
    const int64_t in_panel = j % width_;
    const Rhs<const T> all = panel(head, j - in_panel);
    return all.block(0, all.rows, in_panel, std::min(width_ - in_panel, n));
  }
  // The packed values of `count` keys from key j (an even number, for bfloat16) on.
  Rhs<T> values(const Head& head, int64_t j, int64_t count) const {
    return {head.packed + keys_ * inner<T>(call_.D) + j * call_.Dv, count, call_.Dv, call_.Dv};
  }

 private:
  Rhs<T> panel(const Head& head, int64_t first) const {
    return {head.packed + first * inner<T>(call_.D), inner<T>(call_.D), width_, width_};
  }

  const Call& call_;
  const ForwardTensors<Stored>& t_;
  const int64_t width_, keys_;
  const bool has_values_;
};

// Stored is the element type of the tensors, T that of the operands of products.
template <class Stored, class T>
class Forward {
  static constexpr int64_t kBlockRows = kIsBf16<T> ? 128 : 120;
  // Rows whose scores become weights together if there is no softmax. The scores of 1024 keys fill half of a
  // first cache.
  static constexpr int64_t kPlainRows = 4;
  using Keys = PackedKeys<Stored, T>;
  using Head = typename Keys::Head;

 public:
  /// `left`: the only rows to compute; null: all.
  Forward(const Call& call, const ForwardTensors<Stored>& tensors, const RowsLeft* left)
      : call_(call),
        t_(tensors),
        left_(left),
        keys_(call, tensors, call.L <= kStripRows<T>),
        writes_weights_(tensors.weights && call.S <= kTileKeys && !call.user.blocks &&
                        (kIsBf16<T> || !call.dropout || tensors.dropped)) {}

  // Whether the weights are written: where a tile holds whole rows, unless only those after dropout are left.
  bool writes_weights() const { return writes_weights_; }

  void run() {
    const PackedHeads heads(call_, t_, keys_.head_size() * static_cast<int64_t>(sizeof(T)), kPackedBytes<T>);
    // The packed keys are in a separate arena of the calling thread, because that thread's tiles reuse the
    // usual one.
    thread_local Scratch shared;
    shared.reset();
    T* packed = shared.take<T>(heads.places() * keys_.head_size());
    auto* finite = shared.take<uint8_t>(heads.places() * call_.S);
    const auto head_at = [&](int64_t place) {
      return Head{packed + place * keys_.head_size(), finite + place * call_.S};
    };
    heads.run(
        keys_.blocks(), blocks(),
        [&](int64_t place, int64_t b, int64_t hkv, int64_t block) {
          if (is_left(b, heads.sharing(), hkv)) keys_.pack(b, hkv, block, head_at(place));
        },
        [&](int64_t place, int64_t b, int64_t h, int64_t block) { attend(b, h, block, head_at(place)); });
  }

 private:
  int64_t blocks() const { return blocks_of_rows(call_, kBlockRows); }

  // Whether rows that read this key head, of `sharing` items from b on, are computed.
  bool is_left(int64_t b, int64_t sharing, int64_t hkv) const {
    if (!left_) return true;
    for (int64_t item = 0; item < sharing * call_.group; ++item) {
      if (left_->any_of(call_, b + item / call_.group, call_.query_head(hkv, item % call_.group), 0, call_.L))
        return true;
    }
    return false;
  }

  // A block of queries of one head, starting at i0, and the memory for its work.
  struct Block {
    int64_t b, h, hkv, i0;
    Head head;
    Matrix<const T> q;
    // m, ℓ and O of its rows; O of a strip is undefined until it has begun.
    float *maximum, *total;
    Matrix<float> output;
    Sums* sums;  // per strip
    // The buffers of a strip.
    Matrix<float> scores;
    Matrix<T> weights;  // the scores themselves, for float
    T* values;
    SoftmaxRow* rows;
    RowInputs terms;
  };

  Block block_at(int64_t b, int64_t h, int64_t i0, int64_t rows, const Head& head) const {
    Scratch& scratch = Scratch::of_this_thread();
    scratch.reset();
    // The stride is not a power of two, for which rows would share the same cache sets.
    const int64_t width = std::min(kTileKeys, keys_.keys()) + 16,
                  strips = (rows + kStripRows<T> - 1) / kStripRows<T>;
    const auto scores = scratch.matrix<float>(kStripRows<T>, width);
    Matrix<T> weights{};
    auto* const softmax_rows = scratch.take<SoftmaxRow>(kStripRows<T>);
    for (int64_t r = 0; r < kStripRows<T>; ++r) new (softmax_rows + r) SoftmaxRow{.scores = scores.row(r)};
    if constexpr (kIsBf16<T>) {
      weights = scratch.matrix<T>(kStripRows<T>, width);
      for (int64_t r = 0; r < kStripRows<T>; ++r) softmax_rows[r].weights16 = weights.row(r);
    } else {
      weights = scores;
    }
    auto *const maximum = scratch.take<float>(rows), *const total = scratch.take<float>(rows);
    auto* const sums = scratch.take<Sums>(strips);
    std::fill_n(sums, strips, Sums::Begin);
    std::fill_n(maximum, rows, -kInfinity);
    std::fill_n(total, rows, 0.0f);
    T* const q_copy = scratch.take<T>(rows * inner<T>(call_.D));
    return {b,
            h,
            call_.kv_head(h),
            i0,
            head,
            lhs_of(rows_of(t_.q, b, h, i0, rows, call_.D), q_copy),
            maximum,
            total,
            scratch.matrix<float>(rows, call_.Dv),
            sums,
            scores,
            weights,
            scratch.take<T>(width * call_.Dv),
            softmax_rows,
            {call_, scratch, kStripRows<T>, width, true}};
  }

  void attend(int64_t b, int64_t h, int64_t number, const Head& head) const {
    const int64_t i0 = number * kBlockRows, rows = number + 1 < blocks() ? kBlockRows : call_.L - i0;
    if (left_ && !left_->any_of(call_, b, h, i0, rows)) return;
    const Block block = block_at(b, h, i0, rows, head);
    const int64_t end = call_.key_hi(b, i0 + rows - 1);
    // Tiles begin at the first visible key, so that a narrow window lies in one tile.
    for (int64_t from = call_.key_lo(i0) / Keys::kPanelKeys * Keys::kPanelKeys; from < end;
         from += kTileKeys) {
      const int64_t to = std::min(end, from + kTileKeys);
      for (int64_t r = 0; r < rows; r += kStripRows<T>) {
        const int64_t strip = std::min(kStripRows<T>, rows - r);
        add_shown(block, r, strip, std::max(from, call_.key_lo(i0 + r) / kFirst * kFirst),
                  std::min(to, call_.key_hi(b, i0 + r + strip - 1)));
      }
    }
    gemm_done();
    for (int64_t r = 0; r < rows; ++r) {
      if (left_ && !left_->has(call_, b, h, i0 + r)) continue;
      t_.write_row(call_, b, h, i0 + r, block.maximum[r], block.total[r], block.output.row(r));
      if (writes_weights_ && block.sums[r / kStripRows<T>] == Sums::Begin)
        std::fill_n(weights_of(block, i0 + r), call_.S, Stored{0});
    }
  }

  // Adds the keys [from, to) of one tile to the strip of `rows` rows that begins at row r0 of the block, but
  // for those that the program's own mask hides by whole blocks.
  void add_shown(const Block& block, int64_t r0, int64_t rows, int64_t from, int64_t to) const {
    if (!call_.user.blocks) return add(block, r0, rows, from, to, static_cast<bool>(call_.user.mask));
    const int64_t first = block.i0 + r0, last = first + rows - 1;
    const auto class_of = [&](int64_t j) {
      const int above = call_.block_of(block.b, block.h, first, j),
                below = call_.block_of(block.b, block.h, last, j);
      return above == below ? above : int{detail::BlockClasses::Partial};
    };
    while (from < to) {
      const int kind = class_of(from);
      int64_t end = (from / kClassTile + 1) * kClassTile;
      while (end < to && class_of(end) == kind) end += kClassTile;
      if (kind != detail::BlockClasses::Empty)
        add(block, r0, rows, from, std::min(end, to), kind == detail::BlockClasses::Partial);
      from = end;
    }
  }

  // Adds the keys [from, to). `tested`: the program's own mask is asked about each pair.
  void add(const Block& block, int64_t r0, int64_t rows, int64_t from, int64_t to, bool tested) const {
    if (from >= to) return;
    const int64_t i0 = block.i0 + r0, cols = to - from, wide = round_up(cols, 16);
    if (call_.keep && !any_kept(block.b, block.h, i0, rows, from, cols)) return;
    // The visible keys of a row begin and end at most one key later than those of the row before it.
    const int64_t first = call_.key_lo(i0 + rows - 1) - (rows - 1) - from;
    const int64_t reach = call_.key_hi(block.b, i0) - from;

    // S = Q Kᵀ
    const auto q = block.q.part(r0, rows);
    const bool last = from + cols >= call_.key_hi(block.b, i0 + rows - 1);
    for (int64_t c = 0, asked = 0; c < wide;) {
      const auto k = keys_.keys_from(block.head, from + c, wide - c);
      // The rows of biases and of the output are asked for a few at a time, so that these products hide the
      // wait for them.
      for (const int64_t most = rows * (c + k.cols) / wide; asked < most; ++asked) {
        block.terms.prefetch(block.b, block.h, i0 + asked, from, cols);
        if (last) prefetch_to_write(t_.output.at(block.b, block.h, i0 + asked), call_.Dv);
      }
      gemm(q, k, block.scores.block(0, rows, c, k.cols), Sums::Begin,
           {.columns = reach - c, .first_column = first - c});
      c += k.cols;
    }

    // P = exp(scale · (S − m′)); then m, ℓ and O are updated
    const int64_t at_once = call_.normalise ? UserRows::kMostStripRows : kPlainRows;
    for (int64_t first_row = 0; first_row < rows; first_row += at_once) {
      const int64_t end = std::min(first_row + at_once, rows);
      for (int64_t r = first_row; r < end; ++r) {
        SoftmaxRow& row = block.rows[r];
        block.terms.set(row, r, block.b, block.h, i0 + r, from, cols, tested);
        row.cols = wide;
        row.maximum = block.maximum[r0 + r];
        row.sum = block.total[r0 + r];
      }
      SoftmaxRow* const set = block.rows + first_row;
      block.terms.score(set, end - first_row, block.b, block.h, i0 + first_row, from);
      if (!call_.normalise)
        rows_to_weights(call_, set, end - first_row);  // while the scores are in the first cache
    }
    if (call_.normalise) rows_to_weights(call_, block.rows, rows);
    if (writes_weights_) {
      for (int64_t r = 0; r < rows; ++r) write_weights(block, block.rows[r], i0 + r, from, cols);
    }
    for (int64_t r = 0; r < rows; ++r) {
      follow_maximum(block.rows[r], block.maximum[r0 + r], block.total[r0 + r], block.output.row(r0 + r),
                     call_.Dv);
    }

    // O = O + P V
    gemm(block.weights.block(0, rows, 0, inner<T>(cols)),
         values_of(block, i0, rows, from, cols, block.values), block.output.part(r0, rows),
         std::exchange(block.sums[r0 / kStripRows<T>], Sums::Continue),
         {.inner = reach, .first_inner = first});
  }

  Stored* weights_of(const Block& block, int64_t i) const {
    return t_.weights + call_.row_index(block.b, block.h, i) * call_.keys_of_head;
  }

  // Writes the weights of query i, whose row holds the weights of the keys [from, from + cols), all that it
  // may see.
  void write_weights(const Block& block, SoftmaxRow row, int64_t i, int64_t from, int64_t cols) const {
    if constexpr (kIsBf16<T>) {
      // Weights for a product are rounded. Their scores are still there, so the weights are computed again.
      row.weights16 = nullptr;
      row.prepared = true;
      row.maximum = -kInfinity;
      row.sum = 0.0f;
      if (!t_.dropped) row.drop = nullptr;
      rows_to_weights(call_, &row, 1);
    }
    const float factor = end_of_row(call_, block.b, block.h, i, row.maximum, row.sum).factor *
                         (row.drop ? call_.survivor_scale : 1.0f);
    const float zero = 0.0f * factor;  // NaN in a row of NaN
    Stored hidden{};
    elementwise().convert(&zero, &hidden, 1);
    Stored* const to = weights_of(block, i);
    std::fill_n(to, from, hidden);
    elementwise().store_scaled(row.scores, factor, to + from, cols);
    std::fill(to + from + cols, to + call_.S, hidden);
  }

  // Returns V of these keys, with zeros for values that are not finite and that none of the rows sees, since
  // 0 * NaN is NaN.
  Rhs<const T> values_of(const Block& block, int64_t i0, int64_t rows, int64_t from, int64_t cols,
                         T* buffer) const {
    const uint8_t* const finite = block.head.finite + from;
    const auto hidden = [&](int64_t c) {
      return !finite[c] && !column_seen(block.b, block.h, i0, rows, from + c);
    };
    bool any_hidden = std::memchr(finite, 0, static_cast<size_t>(cols)) != nullptr;
    if (any_hidden) {
      any_hidden = false;
      for (int64_t c = 0; c < cols && !any_hidden; ++c) any_hidden = hidden(c);
    }
    // With an odd number of keys, bfloat16 also reads the next value, with weight 0.
    if (inner<T>(cols) != cols && from + cols < call_.S) any_hidden |= !finite[cols];
    if (!any_hidden && keys_.has_values()) return keys_.values(block.head, from, cols);
    if constexpr (std::is_same_v<T, Stored>) {
      return rhs_of(rows_of(t_.v, block.b, block.hkv, from, cols, call_.Dv), any_hidden, hidden, buffer);
    } else {
      const Matrix<const T> widened{keys_.values(block.head, from, cols).data, cols, call_.Dv, call_.Dv};
      return rhs_of(widened, any_hidden, hidden, buffer);
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
      if (call_.sees(b, h, i, j)) return true;
    }
    return false;
  }

  const Call& call_;
  const ForwardTensors<Stored>& t_;
  const RowsLeft* const left_;
  const Keys keys_;
  const bool writes_weights_;
};

}  // namespace

template <class T>
void forward(const Call& call, const ForwardTensors<T>& tensors) {
  std::optional<RowsLeft> left;
  if constexpr (kIsBf16<T>) {
    if (units_compute(call, tensors)) {
      left.emplace(call);
      forward_units(call, tensors, *left);
      if (!left->any()) return;
    }
  }
  bool has_weights = false;
  for_operands<T>([&](auto operand) {
    Forward<T, decltype(operand)> pass(call, tensors, left ? &*left : nullptr);
    pass.run();
    has_weights = pass.writes_weights();
  });
  if (!has_weights) missing_weights(call, tensors);
}

template void forward<float>(const Call&, const ForwardTensors<float>&);
template void forward<bf16_t>(const Call&, const ForwardTensors<bf16_t>&);
template void forward<f16_t>(const Call&, const ForwardTensors<f16_t>&);

}  // namespace attentive::kernels::cpu

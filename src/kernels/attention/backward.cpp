#include "kernels/attention/backward.h"

#include "kernels/attention/tiles.h"

namespace attentive::kernels::cpu {
namespace {

// Tile sizes, and into how many parts the keys of a head are dealt, depend on shapes alone.
struct Tiles {
  int64_t keys, queries;
};

Tiles tiles_for(const Call& call) {
  const bool narrow = call.band.has_lo() && call.band.has_hi() && call.band.hi - call.band.lo < 512;
  const int64_t tile = narrow ? 64 : 128;
  return {tile, std::min(tile, round_up(call.L, 16))};
}

constexpr int64_t kPackedBytes = int64_t{32} << 20;
constexpr int64_t kItems = 16;  // parts of work that are wanted at least
constexpr int64_t kStrip = 32;  // keys per strip of a tile on the diagonal

// Stored: the type of the tensors. T: that of the products' operands.
template <class Stored, class T>
class Backward {
 public:
  Backward(const Call& call, const BackwardTensors<Stored>& tensors)
      : call_(call),
        t_(tensors),
        tiles_(tiles_for(call)),
        query_blocks_((call.L + tiles_.queries - 1) / tiles_.queries),
        key_blocks_((call.S + tiles_.keys - 1) / tiles_.keys),
        queries_(query_blocks_ * tiles_.queries),
        right_size_(inner<T>(call.D) + inner<T>(call.Dv)),
        head_size_((right_size_ + call.D + call.Dv) * queries_) {}

  void run() {
    const bool parallel = call_.B * call_.H * call_.L * call_.S * (call_.D + call_.Dv) > (int64_t{1} << 17);
    const int64_t heads = call_.B * call_.Hkv, group = call_.group;
    const int64_t bytes = group * head_size_ * static_cast<int64_t>(sizeof(T));
    const int64_t at_once = std::clamp<int64_t>(kPackedBytes / bytes, 1, heads);
    const int64_t splits =
        std::clamp<int64_t>((kItems + at_once - 1) / at_once, 1, std::max<int64_t>((call_.S + 255) / 256, 1));
    // These belong to the calling thread, whose own tiles use another arena.
    thread_local Scratch shared;
    shared.reset();
    T* packed = shared.take<T>(at_once * group * head_size_);
    float* statistics = shared.take<float>(at_once * group * 3 * queries_);
    const int64_t sum_size = call_.D * queries_;  // of one query head
    float* sums = shared.take<float>(at_once * group * splits * sum_size);

    for (int64_t first = 0; first < heads; first += at_once) {
      const int64_t count = std::min(at_once, heads - first);
      const auto head_of = [&](int64_t kv_head, int64_t g) {
        const int64_t at = (kv_head - first) * group + g;
        return Head{(kv_head / call_.Hkv),           kv_head % call_.Hkv,
                    kv_head % call_.Hkv * group + g, packed + at * head_size_,
                    statistics + at * 3 * queries_,  sums + at * splits * sum_size};
      };
      const auto pack_item = [&](int64_t item) {
        const int64_t at = item / query_blocks_;
        pack(head_of(first + at / group, at % group), item % query_blocks_);
      };
      const auto accumulate_item = [&](int64_t item) {
        accumulate([&](int64_t g) { return head_of(first + item / splits, g); }, item % splits, splits);
        gemm_done();
      };
      const auto write_item = [&](int64_t item) {
        const int64_t at = item / query_blocks_;
        write_grad_q(head_of(first + at / group, at % group), item % query_blocks_, splits);
      };
      const int64_t panels = group * query_blocks_;
      if (splits == 1) {
        // A head is one thread's from the first step to the last, and no step waits for the other heads.
        for_each_item(count, parallel, [&](int64_t item) {
          for (int64_t i = 0; i < panels; ++i) pack_item(item * panels + i);
          accumulate_item(item);
          for (int64_t i = 0; i < panels; ++i) write_item(item * panels + i);
        });
      } else {
        for_each_item(count * panels, parallel, pack_item);
        for_each_item(count * splits, parallel, accumulate_item);
        for_each_item(count * panels, parallel, write_item);
      }
    }
  }

 private:
  // One query head and what every block of keys reads of it again, one panel per block of queries:
  // (D, queries) and (Dv, queries) as right sides, and the rows themselves (for bf16 in pairs).
  struct Head {
    int64_t b, hkv, h;
    T* packed;
    float* statistics;
    float* sums;  // per split and panel (D, queries): the gradient of q, transposed
  };

  T* q_right(const Head& head, int64_t panel) const {
    return head.packed + panel * tiles_.queries * inner<T>(call_.D);
  }
  T* grad_right(const Head& head, int64_t panel) const {
    return head.packed + queries_ * inner<T>(call_.D) + panel * tiles_.queries * inner<T>(call_.Dv);
  }
  T* q_rows(const Head& head, int64_t panel) const {
    return head.packed + queries_ * right_size_ + panel * tiles_.queries * call_.D;
  }
  T* grad_rows(const Head& head, int64_t panel) const {
    return head.packed + queries_ * (right_size_ + call_.D) + panel * tiles_.queries * call_.Dv;
  }
  float* maximum(const Head& head, int64_t i) const { return head.statistics + i; }
  float* log_total(const Head& head, int64_t i) const { return head.statistics + queries_ + i; }  // base 2
  float* delta(const Head& head, int64_t i) const { return head.statistics + 2 * queries_ + i; }
  float* sum_q(const Head& head, int64_t split, int64_t panel) const {
    return head.sums + (split * queries_ + panel * tiles_.queries) * call_.D;
  }

  void pack(const Head& head, int64_t panel) const {
    const int64_t i0 = panel * tiles_.queries, rows = std::min(tiles_.queries, call_.L - i0);
    const Stored* q = t_.q.at(head.b, head.h, i0);
    const Stored* grad = t_.grad_output.at(head.b, head.h, i0);
    pack_right_transposed(q, t_.q.row, rows, call_.D, q_right(head, panel), tiles_.queries);
    pack_right_transposed(grad, t_.grad_output.row, rows, call_.Dv, grad_right(head, panel), tiles_.queries);
    // bf16 products read whole panels: what is beyond the rows is zero.
    if (kIsBf16<T> && rows < tiles_.queries) {
      std::memset(q_rows(head, panel), 0, static_cast<size_t>(tiles_.queries * call_.D) * sizeof(T));
      std::memset(grad_rows(head, panel), 0, static_cast<size_t>(tiles_.queries * call_.Dv) * sizeof(T));
    }
    pack_rows(q, t_.q.row, rows, call_.D, q_rows(head, panel));
    pack_rows(grad, t_.grad_output.row, rows, call_.Dv, grad_rows(head, panel));

    const int64_t at = (head.b * call_.H + head.h) * call_.L + i0;
    for (int64_t r = 0; r < tiles_.queries; ++r) {
      *maximum(head, i0 + r) = r < rows ? t_.statistics.maximum[at + r] : 0.0f;
      *log_total(head, i0 + r) = r < rows ? t_.statistics.log_total[at + r] * kLog2e : kInfinity;
      *delta(head, i0 + r) = 0.0f;
      if (r >= rows) continue;
      const Stored* output = t_.output.at(head.b, head.h, i0 + r);
      float dot;
      if constexpr (kIsBf16<Stored>) {
        dot = simd().dot16(output, grad + r * t_.grad_output.row, call_.Dv);
      } else {
        dot = simd().dot(output, grad + r * t_.grad_output.row, call_.Dv);
      }
      *delta(head, i0 + r) = dot - (t_.grad_logsumexp ? t_.grad_logsumexp[at + r] : 0.0f);
      if (t_.sink_terms) {
        // The sink's value is zero, and its weight as any other's.
        t_.sink_terms[at + r] = -sink_weight(call_, head.b, head.h, t_.statistics.maximum[at + r],
                                             t_.statistics.log_total[at + r]) *
                                *delta(head, i0 + r);
      }
    }
  }

  // A block of keys on its way through the queries.
  struct Block {
    int64_t j0, keys;
    const T *key, *value;      // rows
    T* key_transposed;         // (D, tiles_.keys)
    int64_t ld_key, ld_value;  // of the rows
    bool finite;               // all its keys
    float *grad_k, *grad_v;    // sums
    float *scores, *products;  // (keys, queries)
    int64_t ld;                // of these and of the next three
    T *weights16, *gradients16;
    T* pairs;        // bf16: the gradients as a right side
    T* cleaned;      // key_transposed without the keys that are hidden and not finite
    uint16_t* drop;  // per group of 16 keys and query of the panel
    uint8_t* keep;   // (keys, queries of the panel)
    float* bias;     // the same
  };

  // All blocks of keys of one split, for every query head of the group.
  template <class HeadOf>
  void accumulate(const HeadOf& head_of, int64_t split, int64_t splits) const {
    Scratch& scratch = Scratch::of_this_thread();
    scratch.reset();
    const int64_t tile = tiles_.keys, wide = tiles_.queries;
    Block at{};
    at.ld = wide + 16;  // not a power of two: rows would fall on the same lines of the cache
    at.scores = scratch.take<float>(tile * at.ld);
    at.products = scratch.take<float>(tile * at.ld);
    at.weights16 = scratch.take<T>(kIsBf16<T> ? tile * at.ld : 0);
    at.gradients16 = scratch.take<T>(kIsBf16<T> ? tile * at.ld : 0);
    at.pairs = scratch.take<T>(kIsBf16<T> ? round_up(tile, 2) * at.ld : 0);
    at.grad_k = scratch.take<float>(tile * call_.D);
    at.grad_v = scratch.take<float>(tile * call_.Dv);
    T* key_copy = scratch.take<T>(tile * inner<T>(call_.D));
    T* value_copy = scratch.take<T>(tile * inner<T>(call_.Dv));
    at.key_transposed = scratch.take<T>(call_.D * tile);
    at.cleaned = scratch.take<T>(call_.D * tile);
    float* floats = scratch.take<float>(kIsBf16<T> ? tile * call_.D : 0);
    at.drop = scratch.take<uint16_t>(call_.dropout ? (tile / 16 + 16) * wide : 0);
    at.keep = scratch.take<uint8_t>(call_.keep ? tile * wide : 0);
    at.bias = scratch.take<float>(call_.bias ? tile * wide : 0);

    for (int64_t g = 0; g < call_.group; ++g)
      std::fill_n(sum_q(head_of(g), split, 0), call_.D * queries_, 0.0f);
    const Head any = head_of(0);
    for (int64_t block = split; block < key_blocks_; block += splits) {
      at.j0 = block * tile;
      at.keys = std::min(tile, call_.S - at.j0);
      const Stored* key = t_.k.at(any.b, any.hkv, at.j0);
      at.key = left_of_rows(key, t_.k.row, at.keys, call_.D, key_copy, &at.ld_key);
      at.value =
          left_of_rows(t_.v.at(any.b, any.hkv, at.j0), t_.v.row, at.keys, call_.Dv, value_copy, &at.ld_value);
      at.finite = rows_are_finite(key, t_.k.row, at.keys, call_.D);
      transpose_keys(at, floats);
      std::fill_n(at.grad_k, at.keys * call_.D, 0.0f);
      std::fill_n(at.grad_v, at.keys * call_.Dv, 0.0f);

      const int64_t last = at.j0 + at.keys;
      const int64_t seen = call_.key_lengths ? std::min(last, call_.key_lengths[any.b]) : last;
      if (seen > at.j0) {
        const int64_t first = call_.query_lo(at.j0), end = call_.query_hi(any.b, seen - 1);
        for (int64_t g = 0; g < call_.group; ++g) {
          const Head head = head_of(g);
          for (int64_t panel = first / wide; panel * wide < end; ++panel) {
            const int64_t from = std::max(panel * wide, first / 16 * 16);
            const int64_t to = std::min({end, (panel + 1) * wide, call_.L});
            if (from < to) add_panel(head, at, split, panel, from, to);
          }
        }
      }
      for (int64_t r = 0; r < at.keys; ++r) {
        write_row(at.grad_k + r * call_.D, call_.D, t_.grad_k.at(any.b, any.hkv, at.j0 + r));
        write_row(at.grad_v + r * call_.Dv, call_.Dv, t_.grad_v.at(any.b, any.hkv, at.j0 + r));
      }
    }
  }

  void transpose_keys(const Block& at, float* floats) const {
    const int64_t tile = tiles_.keys, keys = at.keys;
    if constexpr (kIsBf16<T>) {
      for (int64_t r = 0; r < keys; ++r)
        simd().from_bf16(at.key + r * at.ld_key, floats + r * call_.D, call_.D);
      simd().transpose_to_bf16(floats, call_.D, at.key_transposed, tile, keys, call_.D);
      if (keys % 2 != 0) {
        for (int64_t d = 0; d < call_.D; ++d) at.key_transposed[d * tile + keys] = 0;
      }
    } else {
      simd().transpose(at.key, at.ld_key, at.key_transposed, tile, keys, call_.D);
    }
  }

  void write_row(const float* sums, int64_t n, Stored* out) const {
    if constexpr (kIsBf16<Stored>) {
      simd().to_bf16(sums, out, n);
    } else {
      std::memcpy(out, sums, static_cast<size_t>(n) * sizeof(float));
    }
  }

  // The queries [from, to) of one panel.
  void add_panel(const Head& head, const Block& at, int64_t split, int64_t panel, int64_t from,
                 int64_t to) const {
    const int64_t p0 = panel * tiles_.queries;
    if (call_.keep && !transpose_keep(head, at, p0, from, to)) return;
    if (call_.bias) transpose_bias(head, at, p0, from, to);
    if (call_.dropout) {
      for (int64_t i = from; i < to; ++i) {
        call_.dropout_bits(head.b, head.h, i, at.j0, at.j0 + at.keys, at.drop + i - p0, tiles_.queries);
      }
    }
    const int64_t last = at.j0 + at.keys - 1;
    if (call_.query_lo(last) <= from + kStrip && call_.query_hi(head.b, at.j0) >= to - kStrip &&
        call_.query_hi(head.b, last) >= to - kStrip) {
      add_tile(head, at, split, panel, 0, at.keys, from, to);
      return;
    }
    for (int64_t r = 0; r < at.keys; r += kStrip) {
      const int64_t strip = std::min(kStrip, at.keys - r), j = at.j0 + r;
      int64_t end = 0;
      for (int64_t x = 0; x < strip; ++x) end = std::max(end, call_.query_hi(head.b, j + x));
      add_tile(head, at, split, panel, r, strip, std::max(from, call_.query_lo(j) / 16 * 16),
               std::min(to, end));
    }
  }

  // `keys` keys of the block from row r0 on, and the queries [from, to).
  void add_tile(const Head& head, const Block& at, int64_t split, int64_t panel, int64_t r0, int64_t keys,
                int64_t from, int64_t to) const {
    if (from >= to) return;
    const int64_t p0 = panel * tiles_.queries, offset = from - p0, count = to - from;
    const int64_t wide = std::min(round_up(count, 16), tiles_.queries - offset);
    const int64_t right = offset * (kIsBf16<T> ? 2 : 1);
    gemm(keys, wide, inner<T>(call_.D), at.key + r0 * at.ld_key, at.ld_key, q_right(head, panel) + right,
         tiles_.queries, at.scores, at.ld, false);
    gemm(keys, wide, inner<T>(call_.Dv), at.value + r0 * at.ld_value, at.ld_value,
         grad_right(head, panel) + right, tiles_.queries, at.products, at.ld, false);

    GradientRow row{.scores = at.scores, .products = at.products};
    row.cols = wide;
    row.rule = call_.rule_of(head.b, head.h);
    row.survivor_scale = call_.survivor_scale;
    row.maximum = maximum(head, from);
    row.log_total = log_total(head, from);
    row.delta = delta(head, from);
    for (int64_t r = 0; r < keys; ++r) {
      const int64_t j = at.j0 + r0 + r;
      row.scores = at.scores + r * at.ld;
      row.products = at.products + r * at.ld;
      if constexpr (kIsBf16<T>) {
        row.weights16 = at.weights16 + r * at.ld;
        row.gradients16 = at.gradients16 + r * at.ld;
      }
      row.lo = std::max<int64_t>(call_.query_lo(j) - from, 0);
      row.hi = std::clamp<int64_t>(call_.query_hi(head.b, j) - from, 0, count);
      row.distance = static_cast<float>(from + call_.band.origin - j);
      if (call_.bias) row.bias = at.bias + (r0 + r) * tiles_.queries + offset;
      if (call_.keep) row.keep = at.keep + (r0 + r) * tiles_.queries + offset;
      if (call_.dropout) {
        row.drop = at.drop + (j % 128 / 16 + (j / 128 - at.j0 / 128) * 8) * tiles_.queries + offset;
        row.drop_bit = static_cast<int>(j % 16);
      }
      simd().gradient_row(row);
    }

    // dV += W^T dO, dK += dS^T Q, dQ^T += K^T dS
    const T *weights, *gradients, *gradients_right;
    int64_t queries = count, ld_right = at.ld;
    if constexpr (kIsBf16<T>) {
      weights = at.weights16;
      gradients = at.gradients16;
      gradients_right = at.pairs;
      simd().pack_pairs(at.gradients16, at.ld, at.pairs, at.ld, keys, wide);
      queries = wide;  // an even number; what is beyond `count` is zero on both sides
    } else {
      weights = at.scores;
      gradients = gradients_right = at.products;
    }
    gemm(keys, call_.Dv, queries, weights, at.ld, grad_rows(head, panel) + offset * call_.Dv, call_.Dv,
         at.grad_v + r0 * call_.Dv, call_.Dv, true);
    gemm(keys, call_.D, queries, gradients, at.ld, q_rows(head, panel) + offset * call_.D, call_.D,
         at.grad_k + r0 * call_.D, call_.D, true);
    const T* left = at.finite ? at.key_transposed + r0 : clean_keys(at, r0, keys, count);
    gemm(call_.D, wide, inner<T>(keys), left, tiles_.keys, gradients_right, ld_right,
         sum_q(head, split, panel) + offset, tiles_.queries, true);
  }

  // A hidden key may hold NaN, and 0 * NaN is NaN: such columns of the transposed keys are zero here.
  const T* clean_keys(const Block& at, int64_t r0, int64_t keys, int64_t count) const {
    const int64_t tile = tiles_.keys;
    for (int64_t r = 0; r < inner<T>(keys); ++r) {
      bool seen = false;
      if (r < keys) {
        seen = row_is_finite(at.key + (r0 + r) * at.ld_key, call_.D);
        for (int64_t c = 0; c < count && !seen; ++c) {
          if constexpr (kIsBf16<T>) {
            seen = at.weights16[r * at.ld + c] != 0 || at.gradients16[r * at.ld + c] != 0;
          } else {
            seen = at.scores[r * at.ld + c] != 0.0f || at.products[r * at.ld + c] != 0.0f;
          }
        }
      }
      for (int64_t d = 0; d < call_.D; ++d)
        at.cleaned[d * tile + r] = seen ? at.key_transposed[d * tile + r0 + r] : T{0};
    }
    return at.cleaned;
  }

  // Sums of all splits, as rows in the type of the output.
  void write_grad_q(const Head& head, int64_t panel, int64_t splits) const {
    Scratch& scratch = Scratch::of_this_thread();
    scratch.reset();
    const int64_t wide = tiles_.queries, i0 = panel * wide, size = call_.D * wide;
    float* sums = sum_q(head, 0, panel);
    for (int64_t split = 1; split < splits; ++split) simd().add(sum_q(head, split, panel), sums, size);
    float* rows = scratch.take<float>(wide * call_.D);
    simd().transpose(sums, wide, rows, call_.D, call_.D, wide);
    for (int64_t i = i0; i < std::min(i0 + wide, call_.L); ++i)
      write_row(rows + (i - i0) * call_.D, call_.D, t_.grad_q.at(head.b, head.h, i));
  }

  // Mask bytes with rows and columns exchanged; false if nothing in the tile is kept.
  bool transpose_keep(const Head& head, const Block& at, int64_t p0, int64_t from, int64_t to) const {
    bool any = false;
    for (int64_t i = from; i < to; ++i) {
      const bool* row = call_.keep.at(head.b, head.h, i);
      for (int64_t r = 0; r < at.keys; ++r) {
        const bool kept = row[(at.j0 + r) * call_.keep.col];
        at.keep[r * tiles_.queries + i - p0] = kept;
        any |= kept;
      }
    }
    return any;
  }

  void transpose_bias(const Head& head, const Block& at, int64_t p0, int64_t from, int64_t to) const {
    for (int64_t i = from; i < to; ++i) {
      const float* row = call_.bias.at(head.b, head.h, i);
      for (int64_t r = 0; r < at.keys; ++r)
        at.bias[r * tiles_.queries + i - p0] = row[(at.j0 + r) * call_.bias.col];
    }
  }

  const Call& call_;
  const BackwardTensors<Stored>& t_;
  const Tiles tiles_;
  const int64_t query_blocks_, key_blocks_;
  const int64_t queries_;     // rounded up to whole panels
  const int64_t right_size_;  // rows of the two right sides
  const int64_t head_size_;   // elements packed per query head
};

}  // namespace

template <class T>
void backward(const Call& call, const BackwardTensors<T>& tensors) {
  if (kIsBf16<T> && !has_gemm_bf16()) {
    Backward<T, float>(call, tensors).run();
  } else {
    Backward<T, T>(call, tensors).run();
  }
}

template void backward<float>(const Call&, const BackwardTensors<float>&);
template void backward<bf16_t>(const Call&, const BackwardTensors<bf16_t>&);

}  // namespace attentive::kernels::cpu

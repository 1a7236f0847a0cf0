#include "kernels/cpu/backward.h"

#include "kernels/cpu/tiles.h"

namespace attentive::kernels::cpu {
namespace {

int64_t tile_for(const Call& call) {
  const bool narrow = call.window.left >= 0 && call.window.left < 512 && call.causal != Causal::None;
  return call.L <= 256 || call.S <= 256 || narrow ? 64 : 128;
}

template <class T>
class Backward {
 public:
  Backward(const Call& call, const BackwardTensors<T>& tensors)
      : call_(call),
        t_(tensors),
        tile_(tile_for(call)),
        width_(std::min(tile_, round_up(call.L, 16))),
        query_blocks_((call.L + width_ - 1) / width_),
        key_blocks_((call.S + tile_ - 1) / tile_) {}

  void run() {
    const bool parallel = call_.B * call_.H * call_.L * call_.S * (call_.D + call_.Dv) > (int64_t{1} << 17);
    for_each_item(call_.B * call_.H, parallel,
                  [&](int64_t head) { statistics(head / call_.H, head % call_.H); });
    for_each_item(call_.B * call_.Hkv * t_.splits, parallel, [&](int64_t item) {
      const int64_t head = item / t_.splits;
      accumulate(head / call_.Hkv, head % call_.Hkv, item % t_.splits);
      gemm_done();
    });
  }

 private:
  void statistics(int64_t b, int64_t h) const {
    Scratch& scratch = Scratch::of_this_thread();
    scratch.reset();
    float* x = scratch.take<float>(call_.Dv);
    float* y = scratch.take<float>(call_.Dv);
    for (int64_t i = 0; i < call_.L; ++i) {
      const int64_t at = (b * call_.H + h) * call_.L + i;
      float delta;
      if constexpr (kIsBf16<T>) {
        simd().from_bf16(t_.output.at(b, h, i), x, call_.Dv);
        simd().from_bf16(t_.grad_output.at(b, h, i), y, call_.Dv);
        delta = simd().dot(x, y, call_.Dv);
      } else {
        delta = simd().dot(t_.output.at(b, h, i), t_.grad_output.at(b, h, i), call_.Dv);
      }
      t_.delta[at] = delta - (t_.grad_logsumexp ? t_.grad_logsumexp[at] : 0.0f);
    }
  }

  // The operands of one query head that every block of keys uses again, one panel per block of queries.
  struct Queries {
    T* q_right;        // (D, width)
    T* grad_right;     // (Dv, width)
    T* q_rows;         // bf16: (width, D) in pairs
    T* grad_rows;      // bf16: (width, Dv) in pairs
    float* logsumexp;  // base 2, +inf where there is none
    float* delta;
  };

  void pack(int64_t b, int64_t h, const Queries& to) const {
    for (int64_t block = 0; block < query_blocks_; ++block) {
      const int64_t i0 = block * width_, rows = std::min(width_, call_.L - i0);
      const T* q = t_.q.at(b, h, i0);
      const T* grad = t_.grad_output.at(b, h, i0);
      pack_right_transposed(q, t_.q.row, rows, call_.D, to.q_right + block * inner<T>(call_.D) * width_,
                            width_);
      pack_right_transposed(grad, t_.grad_output.row, rows, call_.Dv,
                            to.grad_right + block * inner<T>(call_.Dv) * width_, width_);
      if constexpr (kIsBf16<T>) {
        pack_rows(q, t_.q.row, rows, call_.D, to.q_rows + block * width_ * call_.D);
        pack_rows(grad, t_.grad_output.row, rows, call_.Dv, to.grad_rows + block * width_ * call_.Dv);
      }
    }
    for (int64_t i = 0; i < query_blocks_ * width_; ++i) {
      const int64_t at = (b * call_.H + h) * call_.L + i;
      const float lse = i < call_.L ? t_.logsumexp[at] : -kInfinity;
      to.logsumexp[i] = lse == -kInfinity ? kInfinity : lse * kLog2e;
      to.delta[i] = i < call_.L ? t_.delta[at] : 0.0f;
    }
  }

  void pack_rows(const T* src, int64_t lds, int64_t rows, int64_t n, T* dst) const {
    if (rows < width_) std::memset(dst, 0, static_cast<size_t>(width_ * n) * sizeof(T));
    if constexpr (kIsBf16<T>) simd().pack_pairs(src, lds, dst, n, rows, n);
  }

  // All blocks of keys of one split, for every query head of the group.
  void accumulate(int64_t b, int64_t hkv, int64_t split) const {
    Scratch& scratch = Scratch::of_this_thread();
    scratch.reset();
    const int64_t queries = query_blocks_ * width_;
    Queries packed;
    packed.q_right = scratch.take<T>(inner<T>(call_.D) * queries);
    packed.grad_right = scratch.take<T>(inner<T>(call_.Dv) * queries);
    packed.q_rows = scratch.take<T>(kIsBf16<T> ? call_.D * queries : 0);
    packed.grad_rows = scratch.take<T>(kIsBf16<T> ? call_.Dv * queries : 0);
    packed.logsumexp = scratch.take<float>(queries);
    packed.delta = scratch.take<float>(queries);
    Tile tile;
    tile.ld = width_ + 16;
    tile.scores = scratch.take<float>(tile_ * tile.ld);
    tile.products = scratch.take<float>(tile_ * tile.ld);
    tile.ld_rows = tile_ + 16;
    tile.rows = scratch.take<T>(width_ * tile.ld_rows);
    tile.weights16 = scratch.take<T>(kIsBf16<T> ? tile_ * tile.ld : 0);
    tile.gradients16 = scratch.take<T>(kIsBf16<T> ? tile_ * tile.ld : 0);
    tile.keys = scratch.take<T>(tile_ * inner<T>(call_.D));
    tile.values = scratch.take<T>(tile_ * inner<T>(call_.Dv));
    tile.key_rows = scratch.take<T>((tile_ + 1) * call_.D);
    tile.drop = scratch.take<uint16_t>(call_.dropout ? (tile_ / 16 + 16) * width_ : 0);
    tile.keep = scratch.take<uint8_t>(call_.keep ? tile_ * width_ : 0);
    tile.bias = scratch.take<float>(call_.bias ? tile_ * width_ : 0);

    for (int64_t g = 0; g < call_.group; ++g) {
      const int64_t h = hkv * call_.group + g;
      pack(b, h, packed);
      for (int64_t block = split; block < key_blocks_; block += t_.splits) {
        const int64_t j0 = block * tile_, keys = std::min(tile_, call_.S - j0);
        const int64_t seen = call_.key_lengths ? std::min(j0 + keys, call_.key_lengths[b]) : j0 + keys;
        if (seen <= j0) continue;
        const int64_t first = call_.query_lo(j0), end = call_.query_hi(b, seen - 1);
        for (int64_t queries_at = first / width_; queries_at * width_ < end; ++queries_at) {
          const int64_t i0 = std::max(queries_at * width_, first / 16 * 16);
          const int64_t count = std::min({end, (queries_at + 1) * width_, call_.L}) - i0;
          if (count > 0) add_tile(b, hkv, h, split, j0, keys, queries_at, i0, count, packed, tile);
        }
      }
    }
  }

  struct Tile {
    float* scores;    // (keys, queries): scores, then weights
    float* products;  // (keys, queries): dO · v, then gradients
    int64_t ld;
    T* rows;  // (queries, keys): gradients
    int64_t ld_rows;
    T* weights16;
    T* gradients16;
    T* keys;
    T* values;
    T* key_rows;
    uint16_t* drop;
    uint8_t* keep;
    float* bias;
  };

  void add_tile(int64_t b, int64_t hkv, int64_t h, int64_t split, int64_t j0, int64_t keys, int64_t block,
                int64_t i0, int64_t count, const Queries& packed, const Tile& tile) const {
    if (call_.keep && !transpose_keep(b, h, j0, keys, i0, count, tile.keep)) return;
    if (call_.bias) transpose_bias(b, h, j0, keys, i0, count, tile.bias);
    if (call_.dropout) {
      for (int64_t c = 0; c < count; ++c)
        call_.dropout_bits(b, h, i0 + c, j0, j0 + keys, tile.drop + c, width_);
    }
    const int64_t offset = i0 - block * width_, wide = std::min(round_up(count, 16), width_ - offset);
    const int64_t pairs = kIsBf16<T> ? 2 : 1;

    int64_t ldk = 0, ldv = 0;
    const T* key_left = left_of_rows(t_.k.at(b, hkv, j0), t_.k.row, keys, call_.D, tile.keys, &ldk);
    const T* value_left = left_of_rows(t_.v.at(b, hkv, j0), t_.v.row, keys, call_.Dv, tile.values, &ldv);
    gemm(keys, wide, inner<T>(call_.D), key_left, ldk,
         packed.q_right + block * inner<T>(call_.D) * width_ + offset * pairs, width_, tile.scores, tile.ld,
         false);
    gemm(keys, wide, inner<T>(call_.Dv), value_left, ldv,
         packed.grad_right + block * inner<T>(call_.Dv) * width_ + offset * pairs, width_, tile.products,
         tile.ld, false);

    const ScoreRule rule = call_.rule_of(b, h);
    for (int64_t r = 0; r < keys; ++r) {
      const int64_t j = j0 + r;
      GradientRow row{.scores = tile.scores + r * tile.ld, .products = tile.products + r * tile.ld};
      row.cols = wide;
      row.lo = std::max<int64_t>(call_.query_lo(j) - i0, 0);
      row.hi = std::clamp<int64_t>(call_.query_hi(b, j) - i0, 0, count);
      row.rule = rule;
      row.distance = static_cast<float>(i0 + call_.shift - j);
      if (call_.bias) row.bias = tile.bias + r * width_;
      if (call_.keep) row.keep = tile.keep + r * width_;
      if (call_.dropout) {
        row.drop = tile.drop + (j % 128 / 16 + (j / 128 - j0 / 128) * 8) * width_;
        row.drop_bit = static_cast<int>(j % 16);
      }
      row.survivor_scale = call_.survivor_scale;
      row.logsumexp = packed.logsumexp + i0;
      row.delta = packed.delta + i0;
      simd().gradient_row(row);
    }
    multiply(b, hkv, h, split, j0, keys, block, i0, count, wide, packed, tile);
  }

  // dV += W^T dO, dK += dS^T Q, dQ += dS K
  void multiply(int64_t b, int64_t hkv, int64_t h, int64_t split, int64_t j0, int64_t keys, int64_t block,
                int64_t i0, int64_t count, int64_t wide, const Queries& packed, const Tile& tile) const {
    float* grad_v = t_.grad_v.at(b, hkv, j0);
    float* grad_k = t_.grad_k.at(b, hkv, j0);
    if constexpr (kIsBf16<T>) {
      const int64_t offset = i0 - block * width_;
      for (int64_t r = 0; r < keys; ++r) {
        simd().to_bf16(tile.scores + r * tile.ld, tile.weights16 + r * tile.ld, wide);
        simd().to_bf16(tile.products + r * tile.ld, tile.gradients16 + r * tile.ld, wide);
      }
      gemm(keys, call_.Dv, wide, tile.weights16, tile.ld,
           packed.grad_rows + (block * width_ + offset) * call_.Dv, call_.Dv, grad_v, t_.grad_v.row, true);
      gemm(keys, call_.D, wide, tile.gradients16, tile.ld,
           packed.q_rows + (block * width_ + offset) * call_.D, call_.D, grad_k, t_.grad_k.row, true);
      if (keys % 2 != 0) {
        for (int64_t c = 0; c < count; ++c) tile.rows[c * tile.ld_rows + keys] = 0;
      }
      simd().transpose_to_bf16(tile.products, tile.ld, tile.rows, tile.ld_rows, keys, count);
    } else {
      gemm(keys, call_.Dv, count, tile.scores, tile.ld, t_.grad_output.at(b, h, i0), t_.grad_output.row,
           grad_v, t_.grad_v.row, true);
      gemm(keys, call_.D, count, tile.products, tile.ld, t_.q.at(b, h, i0), t_.q.row, grad_k, t_.grad_k.row,
           true);
      simd().transpose(tile.products, tile.ld, tile.rows, tile.ld_rows, keys, count);
    }
    // A hidden key may hold NaN, and 0 * NaN is NaN: such rows are zero here.
    const T* key = t_.k.at(b, hkv, j0);
    const auto hidden = [&](int64_t r) {
      if (row_is_finite(key + r * t_.k.row, call_.D)) return false;
      for (int64_t c = 0; c < count; ++c) {
        if (tile.scores[r * tile.ld + c] != 0.0f || tile.products[r * tile.ld + c] != 0.0f) return false;
      }
      return true;
    };
    bool any_hidden = false;
    for (int64_t r = 0; r < keys && !any_hidden; ++r) any_hidden = hidden(r);
    int64_t ld = 0;
    const T* right = right_of_rows(key, t_.k.row, keys, call_.D, any_hidden, hidden, tile.key_rows, &ld);
    gemm(count, call_.D, inner<T>(keys), tile.rows, tile.ld_rows, right, ld,
         t_.grad_q.at(b, h, i0) + split * t_.grad_q_copy, t_.grad_q.row, true);
  }

  // Mask bytes with rows and columns exchanged; false if nothing in the tile is kept.
  bool transpose_keep(int64_t b, int64_t h, int64_t j0, int64_t keys, int64_t i0, int64_t count,
                      uint8_t* out) const {
    bool any = false;
    for (int64_t c = 0; c < count; ++c) {
      const bool* row = call_.keep.at(b, h, i0 + c);
      for (int64_t r = 0; r < keys; ++r) {
        const bool kept = row[(j0 + r) * call_.keep.col];
        out[r * width_ + c] = kept;
        any |= kept;
      }
    }
    return any;
  }

  void transpose_bias(int64_t b, int64_t h, int64_t j0, int64_t keys, int64_t i0, int64_t count,
                      float* out) const {
    for (int64_t c = 0; c < count; ++c) {
      const float* row = call_.bias.at(b, h, i0 + c);
      for (int64_t r = 0; r < keys; ++r) out[r * width_ + c] = row[(j0 + r) * call_.bias.col];
    }
  }

  const Call& call_;
  const BackwardTensors<T>& t_;
  const int64_t tile_;   // keys per tile
  const int64_t width_;  // queries per tile
  const int64_t query_blocks_, key_blocks_;
};

}  // namespace

int64_t backward_splits(const Call& call) {
  constexpr int64_t kItems = 16;
  const int64_t heads = call.B * call.Hkv, blocks = (call.S + 255) / 256;
  return std::clamp<int64_t>((kItems + heads - 1) / heads, 1, std::max<int64_t>(blocks, 1));
}

template <class T>
void backward(const Call& call, const BackwardTensors<T>& tensors) {
  Backward<T>(call, tensors).run();
}

template void backward<float>(const Call&, const BackwardTensors<float>&);
template void backward<bf16_t>(const Call&, const BackwardTensors<bf16_t>&);

}  // namespace attentive::kernels::cpu

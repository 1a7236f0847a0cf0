// Attention of few queries (decoding): the scores of all query heads of a group are taken in one pass through
// the keys, and a long row of keys is split into parts that are combined at the end.

#include <cmath>
#include <cstring>

#include "kernels/attention/forward.h"
#include "kernels/attention/tiles.h"
#include "kernels/gemm/scratch.h"

namespace attentive::kernels::cpu {
namespace {

constexpr int64_t kPart = 1024;  // keys per part
constexpr int64_t kChunk = 256;  // keys per step inside a part

template <class T>
class ForwardFew {
 public:
  ForwardFew(const Call& call, const ForwardTensors<T>& tensors) : call_(call), t_(tensors) {}

  void run() {
    const int64_t heads = call_.B * call_.Hkv, parts = (call_.S + kPart - 1) / kPart;
    const int64_t rows = call_.group * call_.L, state = rows * (call_.Dv + 2);
    const bool parallel = heads * call_.S * rows * (call_.D + call_.Dv) > (int64_t{1} << 18);
    thread_local Scratch shared;
    shared.reset();
    float* states = shared.take<float>(heads * parts * state);
    for_each_item(heads * parts, parallel,
                  [&](int64_t item) { part(item / parts, item % parts, rows, states + item * state); });
    for (int64_t head = 0; head < heads; ++head)
      combine(head, parts, rows, states + head * parts * state, state);
  }

 private:
  // A hidden value that is not finite spoils the sums, since 0 * NaN is NaN. That is rare, and is only looked
  // for where the sums are spoilt.
  void part(int64_t head, int64_t part, int64_t rows, float* state) const {
    attend(head, part, rows, state, /*hide=*/false);
    if (!rows_are_finite(state, call_.Dv, rows, call_.Dv)) attend(head, part, rows, state, /*hide=*/true);
  }

  // A part's result: sums (rows, Dv), then maximum and total of every row.
  void attend(int64_t head, int64_t part, int64_t rows, float* state, bool hide) const {
    const int64_t b = head / call_.Hkv, hkv = head % call_.Hkv;
    float* sums = state;
    float* maximum = state + rows * call_.Dv;
    float* total = maximum + rows;
    std::fill_n(sums, rows * call_.Dv, 0.0f);
    std::fill_n(maximum, rows, -kInfinity);
    std::fill_n(total, rows, 0.0f);

    Scratch& scratch = Scratch::of_this_thread();
    scratch.reset();
    float* query = scratch.take<float>(rows * call_.D);
    float* scores = scratch.take<float>(rows * kChunk);
    T* values = scratch.take<T>(kChunk * call_.Dv);
    auto* drop = scratch.take<uint16_t>(call_.dropout ? (kChunk / 16 + 16) * rows : 0);
    auto* keep_row = scratch.take<uint8_t>(kChunk);
    float* bias_row = scratch.take<float>(kChunk);
    for (int64_t r = 0; r < rows; ++r) {
      const T* source = t_.q.at(b, hkv * call_.group + r / call_.L, r % call_.L);
      if constexpr (kIsBf16<T>) {
        simd().from_bf16(source, query + r * call_.D, call_.D);
      } else {
        std::memcpy(query + r * call_.D, source, static_cast<size_t>(call_.D) * sizeof(float));
      }
    }

    const int64_t begin = std::max(part * kPart, call_.key_lo(0));
    const int64_t end = std::min((part + 1) * kPart, call_.key_hi(b, call_.L - 1));
    for (int64_t from = begin / 16 * 16; from < end; from += kChunk) {
      const int64_t cols = std::min(end - from, kChunk);
      simd().few_scores(query, rows, t_.k.at(b, hkv, from), kIsBf16<T>, t_.k.row, cols, call_.D, scores,
                        kChunk);
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t h = hkv * call_.group + r / call_.L, i = r % call_.L;
        SoftmaxRow row{.scores = scores + r * kChunk};
        row.cols = cols;
        row.lo = std::max<int64_t>(call_.key_lo(i) - from, 0);
        row.hi = std::clamp<int64_t>(call_.key_hi(b, i) - from, 0, cols);
        row.rule = call_.rule_of(b, h);
        row.distance = static_cast<float>(i + call_.band.origin - from);
        if (call_.bias) row.bias = contiguous_row(call_.bias, b, h, i, from, cols, bias_row);
        if (call_.keep) row.keep = contiguous_row(call_.keep, b, h, i, from, cols, keep_row);
        if (call_.dropout) {
          call_.dropout_bits(b, h, i, from, from + cols, drop, 1);
          row.drop = drop + from % 128 / 16;
          row.drop_stride = 1;
        }
        row.maximum = maximum[r];
        row.sum = total[r];
        simd().softmax_rows(&row, 1);
        const bool begun = total[r] != 0.0f;
        maximum[r] = row.maximum;
        total[r] = row.sum;
        if (begun && row.rescale != 1.0f) simd().scale(sums + r * call_.Dv, row.rescale, call_.Dv);
      }
      const T* value = t_.v.at(b, hkv, from);
      int64_t ldv = t_.v.row;
      if (hide) {
        for (int64_t c = 0; c < cols; ++c)
          copy_value(b, hkv, from + c, scores + c, rows, values + c * call_.Dv);
        value = values;
        ldv = call_.Dv;
      }
      simd().few_outputs(scores, kChunk, rows, value, kIsBf16<T>, ldv, cols, call_.Dv, sums);
    }
  }

  // A value row as it is, or zero if no row gives it any weight.
  void copy_value(int64_t b, int64_t hkv, int64_t j, const float* weights, int64_t rows, T* out) const {
    bool seen = false;
    for (int64_t r = 0; r < rows && !seen; ++r) seen = weights[r * kChunk] != 0.0f;
    if (seen) {
      std::memcpy(out, t_.v.at(b, hkv, j), static_cast<size_t>(call_.Dv) * sizeof(T));
    } else {
      std::memset(out, 0, static_cast<size_t>(call_.Dv) * sizeof(T));
    }
  }

  void combine(int64_t head, int64_t parts, int64_t rows, float* states, int64_t state) const {
    const int64_t b = head / call_.Hkv, hkv = head % call_.Hkv;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t h = hkv * call_.group + r / call_.L, i = r % call_.L;
      const float unit = call_.rule_of(b, h).to_base_2(static_cast<bool>(call_.bias));
      const auto maximum = [&](int64_t part) { return states[part * state + rows * call_.Dv + r]; };
      const auto total = [&](int64_t part) { return states[part * state + rows * call_.Dv + rows + r]; };
      float* sums = states + r * call_.Dv;
      float top = maximum(0), sum = total(0);
      if (parts > 1) {
        top = -kInfinity;
        sum = 0.0f;
        for (int64_t part = 0; part < parts; ++part) {
          if (total(part) != 0.0f && !(maximum(part) <= top)) top = maximum(part);
        }
        for (int64_t part = 0; part < parts; ++part) {
          if (total(part) == 0.0f) continue;
          const float factor = std::exp2((maximum(part) - top) * unit);
          sum += total(part) * factor;
          float* other = states + part * state + r * call_.Dv;
          simd().scale(other, factor, call_.Dv);
          if (part > 0) simd().add(other, sums, call_.Dv);
        }
      }
      const RowEnd end = end_of_row(call_, b, h, i, top, sum);
      const float factor = end.factor * call_.survivor_scale;
      if constexpr (kIsBf16<T>) {
        simd().store_scaled16(sums, factor, t_.output.at(b, h, i), call_.Dv);
      } else {
        simd().store_scaled(sums, factor, t_.output.at(b, h, i), call_.Dv);
      }
      if (t_.logsumexp) t_.logsumexp[(b * call_.H + h) * call_.L + i] = end.logsumexp();
    }
  }

  const Call& call_;
  const ForwardTensors<T>& t_;
};

}  // namespace

template <class T>
void forward_few(const Call& call, const ForwardTensors<T>& tensors) {
  ForwardFew<T>(call, tensors).run();
}

template void forward_few<float>(const Call&, const ForwardTensors<float>&);
template void forward_few<bf16_t>(const Call&, const ForwardTensors<bf16_t>&);

}  // namespace attentive::kernels::cpu

#include "kernels/attention/weights.h"

#include "kernels/attention/row_statistics.h"
#include "kernels/attention/tiles.h"

namespace attentive::kernels::cpu {
namespace {

constexpr int64_t kRows = 64;
constexpr int64_t kCols = 256;
constexpr int64_t kScores = int64_t{1} << 20;  // that a thread holds, if a single row is not longer

template <class T>
class WeightsPass {
 public:
  WeightsPass(const Call& call, const WeightsTensors<T>& tensors)
      : call_(call),
        t_(tensors),
        wide_(round_up(call.S, 16)),
        rows_(std::clamp<int64_t>(kScores / wide_, 1, std::min(kRows, call.L))) {}

  void run() {
    const int64_t blocks = (call_.L + rows_ - 1) / rows_;
    const bool parallel = call_.B * call_.H * call_.L * call_.S * call_.D > (int64_t{1} << 17);
    for_each_item(call_.B * call_.H * blocks, parallel, [&](int64_t item) {
      const int64_t head = item / blocks;
      write(head / call_.H, head % call_.H, item % blocks * rows_);
      gemm_done();
    });
  }

 private:
  void write(int64_t b, int64_t h, int64_t i0) const {
    Scratch& scratch = Scratch::of_this_thread();
    scratch.reset();
    const int64_t rows = std::min(rows_, call_.L - i0);
    float* scores = scratch.take<float>(rows_ * wide_);
    T* panel = scratch.take<T>(inner<T>(call_.D) * kCols);
    T* query_copy = scratch.take<T>(rows_ * inner<T>(call_.D));
    auto* drop = scratch.take<uint16_t>(call_.dropout ? wide_ / 16 + 16 : 0);
    auto* keep_row = scratch.take<uint8_t>(call_.keep.col != 1 ? wide_ : 0);
    float* bias_row = scratch.take<float>(call_.bias.col != 1 ? wide_ : 0);
    int64_t ldq = 0;
    const T* query = left_of_rows(t_.q.at(b, h, i0), t_.q.row, rows, call_.D, query_copy, &ldq);
    for (int64_t from = 0; from < call_.S; from += kCols) {
      const int64_t cols = std::min(kCols, call_.S - from), wide = round_up(cols, 16);
      pack_right_transposed(t_.k.at(b, h / call_.group, from), t_.k.row, cols, call_.D, panel, wide);
      gemm(rows, wide, inner<T>(call_.D), query, ldq, panel, wide, scores + from, wide_, false);
    }

    for (int64_t r = 0; r < rows; ++r) {
      const int64_t i = i0 + r;
      SoftmaxRow row{.scores = scores + r * wide_};
      row.cols = wide_;
      row.lo = call_.key_lo(i);
      row.hi = call_.key_hi(b, i);
      row.rule = call_.rule_of(b, h);
      row.distance = static_cast<float>(i + call_.band.origin);
      if (call_.bias) row.bias = contiguous_row(call_.bias, b, h, i, 0, call_.S, bias_row);
      if (call_.keep) row.keep = contiguous_row(call_.keep, b, h, i, 0, call_.S, keep_row);
      if (t_.dropped && call_.dropout) {
        call_.dropout_bits(b, h, i, 0, call_.S, drop, 1);
        row.drop = drop;
        row.drop_stride = 1;
      }
      row.maximum = -kInfinity;
      simd().softmax_rows(&row, 1);
      const RowEnd end = end_of_row(call_, b, h, i, row.maximum, row.sum);
      const float factor = end.factor * (row.drop ? call_.survivor_scale : 1.0f);
      T* out = t_.weights + ((b * call_.H + h) * call_.L + i) * call_.S;
      if constexpr (kIsBf16<T>) {
        simd().store_scaled16(row.scores, factor, out, call_.S);
      } else {
        simd().store_scaled(row.scores, factor, out, call_.S);
      }
    }
  }

  const Call& call_;
  const WeightsTensors<T>& t_;
  const int64_t wide_;  // keys of a row, rounded up to whole vectors
  const int64_t rows_;  // per block
};

}  // namespace

template <class T>
void weights(const Call& call, const WeightsTensors<T>& tensors) {
  WeightsPass<T>(call, tensors).run();
}

template void weights<float>(const Call&, const WeightsTensors<float>&);
template void weights<bf16_t>(const Call&, const WeightsTensors<bf16_t>&);

}  // namespace attentive::kernels::cpu

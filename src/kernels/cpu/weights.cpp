#include "kernels/cpu/weights.h"

#include "kernels/cpu/tiles.h"

namespace attentive::kernels::cpu {
namespace {

constexpr int64_t kRows = 64;
constexpr int64_t kCols = 256;

template <class T>
class WeightsPass {
 public:
  WeightsPass(const Call& call, const WeightsTensors<T>& tensors) : call_(call), t_(tensors) {}

  void run() {
    const int64_t blocks = (call_.L + kRows - 1) / kRows;
    const bool parallel = call_.B * call_.H * call_.L * call_.S * call_.D > (int64_t{1} << 17);
    for_each_item(call_.B * call_.H * blocks, parallel, [&](int64_t item) {
      const int64_t head = item / blocks;
      write(head / call_.H, head % call_.H, item % blocks * kRows);
      gemm_done();
    });
  }

 private:
  void write(int64_t b, int64_t h, int64_t i0) const {
    Scratch& scratch = Scratch::of_this_thread();
    scratch.reset();
    const int64_t rows = std::min(kRows, call_.L - i0), hkv = h / call_.group;
    float* scores = scratch.take<float>(kRows * kCols);
    T* panel = scratch.take<T>(inner<T>(call_.D) * kCols);
    T* query_copy = scratch.take<T>(kRows * inner<T>(call_.D));
    auto* drop = scratch.take<uint16_t>(kCols / 16 + 16);
    auto* keep_row = scratch.take<uint8_t>(kCols);
    float* bias_row = scratch.take<float>(kCols);
    int64_t ldq = 0;
    const T* query = left_of_rows(t_.q.at(b, h, i0), t_.q.row, rows, call_.D, query_copy, &ldq);
    const ScoreRule rule = call_.rule_of(b, h);
    const float unit = rule.unit(static_cast<bool>(call_.bias));

    for (int64_t from = 0; from < call_.S; from += kCols) {
      const int64_t cols = std::min(kCols, call_.S - from), wide = round_up(cols, 16);
      pack_right_transposed(t_.k.at(b, hkv, from), t_.k.row, cols, call_.D, panel, wide);
      gemm(rows, wide, inner<T>(call_.D), query, ldq, panel, wide, scores, kCols, false);
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t i = i0 + r, at = (b * call_.H + h) * call_.L + i;
        SoftmaxRow row{.scores = scores + r * kCols};
        row.cols = wide;
        row.lo = std::max<int64_t>(call_.key_lo(i) - from, 0);
        row.hi = std::clamp<int64_t>(call_.key_hi(b, i) - from, 0, cols);
        row.rule = rule;
        row.distance = static_cast<float>(i + call_.shift - from);
        if (call_.bias) row.bias = contiguous_row(call_.bias, b, h, i, from, cols, bias_row);
        if (call_.keep) row.keep = contiguous_row(call_.keep, b, h, i, from, cols, keep_row);
        if (t_.dropped && call_.dropout) {
          call_.dropout_bits(b, h, i, from, from + cols, drop, 1);
          row.drop = drop;
          row.drop_stride = 1;
        }
        row.maximum = t_.logsumexp[at] * kLog2e / unit;
        simd().weights_row(row);
        T* out = t_.weights + at * call_.S + from;
        const float factor = row.drop ? call_.survivor_scale : 1.0f;
        if constexpr (kIsBf16<T>) {
          simd().store_scaled16(row.scores, factor, out, cols);
        } else {
          simd().store_scaled(row.scores, factor, out, cols);
        }
      }
    }
  }

  const Call& call_;
  const WeightsTensors<T>& t_;
};

}  // namespace

template <class T>
void weights(const Call& call, const WeightsTensors<T>& tensors) {
  WeightsPass<T>(call, tensors).run();
}

template void weights<float>(const Call&, const WeightsTensors<float>&);
template void weights<bf16_t>(const Call&, const WeightsTensors<bf16_t>&);

}  // namespace attentive::kernels::cpu

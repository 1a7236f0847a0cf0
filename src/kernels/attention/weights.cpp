#include "kernels/attention/passes.h"
#include "kernels/attention/row_terms.h"
#include "kernels/gemm/operands.h"
#include "kernels/simd/threads.h"

namespace attentive::kernels::cpu {
namespace {

constexpr int64_t kRows = 64;
constexpr int64_t kCols = 256;
constexpr int64_t kScores = int64_t{1} << 20;  // the most scores that a thread holds, unless one row has more

// Stored is the element type of the tensors, T that of the operands of products.
template <class Stored, class T>
class WeightsPass {
 public:
  WeightsPass(const CpuArguments& call, const WeightsTensors<Stored>& tensors)
      : call_(call),
        t_(tensors),
        wide_(round_up(call.S, 16)),
        rows_(std::clamp<int64_t>(kScores / wide_, 1, std::min(kRows, call.L))) {}

  void run() {
    const int64_t blocks = (call_.L + rows_ - 1) / rows_;
    const bool parallel = call_.worth_sharing(2 * call_.D);
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
    const auto scores = scratch.matrix<float>(rows_, wide_);
    T* panel = scratch.take<T>(inner<T>(call_.D) * kCols);
    const RowTerms terms(call_, scratch, 1, wide_, t_.dropped);
    // S = Q Kᵀ
    const auto q = lhs_of(rows_of(t_.q, b, h, i0, rows, call_.D), scratch.take<T>(rows_ * inner<T>(call_.D)));
    for (int64_t from = 0; from < call_.S; from += kCols) {
      const int64_t cols = std::min(kCols, call_.S - from), wide = round_up(cols, 16);
      const Rhs<T> k{panel, inner<T>(call_.D), wide, wide};
      pack_transposed(rows_of(t_.k, b, call_.kv_head(h), from, cols, call_.D), k);
      gemm(q, k, scores.block(0, rows, from, wide), Sums::Begin);
    }
    // P = exp(scale · (S − m)) / ℓ
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t i = i0 + r;
      SoftmaxRow row{.scores = scores.row(r), .cols = wide_, .maximum = -kInfinity};
      terms.set(row, 0, b, h, i, 0, call_.S);
      rows_code().softmax_rows(&row, 1);
      const RowEnd end = end_of_row(call_, b, h, i, row.maximum, row.sum);
      const float factor = end.factor * (row.drop ? call_.survivor_scale : 1.0f);
      elementwise().store_scaled(row.scores, factor, t_.weights + ((b * call_.H + h) * call_.L + i) * call_.S,
                                 call_.S);
    }
  }

  const CpuArguments& call_;
  const WeightsTensors<Stored>& t_;
  const int64_t wide_;  // keys of a row, rounded up to whole vectors
  const int64_t rows_;  // rows per block
};

}  // namespace

template <class T>
void weights(const CpuArguments& call, const WeightsTensors<T>& tensors) {
  for_operands<T>([&](auto operand) { WeightsPass<T, decltype(operand)>(call, tensors).run(); });
}

template void weights<float>(const CpuArguments&, const WeightsTensors<float>&);
template void weights<bf16_t>(const CpuArguments&, const WeightsTensors<bf16_t>&);
template void weights<f16_t>(const CpuArguments&, const WeightsTensors<f16_t>&);

}  // namespace attentive::kernels::cpu

#include <cmath>
#include <type_traits>
#include <utility>

#include "kernels/attention/passes.h"
#include "kernels/attention/row_inputs.h"
#include "kernels/gemm/operands.h"
#include "kernels/simd/threads.h"

namespace attentive::kernels::cpu {
namespace {

constexpr int64_t kWeightRows = 64;
constexpr int64_t kWeightKeys = 256;
constexpr int64_t kScores = int64_t{1} << 20;  // the most scores that a thread holds, unless one row has more

// Computes rows of weights and passes each to `take(b, h, i, weights, factor)`, as numbers before the factor.
// Stored is the element type of the tensors, T that of the operands of products.
template <class Stored, class T, class Take>
class WeightsPass {
 public:
  WeightsPass(const Call& call, const Strided<const Stored>& q, const Strided<const Stored>& k, bool dropped,
              Take take)
      : call_(call),
        q_(q),
        k_(k),
        dropped_(dropped),
        take_(std::move(take)),
        wide_(round_up(call.S, 16)),
        rows_(std::clamp<int64_t>(kScores / wide_, 1, std::min(kWeightRows, call.L))) {}

  void run() const {
    const int64_t blocks = (call_.L + rows_ - 1) / rows_;
    const bool parallel = call_.worth_threads(2 * call_.D);
    for_each_item(call_.B * call_.H * blocks, parallel, [&](int64_t item) {
      const int64_t head = item / blocks;
      compute(head / call_.H, head % call_.H, item % blocks * rows_);
      gemm_done();
    });
  }

 private:
  void compute(int64_t b, int64_t h, int64_t i0) const {
    Scratch& scratch = Scratch::of_this_thread();
    scratch.reset();
    const int64_t rows = std::min(rows_, call_.L - i0);
    const auto scores = scratch.matrix<float>(rows_, wide_);
    T* panel = scratch.take<T>(inner<T>(call_.D) * kWeightKeys);
    const RowInputs terms(call_, scratch, 1, wide_, dropped_);
    // S = Q Kᵀ
    const auto q = lhs_of(rows_of(q_, b, h, i0, rows, call_.D), scratch.take<T>(rows_ * inner<T>(call_.D)));
    for (int64_t from = 0; from < call_.S; from += kWeightKeys) {
      const int64_t cols = std::min(kWeightKeys, call_.S - from), wide = round_up(cols, 16);
      const Rhs<T> k{panel, inner<T>(call_.D), wide, wide};
      pack_transposed(rows_of(k_, b, call_.kv_head(h), from, cols, call_.D), k);
      gemm(q, k, scores.block(0, rows, from, wide), Sums::Begin);
    }
    // P = exp(scale · (S − m)) / ℓ
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t i = i0 + r;
      SoftmaxRow row{.scores = scores.row(r), .cols = wide_, .maximum = -kInfinity};
      terms.set(row, 0, b, h, i, 0, call_.S);
      terms.score(&row, 1, b, h, i, 0);
      rows_to_weights(call_, &row, 1);
      const RowEnd end = end_of_row(call_, b, h, i, row.maximum, row.sum);
      take_(b, h, i, row.scores, end.factor * (row.drop ? call_.survivor_scale : 1.0f));
    }
  }

  const Call& call_;
  const Strided<const Stored> q_, k_;
  const bool dropped_;
  const Take take_;
  const int64_t wide_;  // keys of a row, rounded up to whole vectors
  const int64_t rows_;  // rows per block
};

// Passes every row of weights to `take`, which writes or reads tensors of the element type Stored.
template <class Stored, class Take>
void for_rows(const Call& call, const Strided<const Stored>& q, const Strided<const Stored>& k, bool dropped,
              const Take& take) {
  for_operands<Stored>(
      [&](auto operand) { WeightsPass<Stored, decltype(operand), Take>(call, q, k, dropped, take).run(); });
}

// The dot product of query i's weights and their incoming gradient.
template <class T>
float weight_dot(const Call& call, const float* weights, const Strided<const T>& gradient, int64_t b,
                 int64_t h, int64_t i) {
  // Parts of a row are added up separately, so that rounding errors grow with their size and number rather
  // than with the length of the row.
  constexpr int64_t kDotPart = 512;
  float gradients[kDotPart], total = 0.0f;
  for (int64_t from = 0; from < call.S; from += kDotPart) {
    const int64_t count = std::min(kDotPart, call.S - from);
    const T* const part = gradient.at(b, h, i, from);
    if constexpr (std::is_same_v<T, float>) {
      if (gradient.col == 1) {
        total += elementwise().dot(weights + from, part, count);
        continue;
      }
    }
    widen_row(part, gradient.col, gradients, count);
    total += elementwise().dot(weights + from, gradients, count);
  }
  return total;
}

}  // namespace

template <class T>
void weights(const Call& call, const WeightsTensors<T>& tensors) {
  if (call.L == 0 || call.S == 0) return;
  const auto write = [&](int64_t b, int64_t h, int64_t i, const float* row, float factor) {
    T* const to = tensors.weights + call.row_index(b, h, i) * call.keys_of_head;
    elementwise().store_scaled(row, factor, to, call.S);
  };
  for_rows<T>(call, tensors.q, tensors.k, tensors.dropped, write);
}

template <class T>
void weight_dots(const Call& call, const WeightDotsTensors<T>& tensors) {
  if (call.L == 0 || call.S == 0) return;
  const auto& gradient = tensors.grad_weights;
  if constexpr (std::is_same_v<T, float>) {
    for_each_item(call.B * call.H, call.worth_threads(2), [&](int64_t head) {
      for (int64_t i = 0; i < call.L; ++i) {
        const int64_t b = head / call.H, h = head % call.H, row = call.row_index(b, h, i);
        tensors.dots[row] = weight_dot(call, tensors.weights + row * call.keys_of_head, gradient, b, h, i);
        // 0 * NaN is NaN, but a row without keys has no gradient.
        if (!std::isfinite(tensors.dots[row]) && !call.sees_a_key(b, h, i)) tensors.dots[row] = 0.0f;
      }
    });
  } else {
    const auto multiply = [&](int64_t b, int64_t h, int64_t i, const float* row, float factor) {
      tensors.dots[call.row_index(b, h, i)] =
          factor == 0.0f ? 0.0f : factor * weight_dot(call, row, gradient, b, h, i);
    };
    for_rows<T>(call, tensors.q, tensors.k, tensors.dropped, multiply);
  }
}

template void weights<float>(const Call&, const WeightsTensors<float>&);
template void weights<bf16_t>(const Call&, const WeightsTensors<bf16_t>&);
template void weights<f16_t>(const Call&, const WeightsTensors<f16_t>&);
template void weight_dots<float>(const Call&, const WeightDotsTensors<float>&);
template void weight_dots<bf16_t>(const Call&, const WeightDotsTensors<bf16_t>&);
template void weight_dots<f16_t>(const Call&, const WeightDotsTensors<f16_t>&);

}  // namespace attentive::kernels::cpu

// Attention of few queries (decoding). The query heads of a group share one pass through their keys, which
// are read directly from the caller's tensors. A long cache is split into parts that threads share:
//
//   for each part of 1,024 keys, in chunks of 256:
//     S  = Q Kᵀ
//     m′ = max(m, rowmax S), P = exp(scale · (S − m′)), ℓ = ℓ · exp(scale · (m − m′)) + rowsum P
//     O  = O · exp(scale · (m − m′)) + P V
//   m = max over parts of mₚ
//   ℓ = Σ ℓₚ · exp(scale · (mₚ − m)), O = Σ Oₚ · exp(scale · (mₚ − m)) / ℓ
//
// The last two lines are those of merge_attention, on sums that no part has divided by its ℓₚ yet.

#include <cmath>
#include <cstring>

#include "kernels/attention/passes.h"
#include "kernels/attention/row_inputs.h"
#include "kernels/gemm/operands.h"
#include "kernels/gemm/scratch.h"
#include "kernels/simd/threads.h"

namespace attentive::kernels::cpu {
namespace {

constexpr int64_t kSplitKeys = 1024;  // keys per part
constexpr int64_t kChunkKeys = 256;   // keys per step inside a part
constexpr int64_t kRowsAcross = 12;   // the fewest rows whose features a vector holds
constexpr int64_t kWidenedKeys = 64;  // values of a half type that are widened at a time

// The products of the rows with keys and values. A sum of few rows is a vector of a key's features, whose
// lanes are added at last. For more, as with latents that all heads share, a vector holds a feature of
// several rows, which leaves nothing to add and reads each key once.
template <class T>
class ProductsOfRows {
 public:
  ProductsOfRows(const Matrix<const float>& q, int64_t Dv, Scratch& scratch) : q_(q) {
    const auto bf16 = kIsBf16<T> ? selection().bf16 : Bf16Product::Widened;
    if (q.rows < kRowsAcross || bf16 == Bf16Product::Pairs) return;
    const int64_t width = vector_code().width, columns = (q.rows + width - 1) / width * width;
    by_key_ = scratch.matrix<float>(kChunkKeys, columns);
    if (bf16 == Bf16Product::MatrixUnit && q.cols % 2 == 0) {
      const auto narrow = scratch.matrix<bf16_t>(q.rows, q.cols);
      elementwise().convert(q.data, narrow.data, q.rows * q.cols);
      pairs_ = {scratch.take<bf16_t>(q.cols * q.rows), q.cols, q.rows, q.rows};
      products().pack_transposed(narrow, pairs_);
      weights_ = scratch.matrix<bf16_t>(q.rows, kChunkKeys);
      values_ = scratch.take<bf16_t>(kChunkKeys * Dv);
      return;
    }
    across_ = scratch.matrix<float>(q.cols, columns);
    pack_transposed<float, float>(q, {across_.data, q.cols, columns, columns});
    if (!std::is_same_v<T, float>) widened_ = scratch.take<float>(kWidenedKeys * Dv);
  }

  // scores = q keys^T
  void score(const Matrix<const T>& keys, const Matrix<float>& scores) const {
    if (!by_key_.data) return rows_code().few_scores(q_, keys, scores);
    const auto sums = by_key_.block(0, keys.rows, 0, q_.rows);
    if constexpr (kIsBf16<T>) {
      if (pairs_.data) amx_multiply_few_rows(keys, pairs_, sums);
    }
    if (across_.data) products().multiply_across(keys, across_, by_key_.part(0, keys.rows));
    products().transpose(sums, scores);
  }

  // out += weights values
  void add_outputs(const Matrix<const float>& weights, const Matrix<const T>& values,
                   const Matrix<float>& out) const {
    for (int64_t j = 0; across_.data && j < values.rows; j += kWidenedKeys) {
      const int64_t n = std::min(values.rows - j, kWidenedKeys);
      Rhs<const float> rhs;
      if constexpr (std::is_same_v<T, float>) {
        rhs = as_rhs(values.part(j, n));
      } else {
        const Rhs<float> wide{widened_, n, values.cols, values.cols};
        products().pack_rows(values.part(j, n), wide);
        rhs = wide;
      }
      gemm(weights.block(0, weights.rows, j, n), rhs, out, Sums::Continue);
    }
    if (across_.data) return;
    if constexpr (kIsBf16<T>) {
      if (pairs_.data) {
        const Matrix<bf16_t> narrow{weights_.data, weights.rows, inner<bf16_t>(weights.cols), kChunkKeys};
        for (int64_t r = 0; r < weights.rows; ++r) {
          narrow.row(r)[narrow.cols - 1] = 0;
          elementwise().convert(weights.row(r), narrow.row(r), weights.cols);
        }
        return gemm(narrow,
                    rhs_of(
                        values, false, [](int64_t) { return false; }, values_),
                    out, Sums::Continue);
      }
    }
    rows_code().few_outputs(weights, values, out);
  }

 private:
  Matrix<const float> q_;
  Matrix<float> by_key_{}, across_{};
  Rhs<bf16_t> pairs_{};
  Matrix<bf16_t> weights_{};
  bf16_t* values_ = nullptr;
  float* widened_ = nullptr;
};

template <class T>
class FewQueries {
 public:
  FewQueries(const Call& call, const ForwardTensors<T>& tensors)
      : call_(call), t_(tensors), rows_(call.group * call.L) {}

  void run() {
    const int64_t heads = call_.B * call_.Hkv, parts = (call_.S + kSplitKeys - 1) / kSplitKeys;
    const bool parallel = call_.worth_threads(call_.D + call_.Dv);
    thread_local Scratch shared;
    shared.reset();
    const int64_t size = rows_ * (call_.Dv + 2);
    float* states = shared.take<float>(heads * parts * size);
    const auto state = [&](int64_t head, int64_t part) {
      float* const output = states + (head * parts + part) * size;
      float* const maximum = output + rows_ * call_.Dv;
      return State{{output, rows_, call_.Dv, call_.Dv}, maximum, maximum + rows_};
    };
    for_each_item(heads * parts, parallel, [&](int64_t item) {
      compute(item / parts, item % parts, state(item / parts, item % parts));
    });
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t r = 0; r < rows_; ++r)
        combine(head, r, parts, [&](int64_t part) { return state(head, part); });
    }
  }

 private:
  // O, m and ℓ of the rows of one part. Row r is query r % L of the group's query head r / L.
  struct State {
    Matrix<float> output;
    float *maximum, *total;
  };

  // A hidden value that is not finite makes the sums NaN, since 0 * NaN is NaN. That is rare, so values are
  // checked only if a sum is not finite.
  void compute(int64_t head, int64_t part, const State& state) const {
    attend(head, part, state, /*hide=*/false);
    if (!elementwise().all_finite(state.output)) attend(head, part, state, /*hide=*/true);
    gemm_done();
  }

  void attend(int64_t head, int64_t part, const State& state, bool hide) const {
    const int64_t b = head / call_.Hkv, hkv = head % call_.Hkv;
    std::fill_n(state.output.data, rows_ * call_.Dv, 0.0f);
    std::fill_n(state.maximum, rows_, -kInfinity);
    std::fill_n(state.total, rows_, 0.0f);

    Scratch& scratch = Scratch::of_this_thread();
    scratch.reset();
    const auto q = scratch.matrix<float>(rows_, call_.D);
    const auto all_scores = scratch.matrix<float>(rows_, kChunkKeys);
    const auto values = scratch.matrix<T>(kChunkKeys, call_.Dv);
    const RowInputs terms(call_, scratch, 1, kChunkKeys, true);
    for (int64_t r = 0; r < rows_; ++r)
      elementwise().convert(t_.q.at(b, head_of(hkv, r), r % call_.L), q.row(r), call_.D);
    const ProductsOfRows<T> products(q, call_.Dv, scratch);

    const int64_t begin = std::max(part * kSplitKeys, call_.key_lo(0));
    const int64_t end = std::min((part + 1) * kSplitKeys, call_.key_hi(b, call_.L - 1));
    for (int64_t from = begin / 16 * 16; from < end; from += kChunkKeys) {
      const int64_t cols = std::min(end - from, kChunkKeys);
      const auto scores = all_scores.block(0, rows_, 0, cols);
      for (int64_t r = 0; r < rows_; ++r) terms.prefetch(b, head_of(hkv, r), r % call_.L, from, cols);
      // S = Q Kᵀ
      products.score(rows_of(t_.k, b, hkv, from, cols, call_.D), scores);
      // P = exp(scale · (S − m′)); then m, ℓ and O are updated
      for (int64_t r = 0; r < rows_; ++r) {
        SoftmaxRow row{
            .scores = scores.row(r), .cols = cols, .maximum = state.maximum[r], .sum = state.total[r]};
        terms.set(row, 0, b, head_of(hkv, r), r % call_.L, from, cols);
        terms.score(&row, 1, b, head_of(hkv, r), r % call_.L, from);
        rows_to_weights(call_, &row, 1);
        follow_maximum(row, state.maximum[r], state.total[r], state.output.row(r), call_.Dv);
      }
      // O = O + P V
      auto v = rows_of(t_.v, b, hkv, from, cols, call_.Dv);
      if (hide) {
        for (int64_t c = 0; c < cols; ++c) copy_value(v.row(c), b, hkv, from + c, values.row(c));
        v = values.part(0, cols);
      }
      products.add_outputs(scores, v, state.output);
    }
  }

  int64_t head_of(int64_t hkv, int64_t r) const { return call_.query_head(hkv, r / call_.L); }

  // Copies the value of key j, or zeros if no row sees the key. The weights cannot decide that: all weights
  // of a row with a NaN score are NaN, even those of hidden keys.
  void copy_value(const T* value, int64_t b, int64_t hkv, int64_t j, T* out) const {
    bool seen = false;
    for (int64_t r = 0; r < rows_ && !seen; ++r) seen = call_.sees(b, head_of(hkv, r), r % call_.L, j);
    if (seen) {
      std::memcpy(out, value, static_cast<size_t>(call_.Dv) * sizeof(T));
    } else {
      std::memset(out, 0, static_cast<size_t>(call_.Dv) * sizeof(T));
    }
  }

  // Combines one row of all parts and writes it.
  template <class StateOf>
  void combine(int64_t head, int64_t r, int64_t parts, const StateOf& state) const {
    const int64_t b = head / call_.Hkv, h = head_of(head % call_.Hkv, r);
    const float unit = call_.rule_of(b, h).to_natural(static_cast<bool>(call_.bias)) * kLog2e;
    const State first = state(0);
    float* const output = first.output.row(r);
    float maximum = first.maximum[r], total = first.total[r];
    if (parts > 1) {
      maximum = -kInfinity;
      total = 0.0f;
      for (int64_t part = 0; part < parts; ++part) {
        const State partial = state(part);
        if (partial.total[r] != 0.0f && !(partial.maximum[r] <= maximum)) maximum = partial.maximum[r];
      }
      for (int64_t part = 0; part < parts; ++part) {
        const State partial = state(part);
        if (partial.total[r] == 0.0f) continue;
        const float factor = std::exp2((partial.maximum[r] - maximum) * unit);
        total += partial.total[r] * factor;
        elementwise().store_scaled(partial.output.row(r), factor, partial.output.row(r), call_.Dv);
        if (part > 0) elementwise().add(partial.output.row(r), output, call_.Dv);
      }
    }
    t_.write_row(call_, b, h, r % call_.L, maximum, total, output);
  }

  const Call& call_;
  const ForwardTensors<T>& t_;
  const int64_t rows_;
};

}  // namespace

template <class T>
void few_queries(const Call& call, const ForwardTensors<T>& tensors) {
  FewQueries<T>(call, tensors).run();
  missing_weights(call, tensors);
}

template void few_queries<float>(const Call&, const ForwardTensors<float>&);
template void few_queries<bf16_t>(const Call&, const ForwardTensors<bf16_t>&);
template void few_queries<f16_t>(const Call&, const ForwardTensors<f16_t>&);

}  // namespace attentive::kernels::cpu

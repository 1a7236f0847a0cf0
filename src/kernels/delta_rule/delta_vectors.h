#pragma once

#include <attentive/score/vectors/math.h>

#include "kernels/delta_rule/functions.h"
#include "kernels/simd/rows.h"
#include "kernels/simd/sums.h"

ATTENTIVE_SIMD_BEGIN

void decays(const float* gates, float* factors, int64_t n) {
  for (int64_t i = 0; i < n; i += kWidth) {
    const Vec gate = load_part(gates + i, n - i);
    store_part(factors + i, select(gate < all(-87.3f), all(0.0f), exp_of(gate)), n - i);
  }
}

void decays_of_pairs(const float* factors, const Matrix<float>& to) {
  const int64_t n = to.rows;
  for (int64_t i = 0; i < n; ++i) {
    float* const row = to.row(i);
    const float* const before = i > 0 ? to.row(i - 1) : row;
    const float factor = factors[i];
    for (int64_t j = 0; j < n; j += kWidth) {
      const Vec decay = j < i ? load_part(before + j, n - j) * factor : all(0.0f);
      store_part(row + j, decay, n - j);
    }
    row[i] = 1.0f;
  }
}

void take_lower(const Matrix<const float>& decays, int64_t diagonal, const Matrix<float>& x) {
  for (int64_t i = 0; i < x.rows; ++i) {
    float* const row = x.row(i);
    const int64_t end = i + diagonal;
    for (int64_t j = 0; j < x.cols; j += kWidth) {
      const int64_t left = end - j;
      Vec value = all(0.0f);
      if (left > 0) {
        value = load_part(row + j, x.cols - j);
        if (decays.data) value *= load_part(decays.row(i) + j, x.cols - j);
        if (left < kWidth) value = select(lanes() < all(static_cast<int32_t>(left)), value, all(0.0f));
      }
      store_part(row + j, value, x.cols - j);
    }
  }
}

void add_products(const float* x, const float* y, float* to, int64_t n) {
  for (int64_t i = 0; i < n; i += kWidth)
    store_part(to + i, load_part(to + i, n - i) + load_part(x + i, n - i) * load_part(y + i, n - i), n - i);
}

void norm_gradient(const float* unit, const float* gradient, float inverse_norm, float* to, int64_t n) {
  const float along = dot(unit, gradient, n);
  for (int64_t i = 0; i < n; i += kWidth)
    store_part(to + i, (load_part(gradient + i, n - i) - load_part(unit + i, n - i) * along) * inverse_norm,
               n - i);
}

/// Some columns of x, a row after the other.
template <bool kTransposed, int kVectors>
inline void solve_columns(const Matrix<const float>& lower, float* x, int64_t stride, int64_t columns) {
  const int64_t n = lower.rows;
  const auto vector_of = [=](int64_t row, int v) {
    return load_part(x + row * stride + v * kWidth, columns - v * kWidth);
  };
  for (int64_t step = 1; step < n; ++step) {
    const int64_t i = kTransposed ? n - 1 - step : step, begin = kTransposed ? i + 1 : 0;
    Vec total[kVectors];
    for (int v = 0; v < kVectors; ++v) total[v] = vector_of(i, v);
    for (int64_t j = begin; j < begin + step; ++j) {
      const float factor = kTransposed ? lower.row(j)[i] : lower.row(i)[j];
      for (int v = 0; v < kVectors; ++v) total[v] += factor * vector_of(j, v);
    }
    for (int v = 0; v < kVectors; ++v)
      store_part(x + i * stride + v * kWidth, total[v], columns - v * kWidth);
  }
}

template <bool kTransposed>
void solve_block(const Matrix<const float>& lower, const Matrix<float>& x) {
  constexpr int kVectors = kSums / 2;
  int64_t c = 0;
  for (; c + kVectors * kWidth <= x.cols; c += kVectors * kWidth)
    solve_columns<kTransposed, kVectors>(lower, x.data + c, x.stride, kVectors * kWidth);
  for (; c < x.cols; c += kWidth) solve_columns<kTransposed, 1>(lower, x.data + c, x.stride, x.cols - c);
}

void gate_gradients(const Matrix<const float>& scores, const Matrix<const float>& grad_scores,
                    const Matrix<const float>& system, const Matrix<const float>& grad_system,
                    const float* starts, float* ends, float* gates) {
  // The gradient of gate t is the sum over all pairs j < t <= i of the gradients of their logarithms of
  // decays. ends[j] is the sum over i >= t, and such sums of sums of the same sign lose no digits.
  const int64_t n = scores.rows;
  float start = starts[n];
  for (int64_t t = n - 1; t >= 0; --t) {
    Vec total = all(0.0f);
    for (int64_t j = 0; j < t; j += kWidth) {
      const int64_t left = t - j;
      const Vec sum = load_part(ends + j, left) +
                      load_part(scores.row(t) + j, left) * load_part(grad_scores.row(t) + j, left) +
                      load_part(system.row(t) + j, left) * load_part(grad_system.row(t) + j, left);
      store_part(ends + j, sum, left);
      total += sum;
    }
    start += starts[t];
    gates[t] = start + sum(total);
  }
}

void channel_block(const Matrix<const float>& q, const Matrix<const float>& r,
                   const Matrix<const float>& factors, const Matrix<float>& k, const Matrix<float>& scores,
                   const Matrix<float>& system) {
  const int64_t dim = q.cols;
  for (int64_t j = 0; j < q.rows; ++j) {
    float* const key = k.row(j);
    for (int64_t i = j; i < q.rows; ++i) {
      Vec score = all(0.0f), read = all(0.0f);
      for (int64_t d = 0; d < dim; d += kWidth) {
        Vec decayed = load_part(key + d, dim - d);
        if (i > j) {
          decayed *= load_part(factors.row(i) + d, dim - d);
          store_part(key + d, decayed, dim - d);
        }
        score += decayed * load_part(q.row(i) + d, dim - d);
        read += decayed * load_part(r.row(i) + d, dim - d);
      }
      scores.row(i)[j] = sum(score);
      system.row(i)[j] = sum(read);
    }
  }
}

void channel_block_gradients(const ChannelBlock& b) {
  const int64_t n = b.q.rows, dim = b.q.cols;
  for (int64_t d = 0; d < dim; d += kWidth) {
    const int64_t left = dim - d;
    const auto at = [=](const Matrix<const float>& x, int64_t i) { return load_part(x.row(i) + d, left); };
    Vec of_gate[kDeltaBlock] = {}, of_q[kDeltaBlock] = {}, of_r[kDeltaBlock] = {};
    for (int64_t j = 0; j < n; ++j) {
      Vec decayed[kDeltaBlock];  // key j, from its own token to each later one
      decayed[j] = at(b.k, j);
      for (int64_t i = j + 1; i < n; ++i) decayed[i] = decayed[i - 1] * at(b.factors, i);
      Vec of_key = at(b.grad_k, j);
      for (int64_t i = n - 1; i >= j; --i) {
        const float of_score = b.grad_scores.row(i)[j], of_system = i > j ? b.grad_system.row(i)[j] : 0.0f;
        of_key += of_score * at(b.q, i) + of_system * at(b.r, i);
        of_q[i] += of_score * decayed[i];
        of_r[i] += of_system * decayed[i];
        if (i == j) break;
        of_gate[i] += of_key * decayed[i];
        of_key *= at(b.factors, i);
      }
      store_part(b.grad_k.row(j) + d, of_key, left);
    }
    for (int64_t i = 0; i < n; ++i) {
      store_part(b.grad_q.row(i) + d, at(b.grad_q, i) + of_q[i], left);
      store_part(b.grad_r.row(i) + d, at(b.grad_r, i) + of_r[i], left);
      store_part(b.grad_gate.row(i) + d, of_gate[i], left);
    }
  }
}

/// Calls work(Sequence<n>, r, rows, c, columns) for tiles of a matrix that are n vectors wide: a few rows at
/// a time from left to right, so that memory is read in the order of its addresses; or the last rows first,
/// which are still in the L1 cache after that.
template <bool kLastFirst, class Work>
inline void for_tiles(int64_t rows, int64_t cols, const Work& work) {
  constexpr int kVectors = kSums / 2;
  constexpr int64_t kColumns = kVectors * kWidth, kRows = 16;
  for (int64_t done = 0; done < rows; done += kRows) {
    const int64_t r = kLastFirst ? (rows - 1 - done) / kRows * kRows : done;
    const int64_t count = rows - r < kRows ? rows - r : kRows;
    int64_t c = 0;
    for (; c + kColumns <= cols; c += kColumns) work(Sequence<kVectors>{}, r, count, c, kColumns);
    for (; c < cols; c += kWidth) work(Sequence<1>{}, r, count, c, cols - c);
  }
}

/// The number of columns from vector x on; a tile of several vectors is whole, which the compiler then knows.
template <int kVectors>
inline int64_t rest(int64_t columns, int x) {
  return kVectors > 1 ? kWidth : columns - x * kWidth;
}

/// Asks for the part of a row of another state. Each of the two passes over a state asks for every second row
/// of the next one, so that memory is never idle.
template <int kVectors>
inline void ask_for_row(const float* row) {
  constexpr int kOfLine = kLine<float> / kWidth;
  for (int x = 0; x < kVectors; x += kOfLine) __builtin_prefetch(row + x * kWidth, 0, 2);
}

template <int kVectors>
inline void look_up_block(const Matrix<const float>& state, const float* k, const float* q, const float* next,
                          float* found, float* read) {
  const int64_t rows = state.rows, columns = state.cols, stride = state.stride;
  const float* const from = state.data;
  Vec by_k[kVectors], by_q[kVectors];
  for (int x = 0; x < kVectors; ++x) {
    by_k[x] = load_part(found + x * kWidth, rest<kVectors>(columns, x));
    by_q[x] = load_part(read + x * kWidth, rest<kVectors>(columns, x));
  }
  for (int64_t r = 0; r < rows; ++r) {
    if (next && r % 2 == 0) ask_for_row<kVectors>(next + r * stride);
    for (int x = 0; x < kVectors; ++x) {
      const Vec numbers = load_part(from + r * stride + x * kWidth, rest<kVectors>(columns, x));
      by_k[x] += k[r] * numbers;
      by_q[x] += q[r] * numbers;
    }
  }
  for (int x = 0; x < kVectors; ++x) {
    store_part(found + x * kWidth, by_k[x], rest<kVectors>(columns, x));
    store_part(read + x * kWidth, by_q[x], rest<kVectors>(columns, x));
  }
}

void look_up(const Matrix<const float>& state, const float* k, const float* q, const float* next,
             float* found, float* read) {
  for (int64_t c = 0; c < state.cols; c += kWidth) {
    store_part(found + c, all(0.0f), state.cols - c);
    store_part(read + c, all(0.0f), state.cols - c);
  }
  for_tiles<false>(
      state.rows, state.cols,
      [=]<int kVectors>(Sequence<kVectors>, int64_t r, int64_t rows, int64_t c, int64_t columns) {
        look_up_block<kVectors>(state.block(r, rows, c, columns), k + r, q + r,
                                next ? next + r * state.stride + c : nullptr, found + c, read + c);
      });
}

/// The columns [c, c + kVectors * kWidth) of a few rows.
template <int kVectors>
inline void update_block(const Matrix<const float>& state, const float* factors, const float* k,
                         const float* change, const float* next, const Matrix<float>& to) {
  const int64_t rows = state.rows, columns = state.cols, stride = state.stride, to_stride = to.stride;
  const float* const from = state.data;
  float* const out = to.data;
  Vec of_row[kVectors];
  for (int x = 0; x < kVectors; ++x) of_row[x] = load_part(change + x * kWidth, rest<kVectors>(columns, x));
  for (int64_t r = 0; r < rows; ++r) {
    const float factor = factors[r], key = k[r];  // the stores could change them
    if (next && r % 2 == 1) ask_for_row<kVectors>(next + r * stride);
    for (int x = 0; x < kVectors; ++x) {
      const Vec numbers = load_part(from + r * stride + x * kWidth, rest<kVectors>(columns, x));
      store_part(out + r * to_stride + x * kWidth, numbers * factor + of_row[x] * key,
                 rest<kVectors>(columns, x));
    }
  }
}

void update(const Matrix<const float>& state, const float* factors, const float* k, const float* change,
            const float* next, const Matrix<float>& to) {
  for_tiles<true>(state.rows, state.cols,
                  [=]<int kVectors>(Sequence<kVectors>, int64_t r, int64_t rows, int64_t c, int64_t columns) {
                    update_block<kVectors>(state.block(r, rows, c, columns), factors + r, k + r, change + c,
                                           next ? next + r * state.stride + c : nullptr,
                                           to.block(r, rows, c, columns));
                  });
}

ATTENTIVE_SIMD_END

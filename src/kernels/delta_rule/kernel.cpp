#include "kernels/delta_rule.h"

// The gated delta rule on the CPU, in chunks of tokens. Of one head, with S the state before a chunk, its
// tokens i, j, decays a_i = exp(gate_i), and r_i = -k_i:
//
//   D_ij = a_{j+1} ... a_i                decays from token to token
//   P_ij = q_i . k_j D_ij,  j <= i        what query i reads of key j
//   N_ij = r_i . k_j D_ij,  j < i         what key i takes away of key j
//   b_i  = a_1 ... a_i,  e_j = D_nj       decays from the start, and to the end
//
//   X = V + (b r) S + N U,  U = beta X    a triangular system for X: what each token adds
//   O = scale ((b q) S + P U)
//   S = b_n S + (e k)^T U
//
// The backward pass keeps S and X of every chunk of one head, and has, with Y = beta Z and dS that of the
// state after the chunk:
//
//   Z  = P^T dO + (e k) dS + N^T Y        the transposed system; Z is the gradient of U
//   dP = dO U^T,  dN = Y U^T,  d(e k) = U dS^T,  dbeta = rowsum(Z X),  dV = Y
//   dq = (D dP) k + b dO S^T,  dr = (D dN) k + b Y S^T,  dk = (D dP)^T q + (D dN)^T r + e d(e k) - dr
//   dS = b_n dS + (b q)^T dO + (b r)^T Y
//
// Every decay is a product of factors, and the gradient of gate t sums the terms of all pairs j < t <= i, so
// that nothing is divided by a decay and no sum is subtracted from another.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/call_tensors.h"
#include "kernels/delta_rule/functions.h"
#include "kernels/gemm/operands.h"
#include "kernels/gemm/products.h"
#include "kernels/gemm/scratch.h"
#include "kernels/simd/elementwise.h"
#include "kernels/simd/selection.h"
#include "kernels/simd/threads.h"

namespace attentive::kernels::cpu {
namespace {

// Tokens of a chunk. The backward pass keeps a state for each, so it has fewer.
constexpr int64_t kForwardChunk = 32, kBackwardChunk = 64;
constexpr int64_t kFewTokens = 4;     // up to which the recurrence takes less time
constexpr int64_t kStepColumns = 64;  // of the state, that a thread takes of a single token if heads are few

void fill(const Matrix<float>& x, float value) {
  for (int64_t r = 0; r < x.rows; ++r) std::fill_n(x.row(r), x.cols, value);
}

// out = lhs * rhs if there is such a product, else 0
void multiply(bool any, const Matrix<const float>& lhs, const Rhs<const float>& rhs, const Matrix<float>& out,
              const BandBounds& reach = {}) {
  if (any) return gemm(lhs, rhs, out, Sums::Begin, reach);
  fill(out, 0.0f);
}

void copy(const float* from, float* to, int64_t n) {
  std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
}

// to = x * factors; `x` and `to` may be the same row.
void store_product(const float* x, const float* factors, float* to, int64_t n) {
  if (x != to) copy(x, to, n);
  elementwise().multiply_by(factors, to, n);
}

Scratch& fresh_scratch() {
  Scratch& scratch = Scratch::of_this_thread();
  scratch.reset();
  return scratch;
}

// A call, as numbers and pointers. Pointers to what is absent are null.
template <class T>
struct DeltaCall {
  const DeltaRule& rule;
  const DeltaTensors& x;

  int64_t sequences = rule.sequences(x.v.size(0)), heads = x.v.size(1), group = x.groups();
  int64_t Dk = x.k.size(3), Dv = x.v.size(3), tokens = x.v.size(2);
  const int64_t* offsets = rule.offsets.empty() ? nullptr : rule.offsets.data();
  float scale = static_cast<float>(rule.scale), eps = static_cast<float>(rule.normalize_eps.value_or(0.0));
  bool normalize = rule.normalize_eps.has_value(), delta = rule.delta, channel_gates = x.channel_gates();

  Strided<const T> q = rows_of<const T>(x.q), k = rows_of<const T>(x.k), v = rows_of<const T>(x.v);
  Strided<const float> gate = rows_of<const float>(x.gate), beta = rows_of<const float>(x.beta);
  const float* state = data_of<const float>(x.state);

  int64_t gates() const { return channel_gates ? Dk : 1; }  // of a token
  bool worth_threads() const { return tokens * sequences * heads * Dk * Dv > (int64_t{1} << 18); }
};

// The gradients of the results, and where those of the tensors are written. Absent ones are not wanted.
template <class T>
struct CallGradients {
  const DeltaResult& incoming;
  const DeltaGradients& to;

  Strided<const T> output = rows_of<const T>(incoming.output);
  const float* state = data_of<const float>(incoming.state);
  Strided<float> q = rows_of<float>(to[0]), k = rows_of<float>(to[1]);
  Strided<T> v = rows_of<T>(to[2]);
  Strided<float> gate = rows_of<float>(to[3]), beta = rows_of<float>(to[4]);
  float* grad_state = data_of<float>(to[5]);
};

// One head of one sequence.
template <class T>
struct Head {
  const DeltaCall<T>& call;
  int64_t sequence, head;
  int64_t item = call.offsets ? 0 : sequence, first = call.offsets ? call.offsets[sequence] : 0;
  int64_t length = call.offsets ? call.offsets[sequence + 1] - first : call.tokens;
  int64_t key_head = head / call.group, state_size = call.Dk * call.Dv;

  int64_t state_offset() const { return (sequence * call.heads + head) * state_size; }
  const float* initial_state() const { return call.state ? call.state + state_offset() : nullptr; }

  // Rows of q or k from a token on, widened and normalised; returns the last one's inverse norm.
  float load(const Strided<const T>& x, int64_t token, float* to) const {
    elementwise().convert(x.at(item, key_head, first + token), to, call.Dk);
    if (!call.normalize) return 1.0f;
    const float inverse = 1.0f / std::sqrt(elementwise().dot(to, to, call.Dk) + call.eps);
    elementwise().store_scaled(to, inverse, to, call.Dk);
    return inverse;
  }
  void load_values(int64_t token, const Matrix<float>& to) const {
    for (int64_t i = 0; i < to.rows; ++i) elementwise().convert(row(call.v, token + i), to.row(i), to.cols);
  }
  // The row, or number, of a token among those of the value heads.
  template <class Number>
  Number* row(const Strided<Number>& x, int64_t token) const {
    return x.at(item, head, first + token);
  }
  // Asks for the rows of a later token, which lie on pages of their own.
  void prefetch(int64_t token) const {
    if (token >= length) return;
    prefetch_row(call.q.at(item, key_head, first + token), 1, call.Dk);
    prefetch_row(call.k.at(item, key_head, first + token), 1, call.Dk);
    prefetch_row(row(call.v, token), 1, call.Dv);
  }
  float beta(int64_t token) const { return call.beta ? *row(call.beta, token) : 1.0f; }
  // exp(gate): Dk numbers, or one.
  void decays(int64_t token, float* to) const {
    if (call.gate) {
      delta_functions().decays(row(call.gate, token), to, call.gates());
    } else {
      std::fill_n(to, call.gates(), 1.0f);
    }
  }
};

// The products of a chunk of at most `size` tokens. Rows beyond the last token are not used.
template <class T>
struct Chunk {
  const DeltaCall<T>& call;
  Scratch& scratch;
  const int64_t size;
  const bool for_gradients;

  int64_t n = 0;
  Matrix<float> q = of_tokens(call.Dk), k = of_tokens(call.Dk), r = of_tokens(call.Dk);  // q_i, k_j and r_i
  Matrix<float> start = scratch.matrix<float>(2 * size, call.Dk);        // start_q, with start_r below it
  Matrix<float> start_q = {}, start_r = {}, end_k = of_tokens(call.Dk);  // b_i q_i, b_i r_i and e_j k_j
  Matrix<float> factors = of_tokens(call.gates()), starts = of_tokens(call.gates());  // a_i and b_i
  // P, N and, with a gate per head, D; N beta
  Matrix<float> scores = of_tokens(size), system = of_tokens(size), decays = of_tokens(size),
                scaled = of_tokens(size);
  Matrix<float> keys = scratch.matrix<float>(call.Dk, size);  // transposed
  // With gates per channel: the decays from the start of a token's block, which q and r have in local_q and
  // local_r; and for the gradients, the keys before each block, decayed to its start.
  Matrix<float> local = of_channels(size), local_q = of_channels(size), local_r = of_channels(size);
  Matrix<float> earlier = of_channels(for_gradients ? size / kDeltaBlock * size : 0);
  float *beta = scratch.take<float>(size), *inverse_q = scratch.take<float>(size),
        *inverse_k = scratch.take<float>(size);

  Matrix<float> of_tokens(int64_t columns) { return scratch.matrix<float>(size, columns); }
  Matrix<float> of_channels(int64_t rows) {
    return scratch.matrix<float>(call.channel_gates ? rows : 0, call.Dk);
  }

  // Reads the tokens [token, token + n) and computes their products.
  void load(const Head<T>& head, int64_t token, int64_t count) {
    n = count;
    start_q = start.part(0, n);
    start_r = start.part(n, n);
    for (int64_t i = 0; i < n; ++i) {
      inverse_k[i] = head.load(call.k, token + i, k.row(i));
      elementwise().store_scaled(k.row(i), -1.0f, r.row(i), call.Dk);
      inverse_q[i] = head.load(call.q, token + i, q.row(i));
      beta[i] = head.beta(token + i);
      head.decays(token + i, factors.row(i));
      head.prefetch(token + size + i);
      copy(factors.row(i), starts.row(i), call.gates());
      if (i > 0) elementwise().multiply_by(starts.row(i - 1), starts.row(i), call.gates());
      decay_row(i, q.row(i), start_q.row(i));
      decay_row(i, r.row(i), start_r.row(i));
    }
    if (call.channel_gates) {
      by_channels();
    } else {
      by_heads();
    }
  }

  // x, times the decays from the start of the chunk to token i.
  void decay_row(int64_t i, const float* x, float* to) const {
    if (!call.channel_gates) return elementwise().store_scaled(x, *starts.row(i), to, call.Dk);
    store_product(x, starts.row(i), to, call.Dk);
  }

  // Decays a state (Dk, Dv) to the end of the chunk.
  void decay_state(const Matrix<float>& state) const {
    const float* const decay = starts.row(n - 1);
    if (!call.channel_gates)
      return elementwise().store_scaled(state.data, *decay, state.data, state.rows * state.cols);
    for (int64_t d = 0; d < state.rows; ++d)
      elementwise().store_scaled(state.row(d), decay[d], state.row(d), state.cols);
  }

  // x = x + N beta x, or x = x + N^T beta x, solved in place by blocks.
  void solve(const Matrix<float>& x) {
    for (int64_t i = 0; i < n; ++i) store_product(system.row(i), beta, scaled.row(i), n);
    for (int64_t b = 0; b < n; b += kDeltaBlock) {
      const int64_t rows = std::min(kDeltaBlock, n - b);
      if (b > 0) gemm(scaled.block(b, rows, 0, b), as_rhs(x.part(0, b)), x.part(b, rows), Sums::Continue);
      delta_functions().solve(scaled.block(b, rows, b, rows), x.part(b, rows));
    }
  }
  void solve_transposed(const Matrix<float>& x) {
    for (int64_t i = 0; i < n; ++i) elementwise().store_scaled(system.row(i), beta[i], scaled.row(i), n);
    for (int64_t b = (n - 1) / kDeltaBlock * kDeltaBlock; b >= 0; b -= kDeltaBlock) {
      const int64_t rows = std::min(kDeltaBlock, n - b), after = b + rows;
      if (after < n)
        products().add_transposed(scaled.block(after, n - after, b, rows), as_rhs(x.part(after, n - after)),
                                  x.part(b, rows), {});
      delta_functions().solve_transposed(scaled.block(b, rows, b, rows), x.part(b, rows));
    }
  }

  Matrix<float> part(const Matrix<float>& x) const { return x.block(0, n, 0, std::min(n, x.cols)); }

  void by_heads() {
    const Matrix<float> columns{keys.data, call.Dk, n, n}, D = part(decays);
    products().transpose(Matrix<const float>(k.part(0, n)), columns);
    delta_functions().decays_of_pairs(factors.data, D);
    gemm(q.part(0, n), as_rhs(columns), part(scores), Sums::Begin, {.columns = 1});
    delta_functions().take_lower(D, 1, part(scores));
    multiply(call.delta, r.part(0, n), as_rhs(columns), part(system), {.columns = 0});
    if (call.delta) delta_functions().take_lower(D, 0, part(system));
    for (int64_t j = 0; j < n; ++j)
      elementwise().store_scaled(k.row(j), D.row(n - 1)[j], end_k.row(j), call.Dk);
  }

  // By blocks of tokens: the decays between a token of a block and an earlier one are those from the start of
  // the block, times those up to it. end_k holds the keys decayed to the last token that was visited.
  void by_channels() {
    const int64_t Dk = call.Dk;
    copy(k.data, end_k.data, n * Dk);
    for (int64_t b = 0; b < n; b += kDeltaBlock) {
      const int64_t rows = std::min(kDeltaBlock, n - b);
      for (int64_t i = b; i < b + rows; ++i) {
        copy(factors.row(i), local.row(i), Dk);
        if (i > b) elementwise().multiply_by(local.row(i - 1), local.row(i), Dk);
        store_product(q.row(i), local.row(i), local_q.row(i), Dk);
        store_product(r.row(i), local.row(i), local_r.row(i), Dk);
      }
      if (b > 0) {
        const Matrix<float> columns{keys.data, Dk, b, b};
        products().transpose(Matrix<const float>(end_k.part(0, b)), columns);
        gemm(local_q.part(b, rows), as_rhs(columns), scores.block(b, rows, 0, b), Sums::Begin);
        gemm(local_r.part(b, rows), as_rhs(columns), system.block(b, rows, 0, b), Sums::Begin);
        if (for_gradients) copy(end_k.data, keys_before(b).data, b * Dk);
        for (int64_t j = 0; j < b; ++j) elementwise().multiply_by(local.row(b + rows - 1), end_k.row(j), Dk);
      }
      delta_functions().channel_block(q.part(b, rows), r.part(b, rows), factors.part(b, rows),
                                      end_k.part(b, rows), scores.block(b, rows, b, rows),
                                      system.block(b, rows, b, rows));
    }
    delta_functions().take_lower({}, 1, part(scores));
    delta_functions().take_lower({}, 0, part(system));
  }

  Matrix<float> keys_before(int64_t block) const { return earlier.part(block / kDeltaBlock * size, block); }
};

// The tokens of a head one after another, on some columns of its state.
template <class T>
void by_tokens(const Head<T>& head, int64_t column, int64_t columns, const Strided<T>& output, float* last) {
  const auto& call = head.call;
  Scratch& scratch = fresh_scratch();
  const int64_t Dk = call.Dk;
  float *const q = scratch.take<float>(Dk), *const k = scratch.take<float>(Dk),
               *const factors = scratch.take<float>(Dk);
  float *const start_q = scratch.take<float>(Dk), *const start_k = scratch.take<float>(Dk);
  float *const found = scratch.take<float>(columns), *const read = scratch.take<float>(columns),
               *const change = scratch.take<float>(columns);
  const Matrix<float> to{last + column, Dk, columns, call.Dv};
  const float* const initial = head.initial_state();
  if (!initial) fill(to, 0.0f);
  Matrix<const float> state{initial ? initial + column : to.data, Dk, columns, call.Dv};
  const bool last_head = head.head + 1 == call.heads && head.sequence + 1 == call.sequences;
  const float* const next = last_head ? nullptr : state.data + head.state_size;
  for (int64_t t = 0; t < head.length; ++t, state = to) {
    head.load(call.k, t, k);
    head.load(call.q, t, q);
    head.decays(t, factors);
    if (!call.channel_gates) std::fill_n(factors, Dk, *factors);
    store_product(q, factors, start_q, Dk);
    store_product(k, factors, start_k, Dk);
    const float* const asked = t + 1 < head.length ? nullptr : next;
    delta_functions().look_up(state, start_k, start_q, asked, found, read);
    const T* const value = head.row(call.v, t) + column;
    elementwise().convert(value, change, columns);
    const float beta = head.beta(t), along = elementwise().dot(q, k, Dk);
    for (int64_t c = 0; c < columns; ++c) {
      change[c] = beta * (change[c] - (call.delta ? found[c] : 0.0f));
      read[c] += along * change[c];
    }
    delta_functions().update(state, factors, k, change, asked, to);
    elementwise().store_scaled(read, call.scale, head.row(output, t) + column, columns);
  }
}

// Copies the matrix that begins at `from`, or zeros if there is none; returns whether there is one.
bool begin_state(const float* from, const Matrix<float>& state) {
  if (from) {
    copy(from, state.data, state.rows * state.cols);
  } else {
    fill(state, 0.0f);
  }
  return from;
}

template <class T>
void by_chunks(const Head<T>& head, const Strided<T>& output, float* last) {
  const auto& call = head.call;
  Scratch& scratch = fresh_scratch();
  const int64_t Dk = call.Dk, Dv = call.Dv;
  Chunk<T> chunk{call, scratch, kForwardChunk, /*for_gradients=*/false};
  const auto rows = scratch.matrix<float>(2 * kForwardChunk, Dv), state = scratch.matrix<float>(Dk, Dv);
  bool any = begin_state(head.initial_state(), state);
  for (int64_t t = 0; t < head.length; t += kForwardChunk, any = true) {
    const int64_t n = std::min(kForwardChunk, head.length - t);
    const auto read = rows.part(0, n), added = rows.part(n, n);
    for (int64_t i = 0; i < n; ++i) prefetch_to_write(head.row(output, t + i), Dv);
    chunk.load(head, t, n);
    head.load_values(t, added);
    fill(read, 0.0f);
    // Both read the state in one product.
    const int64_t readers = call.delta ? 2 * n : n;
    if (any) gemm(chunk.start.part(0, readers), as_rhs(state), rows.part(0, readers), Sums::Continue);
    if (call.delta) chunk.solve(added);
    for (int64_t i = 0; i < n; ++i) elementwise().store_scaled(added.row(i), chunk.beta[i], added.row(i), Dv);
    // The product multiplies zeros with what later tokens add; NaN and infinity among that must not come
    // through.
    const int64_t step = elementwise().all_finite(Matrix<const float>(added)) ? n : 1;
    for (int64_t i = 0; i < n; i += step)
      gemm(chunk.scores.block(i, step, 0, i + step), as_rhs(added.part(0, i + step)), read.part(i, step),
           Sums::Continue, {.inner = 1 + i});
    for (int64_t i = 0; i < n; ++i)
      elementwise().store_scaled(read.row(i), call.scale, head.row(output, t + i), Dv);
    if (any) chunk.decay_state(state);
    products().add_transposed(chunk.end_k.part(0, n), as_rhs(added), state, {});
  }
  copy(state.data, last, head.state_size);
}

// The gradients of one head.
template <class T>
class Backward {
 public:
  Backward(const Head<T>& head, const CallGradients<T>& gradients) : head_(head), g_(gradients) {}

  void run() {
    keep_states();
    begin_state(g_.state ? g_.state + head_.state_offset() : nullptr, state_);
    for (int64_t c = chunks() - 1; c >= 0; --c) chunk_gradients(c);
    if (g_.grad_state) copy(state_.data, g_.grad_state + head_.state_offset(), head_.state_size);
  }

 private:
  int64_t chunks() const { return (head_.length + kBackwardChunk - 1) / kBackwardChunk; }
  int64_t count(int64_t c) const { return std::min(kBackwardChunk, head_.length - c * kBackwardChunk); }
  bool has_state(int64_t c) const { return c > 0 || call_.state; }
  Matrix<float> state_before(int64_t c) const { return states_.part(c * Dv_, Dv_); }  // transposed

  // From the front: the state before each chunk, and X.
  void keep_states() {
    begin_state(head_.initial_state(), state_);
    for (int64_t c = 0; c < chunks(); ++c) {
      const int64_t n = count(c), t = c * kBackwardChunk;
      const auto x = added_.part(t, n);
      chunk_.load(head_, t, n);
      products().transpose(Matrix<const float>(state_), state_before(c));
      head_.load_values(t, x);
      if (call_.delta) {
        if (has_state(c)) gemm(chunk_.start_r, as_rhs(state_), x, Sums::Continue);
        chunk_.solve(x);
      }
      if (c + 1 == chunks()) return;
      for (int64_t i = 0; i < n; ++i) elementwise().store_scaled(x.row(i), chunk_.beta[i], u_.row(i), Dv_);
      if (has_state(c)) chunk_.decay_state(state_);
      products().add_transposed(chunk_.end_k.part(0, n), as_rhs(u_.part(0, n)), state_, {});
    }
  }

  void chunk_gradients(int64_t c) {
    const int64_t n = count(c), t = c * kBackwardChunk;
    const bool from_state = has_state(c), to_state = c + 1 < chunks() || g_.state;
    chunk_.load(head_, t, n);
    const auto x = added_.part(t, n), u = u_.part(0, n), z = z_.part(0, n), y = y_.part(0, n),
               out = out_.part(0, n), before = state_before(c);
    const auto q = q_.part(0, n), r = r_.part(0, n), k = k_.part(0, n);
    const auto scores = scores_.block(0, n, 0, n), system = system_.block(0, n, 0, n);
    if (!g_.output) fill(out, 0.0f);
    for (int64_t i = 0; i < n; ++i) {
      elementwise().store_scaled(x.row(i), chunk_.beta[i], u.row(i), Dv_);
      if (!g_.output) continue;
      elementwise().convert(head_.row(g_.output, t + i), out.row(i), Dv_);
      elementwise().store_scaled(out.row(i), call_.scale, out.row(i), Dv_);
    }
    const Matrix<float> u_transposed{u_transposed_, Dv_, n, n};
    products().transpose(Matrix<const float>(u), u_transposed);
    gemm(out, as_rhs(u_transposed), scores, Sums::Begin, {.columns = 1});
    // dU and, where a state follows, the gradient of the decayed keys
    if (to_state) products().transpose(Matrix<const float>(state_), state_transposed_);
    multiply(to_state, chunk_.end_k.part(0, n), as_rhs(state_), z);
    multiply(to_state, u, as_rhs(state_transposed_), k);
    products().add_transposed(chunk_.scores.block(0, n, 0, n), as_rhs(out), z, {.first_inner = 0});
    if (call_.delta) chunk_.solve_transposed(z);
    for (int64_t i = 0; i < n; ++i) {
      if (g_.beta) *head_.row(g_.beta, t + i) = elementwise().dot(z.row(i), x.row(i), Dv_);
      elementwise().store_scaled(z.row(i), chunk_.beta[i], y.row(i), Dv_);
      elementwise().convert(y.row(i), head_.row(g_.v, t + i), Dv_);
    }
    if (!call_.delta) fill(y, 0.0f);
    multiply(call_.delta, y, as_rhs(u_transposed), system, {.columns = 0});
    multiply(from_state, out, as_rhs(before), q);
    multiply(from_state, y, as_rhs(before), r);
    std::fill_n(of_state_, Dk_, 0.0f);
    if (from_state && to_state) {
      for (int64_t e = 0; e < Dv_; ++e)
        delta_functions().add_products(before.row(e), state_transposed_.row(e), of_state_, Dk_);
    }
    if (call_.channel_gates) {
      by_channels(n, scores, system);
    } else {
      by_heads(n, scores, system);
    }
    for (int64_t i = 0; i < n; ++i) write_row(t, i);
    chunk_.decay_state(state_);
    products().add_transposed(chunk_.start_q, as_rhs(out), state_, {});
    if (call_.delta) products().add_transposed(chunk_.start_r, as_rhs(y), state_, {});
  }

  void by_heads(int64_t n, const Matrix<float>& scores, const Matrix<float>& system) {
    const auto D = chunk_.decays.block(0, n, 0, n);
    for (int64_t i = 0; i < n; ++i) {
      ends_[i] = elementwise().dot(chunk_.end_k.row(i), k_.row(i), Dk_);
      starts_[i] = elementwise().dot(chunk_.start_q.row(i), q_.row(i), Dk_) +
                   elementwise().dot(chunk_.start_r.row(i), r_.row(i), Dk_);
    }
    starts_[n] = 0.0f;
    for (int64_t d = 0; d < Dk_; ++d) starts_[n] += of_state_[d];
    starts_[n] *= *chunk_.starts.row(n - 1);
    if (g_.gate)
      delta_functions().gate_gradients(chunk_.scores.block(0, n, 0, n), scores,
                                       chunk_.system.block(0, n, 0, n), system, starts_, ends_, gates_.data);
    delta_functions().take_lower(D, 1, scores);
    delta_functions().take_lower(D, 0, system);
    for (int64_t i = 0; i < n; ++i) {
      chunk_.decay_row(i, q_.row(i), q_.row(i));
      chunk_.decay_row(i, r_.row(i), r_.row(i));
      elementwise().store_scaled(k_.row(i), D.row(n - 1)[i], k_.row(i), Dk_);
    }
    gemm(scores, as_rhs(chunk_.k.part(0, n)), q_.part(0, n), Sums::Continue, {.inner = 1});
    products().add_transposed(scores, as_rhs(chunk_.q.part(0, n)), k_.part(0, n), {.first_inner = 0});
    if (!call_.delta) return;
    gemm(system, as_rhs(chunk_.k.part(0, n)), r_.part(0, n), Sums::Continue, {.inner = 0});
    products().add_transposed(system, as_rhs(chunk_.r.part(0, n)), k_.part(0, n), {.first_inner = 1});
  }

  void by_channels(int64_t n, const Matrix<float>& scores, const Matrix<float>& system) {
    const auto& row = elementwise();
    const auto& delta = delta_functions();
    delta.take_lower({}, 1, scores);
    delta.take_lower({}, 0, system);
    for (int64_t i = 0; i < n; ++i) {
      std::fill_n(gates_.row(i), Dk_, 0.0f);
      delta.add_products(chunk_.start_q.row(i), q_.row(i), gates_.row(i), Dk_);
      delta.add_products(chunk_.start_r.row(i), r_.row(i), gates_.row(i), Dk_);
      chunk_.decay_row(i, q_.row(i), q_.row(i));
      chunk_.decay_row(i, r_.row(i), r_.row(i));
    }
    // The terms of the state: those of all tokens from a gate's on.
    row.multiply_by(chunk_.starts.row(n - 1), of_state_, Dk_);
    for (int64_t b = (n - 1) / kDeltaBlock * kDeltaBlock; b >= 0; b -= kDeltaBlock) {
      const int64_t rows = std::min(kDeltaBlock, n - b), after = b + rows;
      std::fill_n(carried_, Dk_, 0.0f);
      fill(rows_, 0.0f);
      if (b > 0) {
        // Keys before the block: decayed to its end, and to its start.
        const auto at_end = after < n ? chunk_.keys_before(after) : chunk_.end_k,
                   at_start = chunk_.keys_before(b);
        for (int64_t j = 0; j < b; ++j) {
          delta.add_products(k_.row(j), at_end.row(j), carried_, Dk_);
          row.multiply_by(chunk_.local.row(after - 1), k_.row(j), Dk_);
        }
        using Pair = std::array<const Matrix<float>*, 5>;
        for (const auto& [products_of, local, of_block, given, all] :
             {Pair{&scores, &chunk_.local_q, &block_q_, &chunk_.q, &q_},
              Pair{&system, &chunk_.local_r, &block_r_, &chunk_.r, &r_}}) {
          const auto earlier = products_of->block(b, rows, 0, b);
          products().add_transposed(earlier, as_rhs(local->part(b, rows)), k_.part(0, b), {});
          gemm(earlier, as_rhs(at_start), of_block->part(0, rows), Sums::Begin);
          for (int64_t i = 0; i < rows; ++i) {
            row.multiply_by(chunk_.local.row(b + i), of_block->row(i), Dk_);
            delta.add_products(given->row(b + i), of_block->row(i), rows_.row(i), Dk_);
            row.add(of_block->row(i), all->row(b + i), Dk_);
          }
        }
      }
      delta.channel_block_gradients({.q = chunk_.q.part(b, rows),
                                     .r = chunk_.r.part(b, rows),
                                     .k = chunk_.k.part(b, rows),
                                     .factors = chunk_.factors.part(b, rows),
                                     .grad_scores = scores.block(b, rows, b, rows),
                                     .grad_system = system.block(b, rows, b, rows),
                                     .grad_q = q_.part(b, rows),
                                     .grad_r = r_.part(b, rows),
                                     .grad_k = k_.part(b, rows),
                                     .grad_gate = inside_.part(0, rows)});
      for (int64_t i = rows - 1; i >= 0; --i) {
        float* const gate = gates_.row(b + i);
        row.add(gate, of_state_, Dk_);
        row.add(rows_.row(i), carried_, Dk_);
        copy(of_state_, gate, Dk_);
        row.add(carried_, gate, Dk_);
        row.add(inside_.row(i), gate, Dk_);
      }
    }
  }

  // Writes the gradients of token i: of r = -k with those of k, before both were normalised.
  void write_row(int64_t t, int64_t i) {
    elementwise().store_scaled(r_.row(i), -1.0f, r_.row(i), Dk_);
    elementwise().add(r_.row(i), k_.row(i), Dk_);
    float *const to_q = head_.row(g_.q, t + i), *const to_k = head_.row(g_.k, t + i);
    if (call_.normalize) {
      delta_functions().norm_gradient(chunk_.q.row(i), q_.row(i), chunk_.inverse_q[i], to_q, Dk_);
      delta_functions().norm_gradient(chunk_.k.row(i), k_.row(i), chunk_.inverse_k[i], to_k, Dk_);
    } else {
      copy(q_.row(i), to_q, Dk_);
      copy(k_.row(i), to_k, Dk_);
    }
    if (g_.gate) copy(gates_.row(i), head_.row(g_.gate, t + i), gates_.cols);
  }

  Matrix<float> matrix(int64_t rows, int64_t columns) { return scratch_.matrix<float>(rows, columns); }
  Matrix<float> of_channels() { return matrix(call_.channel_gates ? kDeltaBlock : 0, Dk_); }

  const Head<T>& head_;
  const CallGradients<T>& g_;
  const DeltaCall<T>& call_ = head_.call;
  const int64_t Dk_ = call_.Dk, Dv_ = call_.Dv, size_ = kBackwardChunk;
  Scratch& scratch_ = fresh_scratch();
  Chunk<T> chunk_{call_, scratch_, size_, /*for_gradients=*/true};
  // S before each chunk, transposed, and X of all tokens
  Matrix<float> states_ = matrix(std::max<int64_t>(chunks(), 1) * Dv_, Dk_),
                added_ = matrix(head_.length, Dv_);
  Matrix<float> state_ = matrix(Dk_, Dv_), state_transposed_ = matrix(Dv_, Dk_);  // S, then dS
  // U, Z, Y and scale dO
  Matrix<float> u_ = matrix(size_, Dv_), z_ = matrix(size_, Dv_), y_ = matrix(size_, Dv_),
                out_ = matrix(size_, Dv_);
  float* u_transposed_ = scratch_.take<float>(Dv_ * size_);
  // Gradients
  Matrix<float> q_ = matrix(size_, Dk_), r_ = matrix(size_, Dk_), k_ = matrix(size_, Dk_);
  Matrix<float> scores_ = matrix(size_, size_), system_ = matrix(size_, size_),
                gates_ = matrix(size_, call_.gates());
  float *starts_ = scratch_.take<float>(size_ + 1), *ends_ = scratch_.take<float>(size_),
        *of_state_ = scratch_.take<float>(Dk_), *carried_ = scratch_.take<float>(Dk_);
  Matrix<float> block_q_ = of_channels(), block_r_ = of_channels(), inside_ = of_channels(),
                rows_ = of_channels();
};

}  // namespace

void delta_forward(const DeltaRule& rule, const DeltaTensors& x, const DeltaResult& to) {
  for_numbers(x.v.scalar_type(), [&](auto number) {
    using T = decltype(number);
    auto* const states = data_of<float>(to.state);  // first: a tensor that is written may move
    const auto output = rows_of<T>(to.output);
    const DeltaCall<T> call{rule, x};
    const int64_t heads = call.sequences * call.heads;
    const bool few = !call.offsets && call.tokens > 0 && call.tokens <= kFewTokens;
    const int64_t columns = few && heads < 16 ? kStepColumns : std::max<int64_t>(call.Dv, 1);
    const int64_t parts = (call.Dv + columns - 1) / columns;
    for_each_item(heads * parts, call.worth_threads(), [&](int64_t task) {
      const int64_t column = task % parts * columns, index = task / parts;
      const Head<T> head{call, index / call.heads, index % call.heads};
      float* const last = states + head.state_offset();
      if (few) {
        by_tokens(head, column, std::min(columns, call.Dv - column), output, last);
      } else {
        by_chunks(head, output, last);
      }
    });
  });
}

void delta_backward(const DeltaRule& rule, const DeltaTensors& x, const DeltaResult& incoming,
                    const DeltaGradients& to) {
  for_numbers(x.v.scalar_type(), [&](auto number) {
    using T = decltype(number);
    const DeltaCall<T> call{rule, x};
    const CallGradients<T> gradients{incoming, to};
    for_each_item(call.sequences * call.heads, call.worth_threads(), [&](int64_t index) {
      const Head<T> head{call, index / call.heads, index % call.heads};
      Backward<T>(head, gradients).run();
    });
  });
}

}  // namespace attentive::kernels::cpu

#pragma once

// The buffers of one thread that computes tiles of the backward pass.

#include "kernels/attention/backward_heads.h"

namespace attentive::kernels::cpu {

/// The rows of the matrices are keys of the block, unless stated otherwise.
template <class T>
struct BackwardWorkspace {
  Matrix<float> scores, products;  // Sᵀ and dPᵀ; for float, overwritten by Pᵀ and dSᵀ
  Matrix<T> weights, gradients;    // Pᵀ and dSᵀ
  Rhs<T> gradient_pairs;           // bfloat16: dSᵀ as an rhs
  Matrix<float> grad_k, grad_v;
  T *k_copy, *v_copy;
  Matrix<T> k_transposed;
  Matrix<T> cleaned;                     // Kᵀ with zeros for keys that are hidden and not finite
  Matrix<uint16_t> drop;                 // a row per group of 16 keys, a column per query of the panel
  Matrix<uint8_t> keep;                  // a row per key, a column per query of the panel
  Matrix<float> bias;                    // likewise
  Matrix<float> grad_weights;            // likewise
  Matrix<float> logits;                  // gradients of the logits, likewise
  Matrix<float> own_inputs;              // inputs of the program's own scores, likewise
  Matrix<float> slopes;                  // derivatives of these scores by q·k, for a strip of keys
  const detail::CapturedView* captured;  // of the lane; null: no gradients of captured tensors
  Matrix<float> rows;  // a row per query of the panel: pairs on their way to or from the caller
};

/// Tiles of a call may read or write these besides the operands of products.
struct TileTerms {
  bool grad_weights, logits;
  bool pairs;                            ///< whether pairs are read from or added to tensors of the caller
  const detail::CapturedView* captured;  ///< of the lane; null: no gradients of captured tensors
};

/// Takes the buffers from this thread's scratch memory.
template <class T>
BackwardWorkspace<T> backward_workspace(const CpuArguments& call, const BackwardTiles& tiles,
                                        const TileTerms& terms) {
  Scratch& scratch = Scratch::of_this_thread();
  scratch.reset();
  const int64_t keys = tiles.keys, queries = tiles.queries;
  const int64_t stride = queries + 16;  // not a power of two, for which rows would share the same cache sets
  BackwardWorkspace<T> work{};
  work.scores = scratch.matrix<float>(keys, queries, stride);
  work.products = scratch.matrix<float>(keys, queries, stride);
  if constexpr (kIsBf16<T>) {
    work.weights = scratch.matrix<T>(keys, queries, stride);
    work.gradients = scratch.matrix<T>(keys, queries, stride);
    const auto pairs = scratch.matrix<T>(round_up(keys, 2), queries, stride);
    work.gradient_pairs = {pairs.data, pairs.rows, queries, stride};
  } else {
    work.weights = work.scores;
    work.gradients = work.products;
  }
  work.grad_k = scratch.matrix<float>(keys, call.D);
  work.grad_v = scratch.matrix<float>(keys, call.Dv);
  work.k_copy = scratch.take<T>(keys * inner<T>(call.D));
  work.v_copy = scratch.take<T>(keys * inner<T>(call.Dv));
  work.k_transposed = scratch.matrix<T>(call.D, keys);
  work.cleaned = scratch.matrix<T>(call.D, keys);
  work.drop = scratch.matrix<uint16_t>(call.dropout ? keys / 16 + 16 : 0, queries);
  work.keep = scratch.matrix<uint8_t>(call.keep || call.own.mask ? keys : 0, queries);
  work.bias = scratch.matrix<float>(call.bias ? keys : 0, queries, stride);
  work.grad_weights = scratch.matrix<float>(terms.grad_weights ? keys : 0, queries, stride);
  work.captured = terms.captured;
  work.logits = scratch.matrix<float>(terms.logits || terms.captured ? keys : 0, queries, stride);
  work.own_inputs = scratch.matrix<float>(terms.captured ? keys : 0, queries, stride);
  work.slopes = scratch.matrix<float>(call.own.score ? OwnStrip::kMost : 0, queries, stride);
  work.rows = scratch.matrix<float>(terms.pairs ? queries : 0, keys, keys + 16);
  return work;
}

}  // namespace attentive::kernels::cpu

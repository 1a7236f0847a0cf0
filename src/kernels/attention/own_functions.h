#pragma once

// Calls a program's own score and mask function for the rows of tiles.

#include "kernels/attention/call.h"

namespace attentive::kernels::cpu {

constexpr int64_t kBlock = detail::BlockClasses::kSize;

/// A row of pairs: of query `fixed` and the keys from `from` on, or of key `fixed` and the queries from
/// `from` on. The columns [lo, hi) hold pairs that the position shows.
struct OwnRow {
  int64_t b, h;
  int64_t fixed, from;
  int64_t lo, hi;
};

/// Calls the functions for one row after the other, in one thread. Every member throws c10::IndexError for a
/// lookup beyond a captured tensor at a pair that is not hidden, c10::ValueError for a division of an index
/// by 0, and what the program's function throws.
class OwnRows {
 public:
  enum class Along { Keys, Queries };
  OwnRows(const CpuArguments& call, Along along);

  /// Replaces the raw scores of a query by those of the score function, after scale and softcap, and returns
  /// the largest one, or -inf; NaN counts as -inf. Other columns of the vectors that hold [lo, hi) become
  /// -inf; the scores are padded to whole vectors.
  float scores_of_query(const OwnRow& row, float* scores);
  /// Replaces those of a key. `slopes` receives the derivatives by the raw scores, and `inputs` the scores
  /// before the function; it may be null.
  void scores_of_key(const OwnRow& row, float* scores, float* slopes, float* inputs);
  /// Sets those columns of `keep` to 0 that the mask function hides.
  void mask(const OwnRow& row, uint8_t* keep);
  /// Adds to the gradients of `captured`, from `inputs` and the gradients of the new scores.
  void add_captured_gradients(const OwnRow& row, const detail::CapturedView* captured, float* inputs,
                              const float* logit_gradients);

 private:
  void place(const OwnRow& row);
  void take_rule(const OwnRow& row);
  void run(const OwnRow& row, const OwnFunction& function, detail::PairCode code);
  void check(const OwnRow& row, const OwnFunction& function, detail::PairCode code);

  const CpuArguments& call_;
  const Along along_;
  detail::PairRow pairs_;
};

/// Writes the class of each tile of the mask, (B, H, blocks of queries, blocks of keys): of all its pairs in
/// range, whatever else hides them.
void classify_blocks(const CpuArguments& call, uint8_t* classes);

/// The code of a function for the instruction set of this process.
const detail::PairFunctionCode& code_here(const detail::PairFunction& function);

}  // namespace attentive::kernels::cpu

#pragma once

// Calls a program's own score and mask function for the rows of tiles.

#include <optional>

#include "kernels/attention/passes.h"

namespace attentive::kernels::cpu {

constexpr int64_t kClassTile = detail::BlockClasses::kSize;

/// Calls the functions for one row or strip after the other, in one thread: rows of queries along their keys,
/// or rows of keys along their queries. The columns of a row that hold pairs which the position shows are a
/// range. Every member throws c10::IndexError for a lookup beyond a captured tensor at a pair that is not
/// hidden, c10::ValueError for a division of an index by 0, and what the program's function throws.
class UserRows {
 public:
  static constexpr int64_t kMostStripRows = 8;  ///< of a strip

  enum class Along { Keys, Queries };
  UserRows(const Call& call, Along along);
  UserRows(const UserRows&) = delete;
  UserRows& operator=(const UserRows&) = delete;

  /// Replaces the raw scores of a strip of queries by those of the score function, after scale and cap.
  /// `largest` receives the largest one of each query, or -inf; NaN counts as -inf; it may be null. Other
  /// columns of the vectors that hold a range become -inf; the scores are padded to whole vectors.
  void scores_of_queries(const Pairs& strip, const detail::CallbackRange* ranges, const Matrix<float>& scores,
                         float* largest);
  /// Replaces those of a strip of keys. `slopes` receives the derivatives by the raw scores, and `inputs` the
  /// scores before the function, if it has memory.
  void scores_of_keys(const Pairs& strip, const detail::CallbackRange* ranges, const Matrix<float>& scores,
                      const Matrix<float>& slopes, const Matrix<float>& inputs);
  /// Sets those columns of `keep` to 0 that the mask function hides in a row.
  void mask(const Pairs& row, const detail::CallbackRange& range, uint8_t* keep);
  /// The class of a tile, if the call's mask, which is `mask`, tells it without the pairs; along keys.
  std::optional<uint8_t> class_of_tile(const detail::PairFunction& mask, const Pairs& tile);
  /// Adds to the gradients of `captured`, from `inputs` and the gradients of the new scores of a row.
  void add_captured_gradients(const Pairs& row, const detail::CallbackRange& range,
                              const detail::CapturedView* captured, float* inputs,
                              const float* logit_gradients);

 private:
  void place(const Pairs& first, const detail::CallbackRange& range = {});
  void run(const Pairs& strip, const detail::CallbackRange* ranges, detail::StripCode code);
  template <class Code>
  void check(const Pairs& row, const detail::CallbackRange& range, bool is_mask, const Code& code);

  const Call& call_;
  const Along along_;
  detail::CallbackStrip strip_;
  detail::CallbackRow& pairs_ = strip_.row;  ///< the row at work
};

/// Writes the class of each tile of the call's mask, which is `mask`, (B, H, blocks of queries, blocks of
/// keys): of all its pairs in range, whatever else hides them.
void classify_blocks(const Call& call, const detail::PairFunction& mask, uint8_t* classes);

/// A function in its code for the instruction set of this process.
UserFunction function_here(const detail::PairFunction& function);

}  // namespace attentive::kernels::cpu

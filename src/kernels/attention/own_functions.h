#pragma once

// Calls a program's own score and mask function for the rows of tiles.

#include <optional>

#include "kernels/attention/call.h"
#include "kernels/gemm/operands.h"

namespace attentive::kernels::cpu {

constexpr int64_t kBlock = detail::BlockClasses::kSize;

/// A row of pairs: of query `fixed` and the keys from `from` on, or of key `fixed` and the queries from
/// `from` on. The columns [lo, hi) hold pairs that the position shows.
struct OwnRow {
  int64_t b, h;
  int64_t fixed, from;
  int64_t lo, hi;
};

/// Rows of consecutive queries from `first` on, or of consecutive keys.
struct OwnStrip {
  static constexpr int64_t kMost = 8;

  int64_t b, h;
  int64_t first, from;
  int64_t rows;                     ///< at most kMost
  const detail::PairRange* ranges;  ///< columns of each row that the position shows
};

/// All pairs of consecutive queries from `first` on and consecutive keys from `from` on.
struct OwnTile {
  int64_t b, h;
  int64_t first, from;
  int64_t queries, keys;
};

/// Calls the functions for one row or strip after the other, in one thread. Every member throws
/// c10::IndexError for a lookup beyond a captured tensor at a pair that is not hidden, c10::ValueError for a
/// division of an index by 0, and what the program's function throws.
class OwnRows {
 public:
  enum class Along { Keys, Queries };
  OwnRows(const CpuArguments& call, Along along);
  OwnRows(const OwnRows&) = delete;
  OwnRows& operator=(const OwnRows&) = delete;

  /// Replaces the raw scores of queries by those of the score function, after scale and softcap. `largest`
  /// receives the largest one of each query, or -inf; NaN counts as -inf; it may be null. Other columns of
  /// the vectors that hold a range become -inf; the scores are padded to whole vectors.
  void scores_of_queries(const OwnStrip& strip, const Matrix<float>& scores, float* largest);
  /// Replaces those of keys. `slopes` receives the derivatives by the raw scores, and `inputs` the scores
  /// before the function, if it has memory.
  void scores_of_keys(const OwnStrip& strip, const Matrix<float>& scores, const Matrix<float>& slopes,
                      const Matrix<float>& inputs);
  /// Sets those columns of `keep` to 0 that the mask function hides.
  void mask(const OwnRow& row, uint8_t* keep);
  /// The class of a tile, if the call's mask, which is `mask`, tells it without the pairs; along keys.
  std::optional<uint8_t> class_of_tile(const detail::PairFunction& mask, const OwnTile& tile);
  /// Adds to the gradients of `captured`, from `inputs` and the gradients of the new scores.
  void add_captured_gradients(const OwnRow& row, const detail::CapturedView* captured, float* inputs,
                              const float* logit_gradients);

 private:
  void place(const OwnRow& row);
  void run(const OwnStrip& strip, detail::StripCode code);
  template <class Code>
  void check(const OwnRow& row, bool is_mask, const Code& code);

  const CpuArguments& call_;
  const Along along_;
  detail::PairStrip strip_;
  detail::PairRow& pairs_ = strip_.row;  ///< the row at work
};

/// Writes the class of each tile of the call's mask, which is `mask`, (B, H, blocks of queries, blocks of
/// keys): of all its pairs in range, whatever else hides them.
void classify_blocks(const CpuArguments& call, const detail::PairFunction& mask, uint8_t* classes);

/// The code of a function for the instruction set of this process.
const detail::PairFunctionCode& code_here(const detail::PairFunction& function);

}  // namespace attentive::kernels::cpu

#pragma once

// Calls a program's own score and mask function for the rows of tiles.

#include "kernels/attention/call.h"

namespace attentive::kernels::cpu {

/// Columns of a row of pairs: those of query i and the keys from `from` on, or of key j and the queries from `from` on.
struct OwnRow {
  int64_t b, h;
  int64_t fixed;  ///< the query i, or the key j
  int64_t from;   ///< the key or query of column 0
  int64_t lo, hi;
};

/// Replaces the raw scores of a query by those of its score function, after scale and softcap. They are padded to whole vectors.
/// Throws c10::IndexError for a lookup beyond a captured tensor at a pair that is not hidden, and c10::ValueError for a division
/// of an index by 0, as all of these functions.
void own_scores_of_query(const CpuArguments& call, const OwnRow& row, float* scores);

/// Does so for a key. `slopes` receives the derivatives by the raw scores, and `inputs` the scores before the function; it may be
/// null.
void own_scores_of_key(const CpuArguments& call, const OwnRow& row, float* scores, float* slopes, float* inputs);

/// Sets those columns of `keep` to 0 that the mask function hides.
void own_mask_of_query(const CpuArguments& call, const OwnRow& row, uint8_t* keep);
void own_mask_of_key(const CpuArguments& call, const OwnRow& row, uint8_t* keep);

/// Adds to the gradients of `captured`, from `inputs` and the gradients of the new scores.
void add_captured_gradients(const CpuArguments& call, const OwnRow& row, const detail::CapturedView* captured, float* inputs,
                            const float* logit_gradients);

constexpr int64_t kBlock = detail::BlockClasses::kSize;

/// Writes the class of each tile of the mask, (B, H, blocks of queries, blocks of keys): of all its pairs in range, whatever else
/// hides them.
void classify_blocks(const CpuArguments& call, uint8_t* classes);

/// The code of a function for the instruction set of this process.
const detail::PairFunctionCode& code_here(const detail::PairFunction& function);

}  // namespace attentive::kernels::cpu

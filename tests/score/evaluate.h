#pragma once

// Calls the vector code of scores and masks of one's own directly, for one instruction set.

#include <vector>

#include <attentive/score/score_mod.h>

namespace attentive::test {

struct NamedSet {
  const char* name;
  detail::VectorSet set;
};

/// The instruction sets for which scores are compiled and that this CPU has.
std::vector<NamedSet> vector_sets();

/// Numbers of one row of pairs, and their derivatives.
struct Evaluation {
  std::vector<float> along_keys, along_queries;  ///< the new scores
  std::vector<float> slopes;                     ///< their derivatives by the scores
  std::vector<float> captured;                   ///< their derivatives by the numbers of the captured tensor
};

/// Evaluates a score function for these scores. Both `pair.query` and `pair.key` are 0 at the first of them,
/// and one of them grows, so that `pair.query + pair.key` is the place in the row. The function may capture
/// one tensor, `second`, which it reads at that place.
Evaluation evaluate(const ScoreMod& score, detail::VectorSet set, const std::vector<float>& scores,
                    const at::Tensor& second = {});

/// The places of a row of pairs of one query.
struct RowPlace {
  int64_t batch = 0, head = 0, query = 0, first_key = 0;
};

/// The columns of a row of `count` pairs that a mask function hides; `captured` are all the tensors that it
/// captured, int32 and one-dimensional.
std::vector<int64_t> hidden_columns(const MaskMod& mask, detail::VectorSet set, const RowPlace& place,
                                    int64_t count);

/// A tile of pairs: of all queries and keys in two ranges.
struct TilePlace {
  int64_t batch = 0, head = 0;
  detail::CallbackRange queries, keys;
};

/// The conditions that a mask function may have in a tile of a call with 500 queries and 600 keys, and
/// whether an index may be at fault.
struct TileReading {
  detail::TileMask mask;
  bool faulty;
};
TileReading read_tile(const MaskMod& mask, const TilePlace& place);

/// The pairs of that tile by the definition, bool (queries, keys).
at::Tensor read_pairs(const MaskMod& mask, const TilePlace& place);

}  // namespace attentive::test

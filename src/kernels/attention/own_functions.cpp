#include "kernels/attention/own_functions.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include <c10/util/Exception.h>

#include <attentive/score/tensors.h>

#include "kernels/simd/threads.h"

namespace attentive::kernels::cpu {
namespace {

enum class Along { Keys, Queries };

detail::PairRow pair_row(const CpuArguments& call, const OwnRow& row, Along along) {
  detail::PairRow pairs{.batch = row.b + call.batch_offset, .head = row.h + call.head_offset};
  pairs.query = call.band.position(along == Along::Keys ? row.fixed : row.from);
  pairs.key = along == Along::Keys ? row.from : row.fixed;
  pairs.queries = call.L;
  pairs.keys = call.S;
  pairs.lo = row.lo;
  pairs.hi = row.hi;
  pairs.captured = call.own.captured;
  return pairs;
}

// Throws what went wrong in a row, unless it was a lookup for a hidden pair.
void check(const CpuArguments& call, const OwnRow& row, Along along, const OwnFunction& function, detail::PairCode code,
           const detail::PairRow& done) {
  TORCH_CHECK_VALUE(!done.divided_by_zero, "score: an index is divided by 0");
  if (!done.bad) return;
  // The row is repeated for one visible pair after the other, on numbers that nobody reads.
  const auto size = static_cast<size_t>(row.hi) + detail::kMostLanes;
  std::vector<float> scores(size, 0.0f), slopes(size, 0.0f);
  std::vector<uint8_t> keep(size, 1);
  const bool is_mask = &function == &call.own.mask;
  for (int64_t c = row.lo; c < row.hi; ++c) {
    const int64_t i = along == Along::Keys ? row.fixed : row.from + c, j = along == Along::Keys ? row.from + c : row.fixed;
    if (!call.unmasked(row.b, row.h, i, j) || (!is_mask && !call.sees(row.b, row.h, i, j))) continue;
    auto pair = pair_row(call, row, along);
    pair.lo = c;
    pair.hi = c + 1;
    pair.scores = scores.data();
    pair.slopes = slopes.data();
    pair.keep = keep.data();
    code(function.object, pair);
    if (!pair.bad) continue;
    const auto& view = *pair.bad;
    detail::throw_captured_range({view.sizes.data(), static_cast<size_t>(view.rank)}, pair.bad_dimension, pair.bad_index);
  }
}

void run(const CpuArguments& call, const OwnRow& row, Along along, const OwnFunction& function, detail::PairCode code,
         detail::PairRow& pairs) {
  code(function.object, pairs);
  if (pairs.bad || pairs.divided_by_zero) [[unlikely]]
    check(call, row, along, function, code, pairs);
}

// Takes scale and softcap of raw scores; without a softcap, the function's row takes the scale itself.
void take_rule(const CpuArguments& call, const OwnRow& row, detail::PairRow& pairs) {
  pairs.scale = call.scale;
  if (call.softcap == 0.0f) return;
  rows_code().cap(pairs.scores, pairs.slopes, {call.scale, call.softcap}, row.lo, row.hi);
  pairs.slopes_given = true;
}

}  // namespace

const detail::PairFunctionCode& code_here(const detail::PairFunction& function) {
  const std::string_view name = vector_code().name;
  auto set = detail::VectorSet::Portable;
  if (name.starts_with("avx512")) set = detail::VectorSet::Avx512;
  if (name == "avx2") set = detail::VectorSet::Avx2;
  if (name.starts_with("neon")) set = detail::VectorSet::Neon;
  return function.code(set);
}

void own_scores_of_query(const CpuArguments& call, const OwnRow& row, float* scores) {
  if (row.lo >= row.hi) return;
  auto pairs = pair_row(call, row, Along::Keys);
  pairs.scores = scores;
  take_rule(call, row, pairs);
  run(call, row, Along::Keys, call.own.score, call.own.score.code->along_keys, pairs);
}

void own_scores_of_key(const CpuArguments& call, const OwnRow& row, float* scores, float* slopes, float* inputs) {
  if (row.lo >= row.hi) return;
  auto pairs = pair_row(call, row, Along::Queries);
  pairs.scores = scores;
  pairs.slopes = slopes;
  pairs.inputs = inputs;
  take_rule(call, row, pairs);
  run(call, row, Along::Queries, call.own.score, call.own.score.code->along_queries, pairs);
}

void own_mask_of_query(const CpuArguments& call, const OwnRow& row, uint8_t* keep) {
  if (row.lo >= row.hi) return;
  auto pairs = pair_row(call, row, Along::Keys);
  pairs.keep = keep;
  run(call, row, Along::Keys, call.own.mask, call.own.mask.code->along_keys, pairs);
}

void own_mask_of_key(const CpuArguments& call, const OwnRow& row, uint8_t* keep) {
  if (row.lo >= row.hi) return;
  auto pairs = pair_row(call, row, Along::Queries);
  pairs.keep = keep;
  run(call, row, Along::Queries, call.own.mask, call.own.mask.code->along_queries, pairs);
}

bool CpuArguments::unhidden(int64_t b, int64_t h, int64_t i, int64_t j) const {
  // The row begins at a multiple of the widest vector.
  const int64_t from = j / detail::kMostLanes * detail::kMostLanes;
  uint8_t keep[detail::kMostLanes];
  std::fill_n(keep, detail::kMostLanes, uint8_t{1});
  own_mask_of_query(*this, {b, h, i, from, j - from, j - from + 1}, keep);
  return keep[j - from] != 0;
}

void add_captured_gradients(const CpuArguments& call, const OwnRow& row, const detail::CapturedView* captured, float* inputs,
                            const float* logit_gradients) {
  if (row.lo >= row.hi) return;
  auto pairs = pair_row(call, row, Along::Queries);
  pairs.scores = inputs;
  pairs.logit_gradients = logit_gradients;
  pairs.captured = captured;
  call.own.score.code->captured_gradients(call.own.score.object, pairs);
}

void classify_blocks(const CpuArguments& call, uint8_t* classes) {
  const int64_t rows = round_up(call.L, kBlock) / kBlock, columns = round_up(call.S, kBlock) / kBlock;
  for_each_item(call.B * call.H * rows, call.worth_sharing(1), [&](int64_t item) {
    const int64_t head = item / rows, block = item % rows, first = block * kBlock, last = std::min(first + kBlock, call.L);
    std::vector<uint8_t> keep(static_cast<size_t>(columns * kBlock)), any(static_cast<size_t>(columns)),
        all(static_cast<size_t>(columns), 1);
    for (int64_t i = first; i < last; ++i) {
      std::fill(keep.begin(), keep.end(), uint8_t{1});
      own_mask_of_query(call, {head / call.H, head % call.H, i, 0, 0, call.S}, keep.data());
      for (int64_t c = 0; c < columns; ++c) {
        const uint8_t* const tile = keep.data() + c * kBlock;
        const auto count = static_cast<size_t>(std::min(kBlock, call.S - c * kBlock));
        const auto at = static_cast<size_t>(c);
        any[at] |= static_cast<uint8_t>(std::memchr(tile, 1, count) != nullptr);
        all[at] &= static_cast<uint8_t>(std::memchr(tile, 0, count) == nullptr);
      }
    }
    for (int64_t c = 0; c < columns; ++c) {
      const auto at = static_cast<size_t>(c);
      using detail::BlockClasses;
      classes[item * columns + c] = all[at] ? BlockClasses::Full : any[at] ? BlockClasses::Partial : BlockClasses::Empty;
    }
  });
}

}  // namespace attentive::kernels::cpu

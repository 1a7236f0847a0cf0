#include "kernels/attention/own_functions.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <vector>

#include <c10/util/Exception.h>

#include <attentive/score/tensors.h>
#include <attentive/score/tiles.h>

#include "kernels/simd/threads.h"

namespace attentive::kernels::cpu {
OwnRows::OwnRows(const CpuArguments& call, Along along) : call_(call), along_(along) {
  pairs_.set_lengths(call.whole_queries ? call.whole_queries : call.L,
                     call.whole_keys ? call.whole_keys : call.S);
  pairs_.scale = call.scale;
  pairs_.captured = call.own.captured;
}

void OwnRows::place(const OwnRow& row) {
  pairs_.batch = row.b + call_.batch_offset;
  pairs_.head = row.h + call_.head_offset;
  pairs_.query = call_.key_offset + call_.band.position(along_ == Along::Keys ? row.fixed : row.from);
  pairs_.key = call_.key_offset + (along_ == Along::Keys ? row.from : row.fixed);
  pairs_.lo = row.lo;
  pairs_.hi = row.hi;
}

// Calls the function of scores for the rows of `strip_`.
void OwnRows::run(const OwnStrip& strip, detail::StripCode code) {
  place({strip.b, strip.h, strip.first, strip.from, 0, 0});
  strip_.rows = strip.rows;
  strip_.ranges = strip.ranges;
  if (call_.softcap != 0.0f) {  // without a softcap, the function's row takes the scale itself
    pairs_.slopes_given = true;
    for (int64_t n = 0; n < strip.rows; ++n) {
      const auto& [lo, hi] = strip_.ranges[n];
      if (lo >= hi) continue;
      float* const slopes = pairs_.slopes ? pairs_.slopes + n * strip_.slopes_stride : nullptr;
      rows_code().cap(pairs_.scores + n * strip_.scores_stride, slopes, {call_.scale, call_.softcap}, lo, hi);
    }
  }
  code(call_.own.score.object, strip_);
  if (!pairs_.bad && !pairs_.divided_by_zero) [[likely]]
    return;
  for (int64_t n = 0; n < strip.rows; ++n) {
    const auto& [lo, hi] = strip_.ranges[n];
    const OwnRow row{strip.b, strip.h, strip.first + n, strip.from, lo, hi};
    place(row);
    check(row, /*is_mask=*/false, [&](detail::PairRow& pair) {
      const detail::PairRange range{pair.lo, pair.hi};
      detail::PairStrip one{.row = pair, .ranges = &range};
      code(call_.own.score.object, one);
      pair = one.row;
    });
  }
}

// Throws what went wrong in a row, unless it was a lookup for a hidden pair. `code` is called for one visible
// pair after the other, on numbers that nobody reads.
template <class Code>
void OwnRows::check(const OwnRow& row, bool is_mask, const Code& code) {
  TORCH_CHECK_VALUE(!pairs_.divided_by_zero, "score: an index is divided by 0");
  pairs_.bad = nullptr;
  const auto size = static_cast<size_t>(row.hi) + detail::kMostLanes;
  std::vector<float> scores(size, 0.0f), slopes(size, 0.0f);
  std::vector<uint8_t> keep(size, 1);
  const bool along_keys = along_ == Along::Keys;
  for (int64_t c = row.lo; c < row.hi; ++c) {
    const int64_t i = along_keys ? row.fixed : row.from + c, j = along_keys ? row.from + c : row.fixed;
    if (!call_.unmasked(row.b, row.h, i, j) || (!is_mask && !call_.sees(row.b, row.h, i, j))) continue;
    auto pair = pairs_;
    pair.lo = c;
    pair.hi = c + 1;
    pair.scores = scores.data();
    pair.slopes = slopes.data();
    pair.inputs = nullptr;
    pair.keep = keep.data();
    code(pair);
    if (!pair.bad) continue;
    const auto& view = *pair.bad;
    detail::throw_captured_range({view.sizes.data(), static_cast<size_t>(view.rank)}, pair.bad_dimension,
                                 pair.bad_index);
  }
}

void OwnRows::scores_of_queries(const OwnStrip& strip, const Matrix<float>& scores, float* largest) {
  pairs_.scores = scores.data;
  strip_.scores_stride = scores.stride;
  strip_.largest = largest;
  run(strip, call_.own.score.code->scores_along_keys);
}

void OwnRows::scores_of_keys(const OwnStrip& strip, const Matrix<float>& scores, const Matrix<float>& slopes,
                             const Matrix<float>& inputs) {
  pairs_.scores = scores.data;
  pairs_.slopes = slopes.data;
  pairs_.inputs = inputs.data;
  strip_.scores_stride = scores.stride;
  strip_.slopes_stride = slopes.stride;
  strip_.inputs_stride = inputs.stride;
  run(strip, call_.own.score.code->scores_along_queries);
}

void OwnRows::mask(const OwnRow& row, uint8_t* keep) {
  if (row.lo >= row.hi) return;
  place(row);
  pairs_.keep = keep;
  const OwnFunction& function = call_.own.mask;
  const auto code =
      along_ == Along::Keys ? function.code->mask_along_keys : function.code->mask_along_queries;
  code(function.object, pairs_);
  if (pairs_.bad || pairs_.divided_by_zero) [[unlikely]]
    check(row, /*is_mask=*/true, [&](detail::PairRow& pair) { code(function.object, pair); });
}

std::optional<uint8_t> OwnRows::class_of_tile(const detail::PairFunction& mask, const OwnTile& tile) {
  place({tile.b, tile.h, tile.first, tile.from, 0, 0});
  detail::TileEvaluation evaluation{.captured = pairs_.captured};
  const auto range = [&](int64_t least, int64_t count) {
    return detail::TileIndex(least, least + count - 1, &evaluation);
  };
  const auto said =
      mask.mask_of_tile({range(pairs_.batch, 1), range(pairs_.head, 1), range(pairs_.query, tile.queries),
                         range(pairs_.key, tile.keys), range(pairs_.queries, 1), range(pairs_.keys, 1)});
  using detail::BlockClasses;
  if (evaluation.faulty || said.may_hold == said.may_fail) return std::nullopt;
  return said.may_hold ? BlockClasses::Full : BlockClasses::Empty;
}

void OwnRows::add_captured_gradients(const OwnRow& row, const detail::CapturedView* captured, float* inputs,
                                     const float* logit_gradients) {
  if (row.lo >= row.hi) return;
  place(row);
  pairs_.scores = inputs;
  pairs_.logit_gradients = logit_gradients;
  pairs_.captured = captured;
  call_.own.score.code->captured_gradients(call_.own.score.object, pairs_);
  pairs_.bad = nullptr;  // the row of scores has reported it
}

bool CpuArguments::unhidden(int64_t b, int64_t h, int64_t i, int64_t j) const {
  // The row begins at a multiple of the widest vector.
  const int64_t from = j / detail::kMostLanes * detail::kMostLanes;
  uint8_t shown[detail::kMostLanes];
  std::fill_n(shown, detail::kMostLanes, uint8_t{1});
  OwnRows(*this, OwnRows::Along::Keys).mask({b, h, i, from, j - from, j - from + 1}, shown);
  return shown[j - from] != 0;
}

const detail::PairFunctionCode& code_here(const detail::PairFunction& function) {
  const std::string_view name = vector_code().name;
  auto set = detail::VectorSet::Portable;
  if (name.starts_with("avx512")) set = detail::VectorSet::Avx512;
  if (name == "avx2") set = detail::VectorSet::Avx2;
  if (name.starts_with("neon")) set = detail::VectorSet::Neon;
  return function.code(set);
}

namespace {

// Collects what the rows of a tile show; a row holds 0 or 1 per key.
class Seen {
 public:
  void add(const uint8_t* row) {
    std::array<uint64_t, kBlock / 8> words;
    std::memcpy(words.data(), row, sizeof(words));
    uint64_t any = 0, all = kOnes;
    for (const uint64_t keys : words) {
      any |= keys;
      all &= keys;
    }
    shown_ |= any != 0;
    hidden_ |= all != kOnes;
  }
  uint8_t kind() const {
    using detail::BlockClasses;
    return !hidden_ ? BlockClasses::Full : shown_ ? BlockClasses::Partial : BlockClasses::Empty;
  }

 private:
  static constexpr uint64_t kOnes = 0x0101010101010101;
  bool shown_ = false, hidden_ = false;
};

}  // namespace

void classify_blocks(const CpuArguments& call, const detail::PairFunction& mask, uint8_t* classes) {
  // A few tiles at a time, so that what a function reads per key stays in the first cache for all their rows.
  constexpr int64_t kTiles = 16;
  const int64_t rows = round_up(call.L, kBlock) / kBlock, columns = round_up(call.S, kBlock) / kBlock;
  for_each_item(call.B * call.H * rows, call.worth_sharing(1), [&](int64_t item) {
    const int64_t head = item / rows, first = item % rows * kBlock, last = std::min(first + kBlock, call.L);
    const auto keys_from = [&](int64_t tile) { return std::min(tile * kBlock, call.S); };
    std::array<uint8_t, kTiles * kBlock> keep;
    OwnRows own(call, OwnRows::Along::Keys);
    uint8_t* const of_row = classes + item * columns;
    // Asks the pairs of the tiles [begin, end).
    const auto ask_pairs = [&](int64_t begin, int64_t end) {
      const int64_t from = begin * kBlock, keys = keys_from(end) - from, whole = (end - begin) * kBlock;
      std::array<Seen, kTiles> tiles;
      for (int64_t i = first; i < last; ++i) {
        std::memset(keep.data(), 1, static_cast<size_t>(keys));
        own.mask({head / call.H, head % call.H, i, from, 0, keys}, keep.data());
        // The last tile ends with copies of its last pair, which say nothing new.
        std::fill(keep.begin() + keys, keep.begin() + whole, keep[static_cast<size_t>(keys - 1)]);
        for (int64_t t = 0; t < end - begin; ++t)
          tiles[static_cast<size_t>(t)].add(&keep[static_cast<size_t>(t * kBlock)]);
      }
      for (int64_t t = begin; t < end; ++t) of_row[t] = tiles[static_cast<size_t>(t - begin)].kind();
    };
    int64_t open = 0;  // the tiles [open, t) are not classified yet
    for (int64_t t = 0; t < columns; ++t) {
      const int64_t from = t * kBlock, keys = keys_from(t + 1) - from;
      const auto known =
          own.class_of_tile(mask, {head / call.H, head % call.H, first, from, last - first, keys});
      if (known) {
        if (open < t) ask_pairs(open, t);
        of_row[t] = *known;
        open = t + 1;
      } else if (t + 1 - open == kTiles || t + 1 == columns) {
        ask_pairs(open, t + 1);
        open = t + 1;
      }
    }
  });
}

}  // namespace attentive::kernels::cpu

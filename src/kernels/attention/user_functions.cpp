#include "kernels/attention/user_functions.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include <c10/util/Exception.h>

#include <attentive/score/tensors.h>
#include <attentive/score/tiles.h>

#include "kernels/simd/threads.h"

namespace attentive::kernels {

bool Call::unmasked(int64_t b, int64_t h, int64_t i, int64_t j) const {
  if (keep && !MaskTerm::shows(*keep.at(b, h, i, j))) return false;
  if (!bias) return true;
  float number = 0.0f;
  cpu::for_element(bias.element, [&](auto type) {
    cpu::elementwise().convert(bias.as<decltype(type)>().at(b, h, i, j), &number, 1);
  });
  return BiasTerm::shows(number);
}

bool Call::unhidden(int64_t b, int64_t h, int64_t i, int64_t j) const {
  // The row begins at a multiple of the widest vector.
  const int64_t from = j / detail::kMostLanes * detail::kMostLanes;
  uint8_t shown[detail::kMostLanes];
  std::fill_n(shown, detail::kMostLanes, uint8_t{1});
  cpu::UserRows(*this, cpu::UserRows::Along::Keys)
      .mask({b, h, i, 1, from, detail::kMostLanes}, {j - from, j - from + 1}, shown);
  return shown[j - from] != 0;
}

int Call::block_of(int64_t b, int64_t h, int64_t i, int64_t j) const {
  if (!user.mask) return detail::BlockClasses::Full;
  if (!user.blocks) return detail::BlockClasses::Partial;
  return *user.blocks.at(b, h, i / detail::BlockClasses::kSize, j / detail::BlockClasses::kSize);
}

void Call::dropout_bits(int64_t b, int64_t h, int64_t i, int64_t count, int64_t from, int64_t to,
                        uint16_t* out, int64_t row_stride, int64_t stride) const {
  for (int64_t block = from / 128; block * 128 < to; ++block) {
    cpu::elementwise().dropout_bits({dropout_key, threshold, static_cast<uint32_t>(b + batch_offset),
                                     static_cast<uint32_t>(h + head_offset), band.counter_row(i),
                                     static_cast<uint32_t>(count), static_cast<uint32_t>(block), out,
                                     row_stride, stride});
    out += 8 * stride;
  }
}

namespace cpu {

UserRows::UserRows(const Call& call, Along along) : call_(call), along_(along) {
  pairs_.set_lengths(call.whole_queries ? call.whole_queries : call.L,
                     call.whole_keys ? call.whole_keys : call.S);
  pairs_.scale = call.rule.scale;
  pairs_.captured = call.user.captured;
}

void UserRows::place(const Pairs& first, const detail::CallbackRange& range) {
  pairs_.batch = first.b + call_.batch_offset;
  pairs_.head = first.h + call_.head_offset;
  pairs_.query = call_.key_offset + call_.band.position(first.i0);
  pairs_.key = call_.key_offset + first.j0;
  pairs_.lo = range.lo;
  pairs_.hi = range.hi;
}

// Calls the function of scores for the rows of a strip.
void UserRows::run(const Pairs& strip, const detail::CallbackRange* ranges, detail::StripCode code) {
  const bool along_keys = along_ == Along::Keys;
  place(strip);
  strip_.rows = along_keys ? strip.queries : strip.keys;
  strip_.ranges = ranges;
  if (call_.rule.caps()) {  // without a cap, the function's row takes the scale itself
    pairs_.slopes_given = true;
    for (int64_t n = 0; n < strip_.rows; ++n) {
      const auto& [lo, hi] = ranges[n];
      if (lo >= hi) continue;
      float* const slopes = pairs_.slopes ? pairs_.slopes + n * strip_.slopes_stride : nullptr;
      rows_code().cap(pairs_.scores + n * strip_.scores_stride, slopes, call_.rule, lo, hi);
    }
  }
  code(call_.user.score.object, strip_);
  if (!pairs_.bad && !pairs_.divided_by_zero) [[likely]]
    return;
  for (int64_t n = 0; n < strip_.rows; ++n) {
    Pairs row = strip;
    (along_keys ? row.i0 : row.j0) += n;
    place(row, ranges[n]);
    check(row, ranges[n], /*is_mask=*/false, [&](detail::CallbackRow& pair) {
      const detail::CallbackRange range{pair.lo, pair.hi};
      detail::CallbackStrip one{.row = pair, .ranges = &range};
      code(call_.user.score.object, one);
      pair = one.row;
    });
  }
}

// Throws what went wrong in a row, unless it was a lookup for a hidden pair. `code` is called for one visible
// pair after the other, on numbers that nobody reads.
template <class Code>
void UserRows::check(const Pairs& row, const detail::CallbackRange& range, bool is_mask, const Code& code) {
  TORCH_CHECK_VALUE(!pairs_.divided_by_zero, "score: an index is divided by 0");
  pairs_.bad = nullptr;
  const auto size = static_cast<size_t>(range.hi) + detail::kMostLanes;
  std::vector<float> scores(size, 0.0f), slopes(size, 0.0f);
  std::vector<uint8_t> keep(size, 1);
  const bool along_keys = along_ == Along::Keys;
  for (int64_t c = range.lo; c < range.hi; ++c) {
    const int64_t i = row.i0 + (along_keys ? 0 : c), j = row.j0 + (along_keys ? c : 0);
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

void UserRows::scores_of_queries(const Pairs& strip, const detail::CallbackRange* ranges,
                                 const Matrix<float>& scores, float* largest) {
  pairs_.scores = scores.data;
  strip_.scores_stride = scores.stride;
  strip_.largest = largest;
  run(strip, ranges, call_.user.score.code->scores_along_keys);
}

void UserRows::scores_of_keys(const Pairs& strip, const detail::CallbackRange* ranges,
                              const Matrix<float>& scores, const Matrix<float>& slopes,
                              const Matrix<float>& inputs) {
  pairs_.scores = scores.data;
  pairs_.slopes = slopes.data;
  pairs_.inputs = inputs.data;
  strip_.scores_stride = scores.stride;
  strip_.slopes_stride = slopes.stride;
  strip_.inputs_stride = inputs.stride;
  run(strip, ranges, call_.user.score.code->scores_along_queries);
}

void UserRows::mask(const Pairs& row, const detail::CallbackRange& range, uint8_t* keep) {
  if (range.lo >= range.hi) return;
  place(row, range);
  pairs_.keep = keep;
  const UserFunction& function = call_.user.mask;
  const auto code =
      along_ == Along::Keys ? function.code->mask_along_keys : function.code->mask_along_queries;
  code(function.object, pairs_);
  if (pairs_.bad || pairs_.divided_by_zero) [[unlikely]]
    check(row, range, /*is_mask=*/true, [&](detail::CallbackRow& pair) { code(function.object, pair); });
}

std::optional<uint8_t> UserRows::class_of_tile(const detail::PairFunction& mask, const Pairs& tile) {
  place(tile);
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

void UserRows::add_captured_gradients(const Pairs& row, const detail::CallbackRange& range,
                                      const detail::CapturedView* captured, float* inputs,
                                      const float* logit_gradients) {
  if (range.lo >= range.hi) return;
  place(row, range);
  pairs_.scores = inputs;
  pairs_.logit_gradients = logit_gradients;
  pairs_.captured = captured;
  call_.user.score.code->captured_gradients(call_.user.score.object, pairs_);
  pairs_.bad = nullptr;  // the row of scores has reported it
}

UserFunction function_here(const detail::PairFunction& function) {
  return {function.function(), &function.code(vector_code().set)};
}

namespace {

// Collects what the rows of a tile show; a row holds 0 or 1 per key.
class Seen {
 public:
  void add(const uint8_t* row) {
    std::array<uint64_t, kClassTile / 8> words;
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

void classify_blocks(const Call& call, const detail::PairFunction& mask, uint8_t* classes) {
  // A few tiles at a time, so that what a function reads per key stays in the first cache for all their rows.
  constexpr int64_t kTilesOfRun = 16;
  const int64_t rows = round_up(call.L, kClassTile) / kClassTile,
                columns = round_up(call.S, kClassTile) / kClassTile;
  for_each_item(call.B * call.H * rows, call.worth_threads(1), [&](int64_t item) {
    const int64_t head = item / rows, first = item % rows * kClassTile,
                  last = std::min(first + kClassTile, call.L);
    const auto keys_from = [&](int64_t tile) { return std::min(tile * kClassTile, call.S); };
    std::array<uint8_t, kTilesOfRun * kClassTile> keep;
    UserRows user_rows(call, UserRows::Along::Keys);
    uint8_t* const of_row = classes + item * columns;
    // Asks the pairs of the tiles [begin, end).
    const auto ask_pairs = [&](int64_t begin, int64_t end) {
      const int64_t from = begin * kClassTile, keys = keys_from(end) - from,
                    whole = (end - begin) * kClassTile;
      std::array<Seen, kTilesOfRun> tiles;
      for (int64_t i = first; i < last; ++i) {
        std::memset(keep.data(), 1, static_cast<size_t>(keys));
        user_rows.mask({head / call.H, head % call.H, i, 1, from, keys}, {0, keys}, keep.data());
        // The last tile ends with copies of its last pair, which say nothing new.
        std::fill(keep.begin() + keys, keep.begin() + whole, keep[static_cast<size_t>(keys - 1)]);
        for (int64_t t = 0; t < end - begin; ++t)
          tiles[static_cast<size_t>(t)].add(&keep[static_cast<size_t>(t * kClassTile)]);
      }
      for (int64_t t = begin; t < end; ++t) of_row[t] = tiles[static_cast<size_t>(t - begin)].kind();
    };
    int64_t open = 0;  // the tiles [open, t) are not classified yet
    for (int64_t t = 0; t < columns; ++t) {
      const int64_t from = t * kClassTile, keys = keys_from(t + 1) - from;
      const auto known =
          user_rows.class_of_tile(mask, {head / call.H, head % call.H, first, last - first, from, keys});
      if (known) {
        if (open < t) ask_pairs(open, t);
        of_row[t] = *known;
        open = t + 1;
      } else if (t + 1 - open == kTilesOfRun || t + 1 == columns) {
        ask_pairs(open, t + 1);
        open = t + 1;
      }
    }
  });
}

}  // namespace cpu
}  // namespace attentive::kernels

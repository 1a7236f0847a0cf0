#include "kernels/attention/row_inputs.h"

#include <algorithm>
#include <type_traits>

#include "kernels/gemm/operands.h"

namespace attentive::kernels::cpu {
namespace {

// Return one row of a mask or bias as contiguous numbers: the row itself, or a copy in `buffer`.
const uint8_t* row_of(const Strided<const bool>& keep, int64_t b, int64_t h, int64_t i, int64_t j, int64_t n,
                      uint8_t* buffer) {
  const bool* const row = keep.at(b, h, i, j);
  if (keep.col == 1) return reinterpret_cast<const uint8_t*>(row);
  for (int64_t c = 0; c < n; ++c) buffer[c] = row[c * keep.col];
  return buffer;
}

template <class T>
const float* row_of(const Strided<const T>& bias, int64_t b, int64_t h, int64_t i, int64_t j, int64_t n,
                    float* buffer) {
  const T* const row = bias.at(b, h, i, j);
  if constexpr (std::is_same_v<T, float>) {
    if (bias.col == 1) return row;
  }
  widen_row(row, bias.col, buffer, n);
  return buffer;
}

// Whether the rows of a bias are read where they lie; others are copied, as float32.
bool reads_in_place(const Call& call) {
  const BiasView& bias = call.bias;
  if (!bias) return true;
  const bool half = bias.element == Element::BFloat16 && call.normalise;
  return bias.col == 1 && (half || bias.element == Element::Float32);
}

}  // namespace

RowInputs::RowInputs(const Call& call, Scratch& scratch, int64_t rows, int64_t cols, bool dropped)
    : call_(call),
      cols_(cols),
      groups_(cols / 16 + 16),
      keep_(scratch.take<uint8_t>(call.keep.col != 1 || call.user.mask ? rows * cols : 0)),
      bias_(reads_in_place(call) ? nullptr : scratch.take<float>(rows * cols)),
      drop_(dropped && call.dropout ? scratch.take<uint16_t>(rows * groups_) : nullptr),
      own_(call, UserRows::Along::Keys) {}

void RowInputs::set(SoftmaxRow& row, int64_t slot, int64_t b, int64_t h, int64_t i, int64_t from,
                    int64_t cols, bool tested) const {
  row.lo = std::max<int64_t>(call_.key_lo(i) - from, 0);
  row.hi = std::clamp<int64_t>(call_.key_hi(b, i) - from, 0, cols);
  row.rule = call_.rule_of(b, h);
  row.distance = static_cast<float>(call_.band.position(i) - from);
  if (call_.bias) {
    for_element(call_.bias.element, [&](auto type) {
      const auto& bias = call_.bias.as<decltype(type)>();
      if constexpr (kIsBf16<decltype(type)>) {
        if (!bias_) {
          row.bias16 = bias.at(b, h, i, from);
          return;
        }
      }
      row.bias = row_of(bias, b, h, i, from, cols, bias_ + slot * cols_);
    });
  }
  row.keep = call_.keep ? row_of(call_.keep, b, h, i, from, cols, keep_ + slot * cols_) : nullptr;
  if (drop_) {
    uint16_t* const bits = drop_ + slot * groups_;
    call_.dropout_bits(b, h, i, 1, from, from + cols, bits, 0, 1);
    row.drop = bits + from % 128 / 16;
  }
  if (!call_.user.mask || !tested) return;
  uint8_t* const shown = keep_ + slot * cols_;
  if (!row.keep) {
    std::fill_n(shown, cols, uint8_t{1});
  } else if (row.keep != shown) {
    std::copy_n(row.keep, cols, shown);
  }
  own_.mask({b, h, i, 1, from, cols}, {row.lo, row.hi}, shown);
  row.keep = shown;
}

void RowInputs::score(SoftmaxRow* rows, int64_t count, int64_t b, int64_t h, int64_t i, int64_t from) const {
  if (!call_.user.score) return;
  for (int64_t r = 0; r < count; ++r) ranges_[static_cast<size_t>(r)] = {rows[r].lo, rows[r].hi};
  const Matrix<float> scores{rows[0].scores, count, rows[0].cols,
                             count > 1 ? rows[1].scores - rows[0].scores : 0};
  float largest[UserRows::kMostStripRows];
  own_.scores_of_queries({b, h, i, count, from, rows[0].cols}, ranges_.data(), scores,
                         call_.normalise ? largest : nullptr);
  if (!call_.normalise) return;
  for (int64_t r = 0; r < count; ++r) {
    rows[r].peak = largest[r];
    rows[r].prepared = !rows[r].keep && !rows[r].has_bias() && !rows[r].rule.alibi;
  }
}

}  // namespace attentive::kernels::cpu

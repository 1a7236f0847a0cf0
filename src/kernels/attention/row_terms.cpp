#include "kernels/attention/row_terms.h"

namespace attentive::kernels::cpu {
namespace {

// Returns one row of a mask or bias as contiguous numbers: the row itself, or a copy in `buffer`.
template <class To, class From>
const To* contiguous_row(const kernels::Strided<From>& from, int64_t b, int64_t h, int64_t i, int64_t j,
                         int64_t n, To* buffer) {
  static_assert(sizeof(To) == sizeof(From));
  const From* row = from.at(b, h, i);
  if (from.col == 1) return reinterpret_cast<const To*>(row + j);
  for (int64_t c = 0; c < n; ++c) buffer[c] = static_cast<To>(row[(j + c) * from.col]);
  return buffer;
}

}  // namespace

RowTerms::RowTerms(const CpuArguments& call, Scratch& scratch, int64_t rows, int64_t cols, bool dropped)
    : call_(call),
      cols_(cols),
      groups_(cols / 16 + 16),
      keep_(scratch.take<uint8_t>(call.keep.col != 1 ? rows * cols : 0)),
      bias_(scratch.take<float>(call.bias.col != 1 ? rows * cols : 0)),
      drop_(dropped && call.dropout ? scratch.take<uint16_t>(rows * groups_) : nullptr) {}

void RowTerms::set(SoftmaxRow& row, int64_t slot, int64_t b, int64_t h, int64_t i, int64_t from,
                   int64_t cols) const {
  row.lo = std::max<int64_t>(call_.key_lo(i) - from, 0);
  row.hi = std::clamp<int64_t>(call_.key_hi(b, i) - from, 0, cols);
  row.rule = call_.rule_of(b, h);
  row.distance = static_cast<float>(call_.band.position(i) - from);
  if (call_.bias) row.bias = contiguous_row(call_.bias, b, h, i, from, cols, bias_ + slot * cols_);
  if (call_.keep) row.keep = contiguous_row(call_.keep, b, h, i, from, cols, keep_ + slot * cols_);
  if (drop_) {
    uint16_t* const bits = drop_ + slot * groups_;
    call_.dropout_bits(b, h, i, from, from + cols, bits, 1);
    row.drop = bits + from % 128 / 16;
  }
}

}  // namespace attentive::kernels::cpu

#pragma once

// The forward pass on a matrix unit.

#include <atomic>
#include <vector>

#include "kernels/attention/passes.h"
#include "kernels/attention/units.h"

namespace attentive::kernels::cpu {

/// Rows of a call that units could not compute.
class RowsLeft {
 public:
  explicit RowsLeft(const Call& call)
      : groups_((call.L + kUnitRows - 1) / kUnitRows),
        rows_(static_cast<size_t>(call.B * call.H * groups_)) {}

  /// Adds rows i0 to i0 + 15, those whose bits are set; i0 is a multiple of 16. Threads may add different
  /// rows.
  void add(const Call& call, int64_t b, int64_t h, int64_t i0, uint32_t rows) {
    rows_[index(call, b, h, i0)] |= static_cast<uint16_t>(rows);
    any_.store(true, std::memory_order_relaxed);
  }
  bool any() const { return any_; }
  bool has(const Call& call, int64_t b, int64_t h, int64_t i) const {
    return (rows_[index(call, b, h, i)] >> i % kUnitRows & 1) != 0;
  }
  bool any_of(const Call& call, int64_t b, int64_t h, int64_t i0, int64_t count) const {
    for (int64_t i = i0; i < i0 + count; ++i) {
      if (has(call, b, h, i)) return true;
    }
    return false;
  }

 private:
  size_t index(const Call& call, int64_t b, int64_t h, int64_t i) const {
    return static_cast<size_t>((b * call.H + h) * groups_ + i / kUnitRows);
  }
  int64_t groups_;
  std::vector<uint16_t> rows_;
  std::atomic<bool> any_ = false;
};

/// Whether the selected code has units, and they know every option of this call.
bool units_compute(const Call& call, const ForwardTensors<bf16_t>& tensors);
/// Computes the call, but for the rows that it adds to `left`.
void forward_units(const Call& call, const ForwardTensors<bf16_t>& tensors, RowsLeft& left);

}  // namespace attentive::kernels::cpu

#pragma once

// The keys and values of a head, packed for the products of the forward pass.

#include "kernels/attention/passes.h"
#include "kernels/gemm/operands.h"

namespace attentive::kernels::cpu {

/// Keys are packed transposed, in panels that are an rhs (D, width). Values are packed as an rhs (keys, Dv):
/// bfloat16 in pairs of rows; float32 only if its rows are not contiguous or were widened from a half type.
template <class Stored, class T>
class PackedKeys {
 public:
  static constexpr int64_t kPanel = 64;    ///< keys per panel
  static constexpr int64_t kBlock = 1024;  ///< keys that are packed at a time

  PackedKeys(const CpuArguments& call, const ForwardTensors<Stored>& tensors, bool one_strip)
      : call_(call),
        t_(tensors),
        width_(std::min(kPanel, round_up(call.S, 16))),
        keys_(round_up(call.S, width_)),
        has_values_(!std::is_same_v<Stored, float> || (tensors.v.row != call.Dv && !one_strip)) {}

  /// The packed memory of one head, and for each value row whether it is finite.
  struct Head {
    T* packed;
    uint8_t* finite;
  };

  int64_t blocks() const { return (call_.S + kBlock - 1) / kBlock; }
  int64_t head_size() const { return keys_ * (inner<T>(call_.D) + (has_values_ ? call_.Dv : 0)); }
  int64_t keys() const { return keys_; }  // rounded up to whole panels
  bool has_values() const { return has_values_; }

  void pack(int64_t b, int64_t hkv, int64_t block, const Head& head) const {
    const int64_t from = block * kBlock, keys = std::min(kBlock, call_.S - from);
    for (int64_t j = from; j < from + keys; j += width_) {
      pack_transposed(rows_of(t_.k, b, hkv, j, std::min(width_, from + keys - j), call_.D), panel(head, j));
    }
    const auto v = rows_of(t_.v, b, hkv, from, keys, call_.Dv);
    const bool all =
        has_values_ ? products().pack_rows(v, values(head, from, keys)) : elementwise().all_finite(v);
    if (all) {
      std::memset(head.finite + from, 1, static_cast<size_t>(keys));
    } else {
      for (int64_t j = 0; j < keys; ++j) head.finite[from + j] = row_is_finite(v.row(j), call_.Dv);
    }
  }

  /// The keys from j to the end of j's panel, at most `n`, as an rhs (D, keys).
  Rhs<const T> keys_from(const Head& head, int64_t j, int64_t n) const {
    const int64_t in_panel = j % width_;
    const Rhs<const T> all = panel(head, j - in_panel);
    return all.block(0, all.rows, in_panel, std::min(width_ - in_panel, n));
  }
  /// The packed values of `count` keys from key j (an even number, for bfloat16) on.
  Rhs<T> values(const Head& head, int64_t j, int64_t count) const {
    return {head.packed + keys_ * inner<T>(call_.D) + j * call_.Dv, count, call_.Dv, call_.Dv};
  }

 private:
  Rhs<T> panel(const Head& head, int64_t first) const {
    return {head.packed + first * inner<T>(call_.D), inner<T>(call_.D), width_, width_};
  }

  const CpuArguments& call_;
  const ForwardTensors<Stored>& t_;
  const int64_t width_, keys_;
  const bool has_values_;
};

}  // namespace attentive::kernels::cpu

#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace attentive {

/// The sum of products aᵀ b, to which rows of a and b are added in chunks. Products have the dtype of a and
/// b, the sum is float32 (float64 for float64).
class GradientAccumulator {
 public:
  GradientAccumulator() = default;
  /// Zeros (rows, columns), like `products`. result: the dtype that `take` will be asked for.
  GradientAccumulator(int64_t rows, int64_t columns, const at::TensorOptions& products,
                      at::ScalarType result);

  bool defined() const { return sum_.defined(); }
  /// Adds factor * aᵀ b for a (N, rows) and b (N, columns).
  void add(const at::Tensor& a, const at::Tensor& b, double factor);
  /// The sum, times a number if `factor` is defined, rounded once; the object is empty afterwards.
  at::Tensor take(const at::Tensor& factor = {});

 private:
  at::ScalarType result_ = at::kFloat;
  at::Tensor sum_;
};

}  // namespace attentive

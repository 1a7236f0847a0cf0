#pragma once

// Shared by products of few rows and of many: the layers of a projection, and what follows a sum.

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include "kernels/gemm/scratch.h"
#include "kernels/simd/elementwise.h"
#include "kernels/simd/matrix.h"

namespace attentive::kernels::cpu {

/// A function of a row of numbers, such as `elementwise().gelu`; x and y may be the same row.
using RowFunction = void (*)(const float* x, float* y, int64_t n);

/// A weight (outputs, features) and a bias (outputs) or an undefined tensor.
struct LinearLayer {
  const at::Tensor& weight;
  const at::Tensor& bias;
};

/// Whether vector code may compute the projections of x: plain numbers of one dtype, float32 or a half type,
/// in sizes that fit, without gradients or autocast.
bool may_multiply(const at::Tensor& x, at::ArrayRef<LinearLayer> layers);

/// The layer's result for x, not initialised.
at::Tensor empty_result(const at::Tensor& x, const LinearLayer& layer);

template <class T>
Matrix<const T> rows_of(const at::Tensor& x) {
  const int64_t features = x.size(-1);
  return {static_cast<const T*>(x.const_data_ptr()), x.numel() / features, features, features};
}

/// The most outputs whose sums are computed at a time, so that they stay in the caches until they are stored.
constexpr int64_t kMostOutputs = 256;

/// One layer of a call, as numbers of type T.
template <class T>
struct LayerNumbers {
  Matrix<const T> weight;
  const T* bias;
  Matrix<T> out;

  LayerNumbers(const LinearLayer& layer, const at::Tensor& result)
      : weight(rows_of<T>(layer.weight)),
        bias(layer.bias.defined() ? static_cast<const T*>(layer.bias.const_data_ptr()) : nullptr),
        out{static_cast<T*>(result.mutable_data_ptr()), result.numel() / weight.rows, weight.rows,
            weight.rows} {}

  int64_t outputs() const { return weight.rows; }

  /// This layer for `count` of the rows, from row r on.
  LayerNumbers part(int64_t r, int64_t count) const {
    auto rows = *this;
    rows.out = out.part(r, count);
    return rows;
  }

  /// Where the sums of outputs from `first` on are computed: float32 in the result itself.
  Matrix<float> sums(int64_t first, int64_t count, Scratch& scratch) const {
    if constexpr (std::is_same_v<T, float>) {
      return out.block(0, out.rows, first, count);
    } else {
      return scratch.matrix<float>(out.rows, count);
    }
  }

  /// Stores function(sums + bias), and with a second layer `up`, times (ups + its bias).
  void finish(int64_t first, const Matrix<float>& sums, RowFunction function) const {
    add_bias(first, sums);
    apply(function, sums);
    store(first, sums);
  }
  void finish_gated(int64_t first, const Matrix<float>& sums, const LayerNumbers& up,
                    const Matrix<float>& ups, RowFunction function) const {
    add_bias(first, sums);
    up.add_bias(first, ups);
    apply(function, sums);
    for (int64_t r = 0; r < sums.rows; ++r) elementwise().multiply_by(ups.row(r), sums.row(r), sums.cols);
    store(first, sums);
  }

 private:
  void add_bias(int64_t first, const Matrix<float>& sums) const {
    if (bias == nullptr) return;
    std::array<float, kMostOutputs> wide;
    elementwise().convert(bias + first, wide.data(), sums.cols);
    for (int64_t r = 0; r < sums.rows; ++r) elementwise().add(wide.data(), sums.row(r), sums.cols);
  }
  static void apply(RowFunction function, const Matrix<float>& numbers) {
    if (function == nullptr) return;
    for (int64_t r = 0; r < numbers.rows; ++r) function(numbers.row(r), numbers.row(r), numbers.cols);
  }
  void store(int64_t first, const Matrix<float>& sums) const {
    if constexpr (!std::is_same_v<T, float>) {
      for (int64_t r = 0; r < sums.rows; ++r)
        elementwise().convert(sums.row(r), out.row(r) + first, sums.cols);
    }
  }
};

// Projections of few rows, x W^T + b, in one pass over the weight with prefetching, so that the time is that
// of reading the weight: at most 32 rows, or 16 where LibTorch has a product of their half type that is as
// fast. If the weight is in a core's caches, they take less time than the overhead of a library call. A call
// wakes the threads once, also if it computes several projections.
//
// The dtype is float32, float16 or bfloat16. Half types are summed in float32, and what is done with a sum
// (bias, function, product) is done in float32 before it is rounded once. The results do not depend on the
// number of threads: a number is computed by one thread in a fixed order.
//
// All functions return an undefined tensor, or none, if at::linear has to compute the call: for other dtypes
// and devices, for more rows, and if gradients, autocast or a tensor subclass must see the call.

/// function(x W^T + b); without a function, the sums themselves.
at::Tensor few_linear(const at::Tensor& x, const LinearLayer& layer, RowFunction function = nullptr);

/// x W^T + b for every layer. All have the same number of features.
std::vector<at::Tensor> few_linears(const at::Tensor& x, at::ArrayRef<LinearLayer> layers);

/// function(x G^T + a) * (x U^T + b), for two layers of equal sizes.
at::Tensor few_gated_linear(const at::Tensor& x, const LinearLayer& gate, const LinearLayer& up,
                            RowFunction function);

// Projections of many rows, x W^T + b, on processors where they are faster here than by LibTorch's libraries:
// a thread transposes the weights of 64 outputs into its cache and multiplies them with all rows, or with a
// block of them. No other memory is needed. What follows a sum (bias, function, product) is computed in
// float32 while the sums are in the cache, and a half type is rounded once.
//
// The results do not depend on the number of threads: a number is computed by one thread in an order that
// depends on the number of features alone.
//
// The functions return an undefined tensor if at::linear has to compute the call: on other processors, for
// other dtypes, for an odd number of bfloat16 features, and if gradients, autocast or a tensor subclass must
// see the call.

/// function(x W^T + b); without a function, the sums themselves.
at::Tensor many_linear(const at::Tensor& x, const LinearLayer& layer, RowFunction function = nullptr);

/// function(x G^T + a) * (x U^T + b), for two layers of equal sizes.
at::Tensor many_gated_linear(const at::Tensor& x, const LinearLayer& gate, const LinearLayer& up,
                             RowFunction function);

}  // namespace attentive::kernels::cpu

#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

namespace attentive {

/// Two tensors agree if max|got - want| <= atol + rtol * max|want|, in float64.
struct Tolerance {
  double rtol;
  double atol;

  /// The largest difference that passes beside numbers of this magnitude.
  double allowed(double magnitude) const { return atol + rtol * magnitude; }
};

/// What two correct implementations of one formula may differ by in arithmetic of this dtype. Output /
/// gradient: float32 (and every other dtype that is not named) rtol 1e-5, atol 2e-6 / 5e-6; float64 rtol
/// 1e-12 / 1e-11; bfloat16 rtol 1e-2 / 3e-2; float16 rtol 2e-3 / 6e-3.
Tolerance tolerance_of(at::ScalarType dtype, bool gradient = false);

/// For numbers that were printed with this many decimals: half a unit of the last one, and 2e-6 for what
/// float32 may differ by.
Tolerance printed_tolerance(int decimals);

/// max|values| over the finite ones; 0 without any. An infinity must not make every difference tolerable.
double largest_magnitude(const at::Tensor& values);

/// How far two tensors are apart, and where the most.
struct Distance {
  double largest = 0.0;  ///< max|got - want|; NaN where either is, infinite where the shapes differ
  int64_t place = -1;    ///< of that element, counted row by row; -1: the shapes differ, or there is none
  double got = 0.0;      ///< the two numbers there
  double want = 0.0;

  bool within(double allowed) const { return largest <= allowed; }  // false for NaN
};

/// Compares in float64, whatever the dtypes and devices are. Equal infinities have the distance 0. Memory:
/// three float64 copies.
Distance distance_of(const at::Tensor& got, const at::Tensor& want);

/// Empty if the two agree, else one line that says what differs. Two undefined tensors agree. Without a
/// tolerance: that of the dtype of `got`.
///
///   if (const auto why = attentive::difference(y, expected); !why.empty()) std::cerr << why << '\n';
std::string difference(const at::Tensor& got, const at::Tensor& want, Tolerance tolerance);
std::string difference(const at::Tensor& got, const at::Tensor& want);

/// The same shape, dtype and bytes.
bool bit_equal(const at::Tensor& a, const at::Tensor& b);

/// How many steps of float32 the two tensors are apart, at most.
int64_t largest_ulp(const at::Tensor& got, const at::Tensor& want);

}  // namespace attentive

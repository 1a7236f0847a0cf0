#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

namespace attentive {

/// Two tensors agree if max|got - want| <= atol + rtol * max|want|, in float64.
struct Tolerance {
  double rtol;
  double atol;

  /// The largest difference that passes for values of this magnitude.
  double allowed(double magnitude) const { return atol + rtol * magnitude; }
};

/// How far two correct implementations of one formula may differ in arithmetic of this dtype. rtol for
/// outputs / gradients: float64 1e-12 / 1e-11, bfloat16 1e-2 / 3e-2, float16 2e-3 / 6e-3. float32, and every
/// dtype not listed, has rtol 1e-5 for both, and atol 2e-6 / 5e-6.
Tolerance tolerance_of(at::ScalarType dtype, bool gradient = false);

/// The tolerance for values printed with this many decimals: half a unit of the last decimal, plus 2e-6 for
/// the rounding of float32.
Tolerance printed_tolerance(int decimals);

/// max|values| over the finite values; 0 if there are none. Infinities are left out, because one would make
/// every difference tolerable.
double largest_magnitude(const at::Tensor& values);

/// The largest difference of two tensors, and where it is.
struct Distance {
  double largest = 0.0;  ///< max|got - want|; NaN if either is, infinite if the shapes differ
  int64_t place = -1;    ///< row-major index of that element; -1: the shapes differ, or there is none
  double got = 0.0;      ///< the two values there
  double want = 0.0;

  bool within(double allowed) const { return largest <= allowed; }  // false for NaN
};

/// Compares two tensors in float64, whatever their dtypes and devices. The distance of equal infinities is 0.
/// Memory: three float64 copies.
Distance distance_of(const at::Tensor& got, const at::Tensor& want);

/// Empty if the two agree, otherwise one line that describes the difference. Two undefined tensors agree. If
/// no tolerance is given, that of the dtype of `got` applies.
///
///   if (const auto why = attentive::difference(y, expected); !why.empty()) std::cerr << why << '\n';
std::string difference(const at::Tensor& got, const at::Tensor& want, Tolerance tolerance);
std::string difference(const at::Tensor& got, const at::Tensor& want);

/// Whether the two have the same shape, dtype and bytes.
bool bit_equal(const at::Tensor& a, const at::Tensor& b);

/// The largest distance of two elements, in float32 ulps.
int64_t largest_ulp(const at::Tensor& got, const at::Tensor& want);

}  // namespace attentive

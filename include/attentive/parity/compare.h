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

/// Determines by drawing which of PyTorch's two CPU streams dropout uses on this machine: "default" or
/// "intel_mkl" (a PyTorch with MKL uses MKL's generator on an Intel processor, so one seed gives two
/// different masks). "unknown" is neither. The default generator is not used.
std::string dropout_stream_of_this_cpu();

/// Whether this machine turns random bits into the same float32 numbers as ATen's AVX2 kernels, which drew
/// the numbers in the cases. Elsewhere ATen rounds differently: on x86 without FMA, the product in a uniform
/// draw is rounded once more, and without AVX2 (on ARM too) normal draws use the C library's functions.
struct DrawKernels {
  bool uniform = true;  ///< whether they are bit-identical
  bool normal = true;   ///< whether they are bit-identical
};

/// Determined by drawing with a seed for which the numbers are known. The default generator is not used.
DrawKernels draw_kernels_of_this_cpu();

/// The distribution of a parameter's initial values: uniform by `uniform_` between bounds below 2, or normal
/// by `randn` and `xavier_normal_`, with a standard deviation of at most 1.
enum class Drawn { Uniform, Normal };

/// Whether weights drawn here in float32 are those that Python drew from the same seed and then converted to
/// the dtype of `want`. They must be bit-identical if `kernels` draws the same bits, otherwise equal within
/// the possible roundings of one draw: for a value x, 2^-23 (1 + |x|) if it is uniform and 2^-21 (5.77 + |x|)
/// if it is normal. Fewer than 16 normal numbers are drawn in float64 on every machine and must be
/// bit-identical.
/// Memory: a few float64 copies, if the bits differ.
bool same_draw(const at::Tensor& got, const at::Tensor& want, Drawn distribution, const DrawKernels& kernels);
bool same_draw(const at::Tensor& got, const at::Tensor& want, Drawn distribution = Drawn::Uniform);

/// Describes the rule that applies to such draws on this machine, for a report.
std::string draw_rule(Drawn distribution, const DrawKernels& kernels);
std::string draw_rule(Drawn distribution);

}  // namespace attentive

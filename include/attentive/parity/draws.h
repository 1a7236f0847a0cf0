#pragma once

#include <string>

#include <ATen/core/Tensor.h>

namespace attentive {

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

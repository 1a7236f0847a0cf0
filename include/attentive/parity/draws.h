#pragma once

#include <string>

#include <ATen/core/Tensor.h>

namespace attentive {

/// Which of PyTorch's two CPU streams dropout draws from on this machine, found out by drawing: "default", or
/// "intel_mkl" (a PyTorch with MKL leaves the draws to MKL on an Intel processor, so one seed gives two
/// different masks). "unknown" is neither. The default generator is not touched.
std::string dropout_stream_of_this_cpu();

/// Whether this machine turns random bits into the same float32 numbers as ATen's AVX2 kernels, which drew
/// what the cases hold. Elsewhere ATen rounds differently: x86 without FMA rounds the product of a uniform
/// draw once more, and without AVX2 (on ARM too) normal draws come from the C library's functions.
struct DrawKernels {
  bool uniform = true;  ///< bit for bit
  bool normal = true;   ///< bit for bit
};

/// Found out by drawing with a seed whose numbers are known. The default generator is not touched.
DrawKernels draw_kernels_of_this_cpu();

/// How a parameter is initialised: by `uniform_` between bounds below 2, or by `randn` and
/// `xavier_normal_`, whose standard deviation is at most 1.
enum class Drawn { Uniform, Normal };

/// Whether weights drawn here in float32 are those that Python drew from the same seed and then converted to
/// the dtype of `want`: bit for bit where `kernels` draw the same bits, otherwise within what the roundings
/// of one draw can amount to: for a number x, 2^-23 (1 + |x|) of a uniform one and 2^-21 (5.77 + |x|) of a
/// normal one. Fewer than 16 normal numbers are drawn in float64 everywhere, and must have the same bits.
/// Memory: a few float64 copies, if the bits differ.
bool same_draw(const at::Tensor& got, const at::Tensor& want, Drawn how, const DrawKernels& kernels);
bool same_draw(const at::Tensor& got, const at::Tensor& want, Drawn how = Drawn::Uniform);

/// The rule for such draws here, in words for a report.
std::string draw_rule(Drawn how, const DrawKernels& kernels);
std::string draw_rule(Drawn how);

}  // namespace attentive

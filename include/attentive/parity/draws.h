#pragma once

#include <string>

#include <ATen/core/Tensor.h>

namespace attentive {

/// Which of PyTorch's two CPU streams dropout draws from on this machine, found out by drawing: "default", or
/// "intel_mkl" (a PyTorch with MKL leaves the draws to MKL on an Intel processor, so one seed gives two
/// different masks). "unknown" is neither. The default generator is not touched.
std::string dropout_stream_of_this_cpu();

/// Whether weights drawn here are those that Python drew from the same seed: bit for bit where ATen runs its
/// AVX2 or AVX-512 kernels, otherwise within 2 ulp of float32, because ATen itself rounds differently there.
bool same_draw(const at::Tensor& got, const at::Tensor& want);

/// Which of the two rules applies here, in words for a report.
std::string draw_rule();

}  // namespace attentive

#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include "kernels/gemm/linear.h"

namespace attentive {

// The next two functions multiply matrices of a half type in float32, a block of rows at a time, and round
// every result once. They record no derivative.

/// x right + b, rounded to the dtype of x, for x (..., K) and b (N) of a half type, where b may be undefined,
/// and float32 right (K, N).
at::Tensor widened_product(const at::Tensor& x, const at::Tensor& right, const at::Tensor& bias = {});

/// a^T b, the sum over rows, rounded to the dtype of a, for a (rows, M) and b (rows, N).
at::Tensor widened_sum_of_rows(const at::Tensor& a, const at::Tensor& b);

/// x W^T + b by the fused at::linear, whose result equals Python's bit for bit, unlike that of C++
/// `nn::Linear::forward` on 3-D input. Without gradients, a few rows are multiplied by this package's own
/// products (kernels/gemm/linear.h), and on some processors more rows too, with results equal to within
/// rounding. A half type for which LibTorch has no fast product on this CPU (widens_products) is computed in
/// float32 and rounded once, under autocast too. The additions of the weight's adapters
/// (functional/adapters.h) are part of the result, here and in `linears`.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

/// A weight and a bias, which may be undefined.
using LinearLayer = kernels::cpu::LinearLayer;

/// linear(x, W, b) for every layer. For few rows without gradients, the weights are read by one parallel
/// pass.
std::vector<at::Tensor> linears(const at::Tensor& x, at::ArrayRef<LinearLayer> layers);

/// Functions of a projection's result that need no pass of their own where this package multiplies.
enum class LinearFunction { GeluTanh, Silu };

// The next two functions return an undefined tensor unless this package multiplies x (see `linear`) and the
// weights have no adapters. A result of a half type is rounded once.

/// function(x W^T + b)
at::Tensor fused_linear(LinearFunction function, const at::Tensor& x, const LinearLayer& layer);
/// function(x G^T + a) * (x U^T + b)
at::Tensor fused_gated_linear(LinearFunction function, const at::Tensor& x, const LinearLayer& gate,
                              const LinearLayer& up);

/// The matrix product a b, with the same rule for half types.
at::Tensor matrix_product(const at::Tensor& a, const at::Tensor& b);

/// a^T b, the sum over the rows of both, with the same rule.
at::Tensor sum_of_rows(const at::Tensor& a, const at::Tensor& b);

/// Whether products of x with a matrix are computed in float32 although x has a half type. On an x86 CPU
/// without AVX-512, LibTorch multiplies half types number by number, at a tenth to a fiftieth of float32's
/// rate; float16 on every CPU without AVX512-FP16.
bool widens_products(const at::Tensor& x);

/// The rule for operands of a dtype on the CPU that autocast does not touch.
bool widens_products(at::ScalarType type);

/// The weights of a language model for its tokens: the table of the embedding, and the weight of the head,
/// (vocabulary, features) each, which may be one tensor.
///
/// If they are one and its gradient is wanted, the two uses read it as two tensors over the same memory, so
/// that the rows that were looked up are added to the head's gradient in place. Autograd alone would first
/// make a second gradient of the size of the table. Gradients are dense and have the same bits either way.
class TiedEmbedding {
 public:
  /// ids: the tokens that will be looked up. If there are as many as words, or if the weights are not on the
  /// CPU, nothing is gained, and both uses read the tensors as they are.
  TiedEmbedding(const at::Tensor& table, const at::Tensor& head, const at::Tensor& ids);

  const at::Tensor& head() const { return head_; }
  /// The rows of ids (...): (..., features).
  at::Tensor rows_of(const at::Tensor& ids) const;

 private:
  at::Tensor table_, head_;
  bool split_ = false;
};

}  // namespace attentive

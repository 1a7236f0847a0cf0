#include "kernels/gemm/few_linear.h"

#include <algorithm>
#include <type_traits>

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "kernels/gemm/operands.h"
#include "kernels/gemm/scratch.h"
#include "kernels/plain.h"
#include "kernels/simd/elementwise.h"

namespace attentive::kernels::cpu {
namespace {

constexpr int64_t kRows = 16;
// From kRowsOfTile rows on, transposing a weight that fits in a core's caches (256 KiB) for a tile product
// pays off.
constexpr int64_t kWeightsOfTile = int64_t{1} << 16, kRowsOfTile = 5;
constexpr int64_t kWeightsOfThread = int64_t{1} << 16;  // the least work for which waking a thread pays off

using Floats = Matrix<const float>;

void multiply_by_tile(const Floats& x, const Floats& weight, const Matrix<float>& out) {
  Scratch& scratch = Scratch::of_this_thread();
  scratch.reset();
  const Rhs<float> rhs{scratch.take<float>(x.cols * out.cols), x.cols, out.cols, out.cols};
  pack_transposed(weight, rhs);
  gemm(x, rhs, out, Sums::Begin);
  gemm_done();
}

template <class T>
void multiply(const Floats& x, const at::Tensor& weight, const Matrix<float>& out) {
  const int64_t features = x.cols;
  const Matrix<const T> weights{static_cast<const T*>(weight.const_data_ptr()), out.cols, features, features};
  if constexpr (std::is_same_v<T, float>) {
    if (x.rows >= kRowsOfTile && features * out.cols <= kWeightsOfTile)
      return multiply_by_tile(x, weights, out);
  }
  const auto grain = std::max<int64_t>(kWeightsOfThread / features, 1);
  at::parallel_for(0, out.cols, grain, [&](int64_t begin, int64_t end) {
    products().multiply_few_rows(x, weights.part(begin, end - begin),
                                 out.block(0, x.rows, begin, end - begin));
  });
}

// The dtypes that are multiplied here. bfloat16 is one of them only if the CPU lacks a fast product for it,
// since LibTorch would then multiply number by number.
bool takes(at::ScalarType type) {
  return type == at::kFloat || type == at::kHalf || (type == at::kBFloat16 && !has_gemm_bf16());
}

void multiply(const Floats& x, const at::Tensor& weight, const Matrix<float>& out) {
  switch (weight.scalar_type()) {
    case at::kHalf:
      return multiply<f16_t>(x, weight, out);
    case at::kBFloat16:
      return multiply<bf16_t>(x, weight, out);
    default:
      return multiply<float>(x, weight, out);
  }
}

}  // namespace

at::Tensor few_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const auto type = x.scalar_type();
  if (at::GradMode::is_enabled() || x.dim() == 0 || weight.dim() != 2 || !takes(type)) return {};
  const int64_t features = weight.size(1), outputs = weight.size(0), numbers = x.numel();
  if (numbers == 0 || numbers > kRows * features || outputs == 0) return {};
  if (x.size(-1) != features || (bias.defined() && (bias.dim() != 1 || bias.size(0) != outputs))) return {};
  if (!is_plain(x, type) || !is_plain(weight, type) || (bias.defined() && !is_plain(bias, type))) return {};
  if (at::autocast::is_autocast_enabled(at::kCPU)) return {};

  at::DimVector sizes(x.sizes());
  sizes.back() = outputs;
  const auto result = at::empty(sizes, x.options().dtype(at::kFloat));
  const auto wide = x.to(at::kFloat);
  const Floats rows{wide.const_data_ptr<float>(), numbers / features, features, features};
  const Matrix<float> out{result.mutable_data_ptr<float>(), rows.rows, outputs, outputs};
  multiply(rows, weight, out);
  if (bias.defined()) {
    const auto wide_bias = bias.to(at::kFloat);
    for (int64_t r = 0; r < out.rows; ++r)
      elementwise().add(wide_bias.const_data_ptr<float>(), out.row(r), outputs);
  }
  return result.to(type);
}

}  // namespace attentive::kernels::cpu

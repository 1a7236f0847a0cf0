#pragma once

#include <cstdint>
#include <ostream>

#include <attentive/modules/module.h>

namespace attentive {

/// Options of `RMSNorm`.
struct RMSNormOptions {
  explicit RMSNormOptions(int64_t features) : features_(features) {}

  TORCH_ARG(int64_t, features);  ///< size of the last dimension
  TORCH_ARG(double, eps) = 1e-6;
};

/// Root mean square normalization over the last dimension: no mean is taken off and there is no shift.
///
///   x (..., features) -> the same shape: weight * x / sqrt(mean(x^2) + eps)
///
/// Parameter weight (ones), as PyTorch's `nn.RMSNorm`, which LibTorch lacks.
/// Throws c10::ValueError for another last size. Memory: the output and one number a row.
/// Source: Zhang and Sennrich 2019, "Root Mean Square Layer Normalization".
///
///   attentive::RMSNorm norm(64);
///   auto y = norm->forward(x);
class RMSNormImpl : public Module<RMSNormImpl> {
 public:
  explicit RMSNormImpl(int64_t features) : RMSNormImpl(RMSNormOptions(features)) {}
  explicit RMSNormImpl(RMSNormOptions options);

  void reset() override;
  void pretty_print(std::ostream& stream) const override;
  at::Tensor forward(const at::Tensor& x);

  RMSNormOptions options;
  at::Tensor weight;
};
using RMSNorm = ModuleHolder<RMSNormImpl>;

}  // namespace attentive

#pragma once

#include <cstdint>

#include <attentive/modules/module.h>

namespace attentive::compat {

/// Options of `LayerNorm`.
struct LayerNormOptions {
  explicit LayerNormOptions(int64_t features) : features_(features) {}

  TORCH_ARG(int64_t, features);  ///< size of the last dimension
  TORCH_ARG(double, eps) = 1e-5;
  TORCH_ARG(bool, bias) = true;  ///< Python's option that C++ `torch::nn::LayerNorm` lacks

  ATTENTIVE_OPTIONS(features_, eps_, bias_);
};

/// Python's `torch.nn.LayerNorm` over the last dimension, with its `bias` option.
///
///   x (..., features) -> (..., features)
///
/// Parameters weight (ones), bias (zeros). Throws c10::ValueError for bad options or another last size.
/// Source: PyTorch 2.11, torch.nn.LayerNorm.
///
///   attentive::compat::LayerNorm norm(attentive::compat::LayerNormOptions(512).bias(false));
///   auto y = norm->forward(x);
class LayerNormImpl : public Module<LayerNormImpl> {
 public:
  static constexpr const char* kName = "compat::LayerNorm";
  explicit LayerNormImpl(int64_t features) : LayerNormImpl(LayerNormOptions(features)) {}
  explicit LayerNormImpl(LayerNormOptions options);

  void reset() override;
  at::Tensor forward(const at::Tensor& x);

  LayerNormOptions options;
  at::Tensor weight, bias;
};
using LayerNorm = ModuleHolder<LayerNormImpl>;

}  // namespace attentive::compat

#pragma once

#include <cstdint>

#include <attentive/modules/module.h>

namespace attentive {

/// Options of `LayerNorm`.
struct LayerNormOptions {
  explicit LayerNormOptions(int64_t emb_dim) : emb_dim_(emb_dim) {}

  TORCH_ARG(int64_t, emb_dim);  ///< features of a token
  TORCH_ARG(double, eps) = 1e-5;
  TORCH_ARG(bool, bias) = true;  ///< whether `shift` exists

  ATTENTIVE_OPTIONS(emb_dim_, eps_, bias_);
};

/// Layer normalization over the features of each token: zero mean, unit (population) variance, then scale and
/// shift.
///
///   x (..., emb_dim) -> the same shape: scale * (x - mean) / sqrt(variance + eps) + shift
///
/// Parameters scale (ones) and shift (zeros): names of the book's GPT (`compat::LayerNorm` has PyTorch's).
/// Throws c10::ValueError for another last size. Memory: the output and two numbers per token.
/// Source: "Build a Large Language Model (From Scratch)", chapter 4; Ba et al. 2016, "Layer Normalization".
///
///   attentive::LayerNorm norm(768);
///   auto y = norm->forward(x);
class LayerNormImpl : public Module<LayerNormImpl> {
 public:
  static constexpr const char* kName = "LayerNorm";
  explicit LayerNormImpl(int64_t emb_dim) : LayerNormImpl(LayerNormOptions(emb_dim)) {}
  explicit LayerNormImpl(LayerNormOptions options_) : options(options_) { build(); }

  void reset() override;
  at::Tensor forward(const at::Tensor& x);

  LayerNormOptions options;
  at::Tensor scale, shift;  ///< shift is undefined without bias
};
using LayerNorm = ModuleHolder<LayerNormImpl>;

/// Options of `RMSNorm`.
struct RMSNormOptions {
  explicit RMSNormOptions(int64_t features) : features_(features) {}

  TORCH_ARG(int64_t, features);  ///< size of the last dimension
  TORCH_ARG(double, eps) = 1e-6;
  /// Whether the factor is 1 + weight, with a weight that begins at zero (Gemma).
  TORCH_ARG(bool, unit_offset) = false;

  ATTENTIVE_OPTIONS(features_, eps_, unit_offset_);
};

/// Root mean square normalization over the last dimension: no mean is subtracted and there is no shift.
///
///   x (..., features) -> the same shape: weight * x / sqrt(mean(x^2) + eps)
///
/// Parameter weight (ones), as PyTorch's `nn.RMSNorm`, which LibTorch lacks. With unit_offset the factor is
/// 1 + weight, computed in float32 at least.
/// Throws c10::ValueError for another last size and, outside autocast, c10::TypeError for another dtype than
/// that of weight. Memory: the output and one number per row.
/// Source: Zhang and Sennrich 2019, "Root Mean Square Layer Normalization".
///
///   attentive::RMSNorm norm(64);
///   auto y = norm->forward(x);
class RMSNormImpl : public Module<RMSNormImpl> {
 public:
  static constexpr const char* kName = "RMSNorm";
  explicit RMSNormImpl(int64_t features) : RMSNormImpl(RMSNormOptions(features)) {}
  explicit RMSNormImpl(RMSNormOptions options_) : options(options_) { build(); }

  void reset() override;
  at::Tensor forward(const at::Tensor& x);

  RMSNormOptions options;
  at::Tensor weight;
};
using RMSNorm = ModuleHolder<RMSNormImpl>;

}  // namespace attentive

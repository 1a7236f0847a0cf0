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
  explicit LayerNormImpl(LayerNormOptions options);

  void reset() override;
  at::Tensor forward(const at::Tensor& x);

  LayerNormOptions options;
  at::Tensor scale, shift;  ///< shift is undefined without bias
};
using LayerNorm = ModuleHolder<LayerNormImpl>;

}  // namespace attentive

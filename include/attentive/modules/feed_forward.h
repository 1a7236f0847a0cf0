#pragma once

#include <cstdint>

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <attentive/modules/module.h>

namespace attentive {

/// Options of `FeedForward`.
struct FeedForwardOptions {
  // Unsigned, because a size that `FeedForward` will refuse may overflow here.
  explicit FeedForwardOptions(int64_t emb_dim)
      : emb_dim_(emb_dim), hidden_dim_(static_cast<int64_t>(4 * static_cast<uint64_t>(emb_dim))) {}

  TORCH_ARG(int64_t, emb_dim);     ///< features of a token, in and out
  TORCH_ARG(int64_t, hidden_dim);  ///< 4 * emb_dim unless set
  TORCH_ARG(bool, bias) = true;

  ATTENTIVE_OPTIONS(emb_dim_, hidden_dim_, bias_);
};

/// Two linear layers with GELU (its tanh approximation) between them, applied to each token independently.
///
///   x (B, T, emb_dim) or (T, emb_dim) -> the same shape, dtype and device of the parameters
///
/// Parameters layers.0 and layers.2: names and random draws of the book's GPT.
/// Throws c10::ValueError for another shape, c10::TypeError for another dtype. Memory: 2 B T hidden_dim
/// numbers. Source: "Build a Large Language Model (From Scratch)", chapter 4; Hendrycks and Gimpel 2016,
/// "GELUs".
///
///   attentive::FeedForward ff(768);
///   auto y = ff->forward(x);
class FeedForwardImpl : public Module<FeedForwardImpl> {
 public:
  static constexpr const char* kName = "FeedForward";
  explicit FeedForwardImpl(int64_t emb_dim) : FeedForwardImpl(FeedForwardOptions(emb_dim)) {}
  explicit FeedForwardImpl(FeedForwardOptions options);

  void reset() override;
  at::Tensor forward(const at::Tensor& x);

  FeedForwardOptions options;
  torch::nn::Sequential layers{nullptr};

 private:
  torch::nn::Linear layer(size_t index) const;
};
using FeedForward = ModuleHolder<FeedForwardImpl>;

}  // namespace attentive

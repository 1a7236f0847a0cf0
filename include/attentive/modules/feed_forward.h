#pragma once

#include <cstdint>
#include <string_view>

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <attentive/modules/module.h>

namespace attentive {

/// The activation between the linear layers of a `FeedForward`.
///   GeluTanh  GELU in its tanh approximation (GPT-2, Gemma)
///   Gelu      GELU with erf (BERT, vision transformers)
///   Silu      x * sigmoid(x) (Llama)
///   Relu      max(x, 0) (the 2017 paper)
///   QuickGelu x * sigmoid(1.702 x) (CLIP)
///   Relu2     max(x, 0)^2 (Nemotron)
enum class Activation { GeluTanh, Gelu, Silu, Relu, QuickGelu, Relu2 };
std::string_view to_string(Activation value);

/// Options of `FeedForward`.
struct FeedForwardOptions {
  explicit FeedForwardOptions(int64_t emb_dim) : emb_dim_(emb_dim) {}

  TORCH_ARG(int64_t, emb_dim);         ///< features of a token, in and out
  TORCH_ARG(int64_t, hidden_dim) = 0;  ///< features between the layers; 0: 4 * emb_dim
  TORCH_ARG(bool, bias) = true;
  TORCH_ARG(Activation, activation) = Activation::GeluTanh;
  /// Whether a third layer, `gate`, multiplies: layers.2(activation(gate(x)) * layers.0(x)). With Silu this
  /// is SwiGLU.
  TORCH_ARG(bool, gated) = false;

  ATTENTIVE_OPTIONS(emb_dim_, hidden_dim_, bias_, activation_, gated_);
};

/// Two linear layers with an activation between them, applied to each token independently.
///
///   x (B, T, emb_dim) or (T, emb_dim) -> the same shape, dtype and device of the parameters
///
/// Parameters layers.0 and layers.2: names and random draws of the book's GPT. With `gated` also gate, drawn
/// after them. Throws c10::ValueError for another shape, c10::TypeError for another dtype. Memory: 2 B T
/// hidden_dim numbers, 4 with `gated`. Source: "Build a Large Language Model (From Scratch)", chapter 4;
/// Hendrycks and Gimpel 2016, "GELUs"; Shazeer 2020, "GLU Variants Improve Transformer".
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
  torch::nn::Linear gate{nullptr};  ///< empty unless gated

 private:
  torch::nn::Linear layer(size_t index) const;
};
using FeedForward = ModuleHolder<FeedForwardImpl>;

}  // namespace attentive

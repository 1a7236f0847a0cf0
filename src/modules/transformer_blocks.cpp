#include <ATen/core/grad_mode.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/functional.h>

#include <attentive/functional/activation_checkpoint.h>
#include <attentive/modules/transformer_blocks.h>

#include "core/check.h"
#include "functional/elementwise.h"
#include "modules/checks.h"
#include "modules/first_weights.h"
#include "modules/projection.h"

namespace attentive {
namespace {

// Adds the activation to `layers`. Its `forward` is not called: it is there to be printed, and so that the
// layers have the indices of the book's class.
void push_activation(torch::nn::Sequential& layers, Activation activation) {
  switch (activation) {
    case Activation::GeluTanh:
      layers->push_back(torch::nn::GELU(torch::nn::GELUOptions().approximate("tanh")));
      return;
    case Activation::Gelu:
      layers->push_back(torch::nn::GELU());
      return;
    case Activation::Silu:
      layers->push_back(torch::nn::SiLU());
      return;
    case Activation::Relu:
      layers->push_back(torch::nn::ReLU());
      return;
    case Activation::QuickGelu:
    case Activation::Relu2:  // LibTorch has no modules for these
      layers->push_back(
          torch::nn::Functional([activation](const at::Tensor& x) { return activate(activation, x); }));
      return;
  }
  TORCH_CHECK_VALUE(false, FeedForwardImpl::kName, ": expected a known activation, got ",
                    static_cast<int>(activation));
}

}  // namespace

std::string_view to_string(Activation value) {
  return enum_name(value, {"gelu_tanh", "gelu", "silu", "relu", "quick_gelu", "relu2"});
}

void FeedForwardImpl::reset() {
  check_positive(kName, "emb_dim", options.emb_dim());
  if (options.hidden_dim() == 0) options.hidden_dim(4 * options.emb_dim());
  check_positive(kName, "hidden_dim", options.hidden_dim());
  const auto linear = [&](int64_t from, int64_t to) { return linear_layer(from, to, options.bias()); };
  layers = register_module("layers", torch::nn::Sequential());
  layers->push_back(linear(options.emb_dim(), options.hidden_dim()));
  push_activation(layers, options.activation());
  layers->push_back(linear(options.hidden_dim(), options.emb_dim()));
  if (options.gated()) gate = register_module("gate", linear(options.emb_dim(), options.hidden_dim()));
}

torch::nn::Linear FeedForwardImpl::layer(size_t index) const {
  return torch::nn::Linear(layers->ptr<torch::nn::LinearImpl>(index));
}

at::Tensor FeedForwardImpl::forward(const at::Tensor& x) {
  const auto first = layer(0);
  check_sequence(kName, "x", x, options.emb_dim(), first->weight);
  const auto hidden = gate ? project_gated(options.activation(), gate, first, x)
                           : project_activated(options.activation(), first, x);
  return project(layer(2), hidden);
}

namespace {

// The sum of x and a sublayer's output, with the norm before the sublayer or after the sum.
template <class Sublayer>
at::Tensor residual(const TransformerBlockOptions& options, bool training, const at::Tensor& x,
                    LayerNorm& norm, Sublayer sublayer) {
  const auto add = [&](const at::Tensor& y) { return add_dropped(x, y, options.dropout(), training); };
  return options.norm_first() ? add(sublayer(norm->forward(x))) : norm->forward(add(sublayer(x)));
}

FeedForward feed_forward(const TransformerBlockOptions& options) {
  const auto dim = options.attention().emb_dim();
  return FeedForward(FeedForwardOptions(dim)
                         .hidden_dim(options.hidden_dim())
                         .bias(options.bias())
                         .activation(options.activation())
                         .gated(options.gated()));
}

LayerNorm layer_norm(const TransformerBlockOptions& options) {
  return LayerNorm(LayerNormOptions(options.attention().emb_dim()).eps(options.eps()).bias(options.bias()));
}

// Calls run(block, inputs), with a checkpoint if the block's options say so. `run` is copied.
template <class Block, class Run>
at::Tensor run_block(Block& block, const std::vector<at::Tensor>& inputs, const Run& run) {
  // The second run needs the block, so one without an owner keeps its activations.
  const auto owned = std::dynamic_pointer_cast<Block>(block.weak_from_this().lock());
  if (!block.options.checkpoint() || !at::GradMode::is_enabled() || !owned) return run(block, inputs);
  return activation_checkpoint(
      [owned, run](const std::vector<at::Tensor>& again) { return std::vector{run(*owned, again)}; }, inputs,
      {.modules = {owned}})[0];
}

}  // namespace

void TransformerBlockImpl::reset() {
  check_probability(kName, "dropout", options.dropout());
  att = register_module("att", TransformerAttention(options.attention()));
  ff = register_module("ff", feed_forward(options));
  norm1 = register_module("norm1", layer_norm(options));
  norm2 = register_module("norm2", layer_norm(options));
}

at::Tensor TransformerBlockImpl::forward(const at::Tensor& x, const Mask& mask) {
  return run_block(*this, {x}, [mask](TransformerBlockImpl& block, const std::vector<at::Tensor>& in) {
    const auto attended = residual(block.options, block.is_training(), in[0], block.norm1,
                                   [&](const at::Tensor& y) { return block.att->forward(y, mask); });
    return residual(block.options, block.is_training(), attended, block.norm2,
                    [&](const at::Tensor& y) { return block.ff->forward(y); });
  });
}

at::Tensor TransformerBlockImpl::forward_cached(const at::Tensor& x, KVCache& cache, int64_t layer,
                                                const Mask& mask) {
  const auto attended = residual(options, is_training(), x, norm1, [&](const at::Tensor& y) {
    return att->forward_cached(y, cache, layer, mask);
  });
  return residual(options, is_training(), attended, norm2,
                  [&](const at::Tensor& y) { return ff->forward(y); });
}

TransformerBlock encoder_block(TransformerBlockOptions options) {
  auto attention = options.attention();
  auto call_options = attention.attention();
  call_options.causal = Causal::None;
  options.attention(attention.attention(call_options));
  return TransformerBlock(std::move(options));
}

void DecoderBlockImpl::reset() {
  check_probability(kName, "dropout", options.dropout());
  const auto& attention = options.attention();
  att = register_module("att", TransformerAttention(attention));
  const auto memory_dim = options.memory_dim() == 0 ? attention.emb_dim() : options.memory_dim();
  cross = register_module("cross", CrossAttention(CrossAttentionOptions(
                                       attention.emb_dim(), memory_dim, attention.emb_dim(),
                                       attention.dropout(), attention.num_heads(), attention.qkv_bias())));
  ff = register_module("ff", feed_forward(options));
  norm1 = register_module("norm1", layer_norm(options));
  norm2 = register_module("norm2", layer_norm(options));
  norm3 = register_module("norm3", layer_norm(options));
}

at::Tensor DecoderBlockImpl::forward(const at::Tensor& x, const at::Tensor& memory, const Mask& mask,
                                     const Mask& memory_mask) {
  return run_block(
      *this, {x, memory}, [mask, memory_mask](DecoderBlockImpl& block, const std::vector<at::Tensor>& in) {
        const auto add = [&](const at::Tensor& y, LayerNorm& norm, const auto& sublayer) {
          return residual(block.options, block.is_training(), y, norm, sublayer);
        };
        const auto attended =
            add(in[0], block.norm1, [&](const at::Tensor& y) { return block.att->forward(y, mask); });
        const auto informed = add(attended, block.norm2, [&](const at::Tensor& y) {
          return block.cross->forward(y, in[1], memory_mask);
        });
        return add(informed, block.norm3, [&](const at::Tensor& y) { return block.ff->forward(y); });
      });
}

}  // namespace attentive

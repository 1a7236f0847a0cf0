#include <attentive/modules/transformer_blocks.h>

#include "core/check.h"
#include "functional/elementwise.h"

namespace attentive {
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

}  // namespace

TransformerBlockImpl::TransformerBlockImpl(TransformerBlockOptions options_) : options(std::move(options_)) {
  build();
}

void TransformerBlockImpl::reset() {
  check_probability(kName, "dropout", options.dropout());
  att = register_module("att", TransformerAttention(options.attention()));
  ff = register_module("ff", feed_forward(options));
  norm1 = register_module("norm1", layer_norm(options));
  norm2 = register_module("norm2", layer_norm(options));
}

at::Tensor TransformerBlockImpl::forward(const at::Tensor& x, const Mask& mask) {
  const auto attended =
      residual(options, is_training(), x, norm1, [&](const at::Tensor& y) { return att->forward(y, mask); });
  return residual(options, is_training(), attended, norm2,
                  [&](const at::Tensor& y) { return ff->forward(y); });
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

DecoderBlockImpl::DecoderBlockImpl(TransformerBlockOptions options_) : options(std::move(options_)) {
  build();
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
  const auto attended =
      residual(options, is_training(), x, norm1, [&](const at::Tensor& y) { return att->forward(y, mask); });
  const auto informed = residual(options, is_training(), attended, norm2,
                                 [&](const at::Tensor& y) { return cross->forward(y, memory, memory_mask); });
  return residual(options, is_training(), informed, norm3,
                  [&](const at::Tensor& y) { return ff->forward(y); });
}

}  // namespace attentive

#include <algorithm>
#include <cmath>

#include <ATen/ops/scalar_tensor.h>

#include <attentive/models/llama.h>

#include "functional/linear.h"
#include "models/checkpointed_blocks.h"
#include "models/decoder_only.h"
#include "modules/checks.h"
#include "modules/first_weights.h"

namespace attentive {
namespace {

// The window of a layer; 0: none.
int64_t window_of(const LlamaOptions& options, int64_t layer) {
  const auto index = static_cast<size_t>(layer);
  return index < options.windows().size() ? options.windows()[index] : 0;
}

// The largest window if every layer has one, otherwise 0.
int64_t window_of_all(const LlamaOptions& options) {
  int64_t largest = 0;
  for (int64_t i = 0; i < options.num_layers(); ++i) {
    const auto window = window_of(options, i);
    if (window == 0) return 0;
    largest = std::max(largest, window);
  }
  return largest;
}

RMSNormOptions norm_options(const LlamaOptions& options) {
  return RMSNormOptions(options.emb_dim()).eps(options.eps()).unit_offset(options.unit_offset());
}

TransformerAttentionOptions attention_options(const LlamaOptions& options, int64_t layer) {
  const auto window = window_of(options, layer);
  AttentionOptions call_options{
      .scale = options.scale(), .causal = Causal::BottomRight, .softcap = options.softcap()};
  if (window > 0) call_options.window = {window - 1, 0};
  const bool rotates_differently = window > 0 && options.window_rotary().has_value();
  return TransformerAttentionOptions(options.emb_dim(), options.num_heads())
      .num_kv_heads(options.num_kv_heads())
      .head_dim(options.head_dim())
      .context_length(options.context_length())
      .dropout(options.dropout())
      .qkv_bias(options.qkv_bias())
      .out_bias(options.out_bias())
      .rotary(rotates_differently ? *options.window_rotary() : options.rotary())
      .qk_norm(options.qk_norm())
      .head_norm(norm_options(options))
      .attention(call_options);
}

FeedForward feed_forward(const LlamaOptions& options) {
  return FeedForward(FeedForwardOptions(options.emb_dim())
                         .hidden_dim(options.hidden_dim())
                         .bias(options.ff_bias())
                         .activation(options.activation())
                         .gated(true));
}

DecoderSizes llama_sizes(const LlamaOptions& options) {
  return {LlamaImpl::kName, options.vocab_size(), options.num_layers(), options.context_length()};
}

void check_options(const char* caller, const LlamaOptions& options) {
  check_positive(caller, "vocab_size", options.vocab_size());
  check_positive(caller, "emb_dim", options.emb_dim());
  check_count(caller, "num_layers", options.num_layers());
  check_count(caller, "num_heads", options.num_heads());
  if (options.head_dim() == 0) check_heads(caller, "emb_dim", options.emb_dim(), options.num_heads());
  TORCH_CHECK_VALUE(options.context_length() >= 0, caller, ": expected context_length >= 0, got ",
                    options.context_length());
  check_probability(caller, "dropout", options.dropout());
  check_eps(caller, options.eps());
  const auto cap = options.logit_softcap().value_or(1.0);
  TORCH_CHECK_VALUE(std::isfinite(cap) && cap > 0, caller, ": expected logit_softcap > 0, got ", cap);
  TORCH_CHECK_VALUE(options.windows().size() <= static_cast<size_t>(options.num_layers()), caller,
                    ": expected windows for at most num_layers = ", options.num_layers(), " layers, got ",
                    options.windows().size());
  TORCH_CHECK_VALUE(options.checkpoint() >= 0, caller, ": expected checkpoint >= 0, got ",
                    options.checkpoint());
  for (const auto window : options.windows())
    TORCH_CHECK_VALUE(window >= 0, caller, ": expected windows >= 0, got ", window);
}

}  // namespace

LlamaBlockImpl::LlamaBlockImpl(LlamaOptions options_, int64_t layer)
    : options(std::move(options_)), layer_(layer) {
  build();
}

void LlamaBlockImpl::reset() {
  check_options(kName, options);
  TORCH_CHECK_VALUE(layer_ >= 0 && layer_ < options.num_layers(), kName, ": expected layer in [0, ",
                    options.num_layers(), "), got ", layer_);
  att = register_module("att", TransformerAttention(attention_options(options, layer_)));
  ff = register_module("ff", feed_forward(options));
  norm1 = register_module("norm1", RMSNorm(norm_options(options)));
  norm2 = register_module("norm2", RMSNorm(norm_options(options)));
  if (options.norm_after()) {
    after1 = register_module("after1", RMSNorm(norm_options(options)));
    after2 = register_module("after2", RMSNorm(norm_options(options)));
  }
}

at::Tensor LlamaBlockImpl::forward(const at::Tensor& x, const Mask& mask) {
  return run(x, nullptr, 0, mask);
}

at::Tensor LlamaBlockImpl::forward_cached(const at::Tensor& x, KVCache& cache, int64_t layer,
                                          const Mask& mask) {
  return run(x, &cache, layer, mask);
}

at::Tensor LlamaBlockImpl::run(const at::Tensor& x, KVCache* cache, int64_t layer, const Mask& mask) {
  const auto normed = norm1->forward(x);
  auto y = cache ? att->forward_cached(normed, *cache, layer, mask) : att->forward(normed, mask);
  const auto attended = x + (after1 ? after1->forward(y) : y);
  y = ff->forward(norm2->forward(attended));
  return attended + (after2 ? after2->forward(y) : y);
}

LlamaImpl::LlamaImpl(LlamaOptions options_) : options(std::move(options_)) {
  build();
}

void LlamaImpl::reset() {
  check_options(kName, options);
  tok_emb = register_module("tok_emb", embedding_layer(options.vocab_size(), options.emb_dim()));
  blocks = register_module("blocks", torch::nn::ModuleList());
  for (int64_t i = 0; i < options.num_layers(); ++i) blocks->push_back(LlamaBlock(options, i));
  final_norm = register_module("final_norm", RMSNorm(norm_options(options)));
  if (!options.tied()) {
    out_head =
        register_module("out_head", linear_layer(options.emb_dim(), options.vocab_size(), /*bias=*/false));
  }
}

at::Tensor LlamaImpl::forward(const at::Tensor& ids, const Mask& mask, Logits which) {
  const auto weights = token_weights(ids);
  return head(weights).logits(features(weights, ids, nullptr, mask, which));
}

at::Tensor LlamaImpl::forward_cached(const at::Tensor& ids, KVCache& cache, const Mask& mask, Logits which) {
  const auto weights = token_weights(ids);
  return head(weights).logits(features(weights, ids, &cache, mask, which));
}

TokenWeights LlamaImpl::token_weights(const at::Tensor& ids) const {
  return {tok_emb->weight, options.tied() ? tok_emb->weight : out_head->weight, ids};
}

LogitHead LlamaImpl::head(const TokenWeights& weights) const {
  return {weights.head(), options.logit_softcap()};
}

at::Tensor LlamaImpl::features(const TokenWeights& weights, const at::Tensor& ids, KVCache* cache,
                               const Mask& mask, Logits which) {
  check_ids(llama_sizes(options), ids, cache);
  auto x = weights.rows_of(ids);
  if (options.scaled_embedding()) {  // the factor is rounded to x's dtype, as in Gemma's training
    const auto root = std::sqrt(static_cast<double>(options.emb_dim()));
    x = x * at::scalar_tensor(root, at::TensorOptions(x.scalar_type()));
  }
  if (!cache) {
    x = run_blocks<LlamaBlockImpl>(
        *blocks, x, options.checkpoint(),
        [mask](LlamaBlockImpl& block, const at::Tensor& y) { return block.forward(y, mask); });
  } else {
    for (int64_t i = 0; i < options.num_layers(); ++i) {
      x = blocks->at<LlamaBlockImpl>(static_cast<size_t>(i)).forward_cached(x, *cache, i, mask);
    }
  }
  return final_norm->forward(tokens_with_logits(x, which));
}

at::Tensor LlamaImpl::loss(const at::Tensor& ids, const at::Tensor& targets) {
  const auto weights = token_weights(ids);
  return next_token_loss(llama_sizes(options), ids, targets, head(weights),
                         [&] { return features(weights, ids, nullptr, {}, Logits::All); });
}

std::unique_ptr<KVCache> LlamaImpl::make_cache(int64_t batch, int64_t capacity) const {
  TORCH_CHECK_VALUE(capacity != 0 || options.context_length() > 0 || window_of_all(options) > 0, kName,
                    ": expected a capacity, because there is neither a context_length nor a window in every "
                    "layer");
  return empty_cache(llama_sizes(options), *blocks->at<LlamaBlockImpl>(0).att, tok_emb->weight, batch,
                     capacity, window_of_all(options));
}

}  // namespace attentive

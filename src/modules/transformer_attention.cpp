#include <ATen/ops/arange.h>

#include <attentive/functional/heads_and_windows.h>
#include <attentive/modules/transformer_attention.h>

#include "modules/attend.h"
#include "modules/checks.h"
#include "modules/first_weights.h"
#include "modules/projection.h"

namespace attentive {
namespace {

// Throws unless the cache keeps the places of the keys that `score` and `block_mask` read.
void check_cached_functions(const TransformerAttentionOptions& layer, const KVCache& cache) {
  const bool ring = dynamic_cast<const RingKVCache*>(&cache) != nullptr;
  TORCH_CHECK_VALUE(!(ring || cache.padding().defined()) || !(layer.score() || layer.block_mask()),
                    TransformerAttentionImpl::kName, ": expected no ", layer.score() ? "score" : "block_mask",
                    " with a ", ring ? "RingKVCache" : "padded KVCache",
                    ", whose keys have lost their places in the sequence, got \"",
                    layer.score() ? layer.score().name() : layer.block_mask().mask().name(),
                    "\"; a DenseKVCache ", ring ? "" : "without padding ", "keeps them");
}

}  // namespace

void check_cached_attention(const char* caller, const AttentionOptions& options, const KVCache& cache,
                            int64_t layer) {
  TORCH_CHECK_VALUE(options.causal == Causal::BottomRight, caller,
                    ": expected bottom-right causal attention with a cache, got ", to_string(options.causal));
  const auto* ring = dynamic_cast<const RingKVCache*>(&cache);
  TORCH_CHECK_VALUE(options.align == Align::BottomRight || (options.align == Align::Lengths && !ring), caller,
                    ": expected queries at the bottom right", ring ? "" : " or aligned by lengths",
                    " with this cache, got align ", to_string(options.align));
  TORCH_CHECK_VALUE(!ring || (options.window.left >= 0 && options.window.left < ring->window()), caller,
                    ": expected a window of at most ", ring ? ring->window() : 0,
                    " tokens with this RingKVCache, got window.left = ", options.window.left);
  TORCH_CHECK_VALUE(layer >= 0 && layer < cache.options().layers, caller,
                    ": expected a layer of the cache in [0, ", cache.options().layers, "), got ", layer);
}

Mask without_padding(const Mask& mask, const KVCache& cache, int64_t layer) {
  if (!cache.padding().defined()) return mask;
  const auto end = cache.position(layer);
  const auto token = at::arange(end - cache.stored(layer), end, cache.padding().options());
  return mask & Mask::key_keep(token.ge(cache.padding().unsqueeze(1)));
}

void TransformerAttentionImpl::reset() {
  check_positive(kName, "emb_dim", options.emb_dim());
  if (options.head_dim() == 0) {
    check_heads(kName, "emb_dim", options.emb_dim(), options.num_heads());
  } else {
    check_count(kName, "head_dim", options.head_dim());
    check_count(kName, "num_heads", options.num_heads());
  }
  check_heads(kName, "num_heads", options.num_heads(), num_kv_heads(), "num_kv_heads");
  check_attention_options(kName, options);

  const auto linear = [&](int64_t heads) {
    return linear_layer(options.emb_dim(), heads * head_dim(), options.qkv_bias());
  };
  W_query = register_module("W_query", linear(options.num_heads()));
  W_key = register_module("W_key", linear(num_kv_heads()));
  W_value = register_module("W_value", linear(num_kv_heads()));
  const auto width = options.num_heads() * head_dim();
  out_proj = register_module("out_proj", linear_layer(width, options.emb_dim(), options.out_bias()));
  if (options.rotary()) {
    rotary = register_module("rotary",
                             RotaryPositions(RotaryPositionsOptions(*options.rotary()).head_dim(head_dim())));
  }
  if (options.qk_norm()) {
    const auto norm = RMSNormOptions(options.head_norm()).features(head_dim());
    q_norm = register_module("q_norm", RMSNorm(norm));
    k_norm = register_module("k_norm", RMSNorm(norm));
  }
  if (options.output_gate()) {
    W_gate = register_module("W_gate", linear_layer(options.emb_dim(), width, options.qkv_bias()));
  }
  position_bias = make_position_bias(kName, options.position_bias(), options.num_heads());
  if (position_bias) register_module("position_bias", position_bias);
}

at::Tensor TransformerAttentionImpl::forward(const at::Tensor& x, const Mask& mask) {
  return run(x, nullptr, 0, mask);
}

at::Tensor TransformerAttentionImpl::forward_cached(const at::Tensor& x, KVCache& cache, int64_t layer,
                                                    const Mask& mask) {
  check_cached_attention(kName, options.attention(), cache, layer);
  check_cached_functions(options, cache);
  TORCH_CHECK_VALUE(!context, kName,
                    ": expected no cache for a sequence split over processes (context is set)");
  check_position_bias_cache(kName, options.position_bias());
  return run(x, &cache, layer, mask);
}

at::Tensor TransformerAttentionImpl::run(const at::Tensor& x, KVCache* cache, int64_t layer,
                                         const Mask& mask) {
  check_sequence(kName, "x", x, options.emb_dim(), W_query->weight);
  const auto first = cache ? cache->position(layer) : 0, padding = cache ? cache->least_padding() : 0;
  check_context(kName, first + x.size(-2) * (context ? context->size() : 1) - padding,
                options.context_length());
  TORCH_CHECK_VALUE(!context || !position_bias, kName,
                    ": expected no position_bias for a sequence split over processes (context is set)");
  check_position_bias_tokens(kName, options.position_bias(), x.size(-2));
  const auto heads_of_x = project_heads({W_query, W_key, W_value}, x, head_dim());
  auto q = heads_of_x[0], k = heads_of_x[1], v = heads_of_x[2];
  if (q_norm) {
    q = q_norm->forward(q);
    k = k_norm->forward(k);
  }
  if (rotary) {
    const auto rotate = [&](const at::Tensor& piece, int64_t offset) {
      return rotary->forward(piece, offset);
    };
    q = by_runs(context.get(), q, first, rotate);
    k = by_runs(context.get(), k, first, rotate);
  }
  if (cache) std::tie(k, v) = cache->append(layer, k, v);
  const auto seen = cache ? without_padding(mask, *cache, layer) : mask;
  auto heads = merge_heads(attend(*this, q, k, v, seen, Weights::None).first);
  if (W_gate) heads = heads * project(W_gate, batched(x)).sigmoid();
  return unbatched_like(x, project(out_proj, heads), {}).first;
}

}  // namespace attentive

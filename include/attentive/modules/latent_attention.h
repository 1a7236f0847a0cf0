#pragma once

#include <utility>

#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/linear.h>

#include <attentive/cache/kv_cache.h>
#include <attentive/core/mask.h>
#include <attentive/core/options.h>
#include <attentive/modules/module.h>
#include <attentive/modules/norms.h>
#include <attentive/modules/positions.h>

namespace attentive {

/// Options of `LatentAttention`.
struct LatentAttentionOptions {
  LatentAttentionOptions(int64_t emb_dim, int64_t num_heads) : emb_dim_(emb_dim), num_heads_(num_heads) {}

  TORCH_ARG(int64_t, emb_dim);  ///< features of a token, in and out
  TORCH_ARG(int64_t, num_heads);
  /// Features to which queries are compressed (q_a_proj, q_b_proj); 0: none, queries have one projection
  /// (q_proj).
  TORCH_ARG(int64_t, q_lora_rank) = 0;
  TORCH_ARG(int64_t, kv_lora_rank) = 512;      ///< features of the latent that keys and values are made of
  TORCH_ARG(int64_t, qk_nope_head_dim) = 128;  ///< features of a query and a key that are not rotated
  TORCH_ARG(int64_t, qk_rope_head_dim) = 64;   ///< features that are, even; all heads share those of the key
  TORCH_ARG(int64_t, v_head_dim) = 128;        ///< features of a value
  TORCH_ARG(int64_t, context_length) = 0;   ///< maximum number of tokens, cached ones included; 0: no limit
  TORCH_ARG(double, dropout) = 0.0;         ///< probability of dropping an attention weight in training
  TORCH_ARG(bool, attention_bias) = false;  ///< whether q_a_proj, kv_a_proj_with_mqa and o_proj have biases
  TORCH_ARG(double, eps) = 1e-6;            ///< of both norms
  /// Pairs and angles of the rotation; the module sets its head_dim. transformers' rope_interleave = false
  /// is RotaryPairing::Halves.
  TORCH_ARG(RotaryPositionsOptions, rotary) = RotaryPositionsOptions(64);
  /// How the heads attend. Its `dropout_p` must stay 0: `dropout` applies, in training only. Without a scale,
  /// scores are divided by sqrt(qk_nope_head_dim + qk_rope_head_dim) and, with RotaryScaling::Yarn and
  /// mscale_all_dim, multiplied by the square of `RotaryPositions::mscale(mscale_all_dim)`; a scale replaces
  /// both.
  TORCH_ARG(AttentionOptions, attention) = AttentionOptions{.causal = Causal::BottomRight};

  ATTENTIVE_OPTIONS(emb_dim_, num_heads_, q_lora_rank_, kv_lora_rank_, qk_nope_head_dim_, qk_rope_head_dim_,
                    v_head_dim_, context_length_, dropout_, attention_bias_, eps_, rotary_, attention_);
};

/// Multi-head latent attention: the keys and values of all heads are linear functions of one latent per
/// token, which is all that a cache keeps, beside one rotated key that the heads share.
///
///   x (B, T, emb_dim) or (T, emb_dim) -> the same shape, dtype and device of the parameters
///
/// Parameters q_proj, or q_a_proj, q_a_layernorm and q_b_proj; kv_a_proj_with_mqa, kv_a_layernorm, kv_b_proj,
/// o_proj: names, shapes and draws of transformers' `DeepseekV3Attention`. A query that a mask leaves without
/// keys yields the bias of o_proj, or zero. Throws c10::ValueError for another shape or more than
/// context_length tokens, c10::TypeError for another dtype.
/// Memory: `forward` makes the keys and values of every head, O(B T num_heads (qk_nope_head_dim +
/// qk_rope_head_dim + v_head_dim)); a cache holds kv_lora_rank + qk_rope_head_dim numbers per token.
/// Source: DeepSeek-AI 2024, "DeepSeek-V2", section 2.1.
///
///   attentive::LatentAttention attention(attentive::LatentAttentionOptions(1024, 16));
///   attentive::DenseKVCache cache(attention->cache_options(/*layers=*/1, /*batch=*/1), /*capacity=*/4096);
///   auto y = attention->forward_cached(x, cache, 0);  // under at::NoGradGuard; training calls forward(x)
class LatentAttentionImpl : public Module<LatentAttentionImpl> {
 public:
  static constexpr const char* kName = "LatentAttention";
  LatentAttentionImpl(int64_t emb_dim, int64_t num_heads)
      : LatentAttentionImpl(LatentAttentionOptions(emb_dim, num_heads)) {}
  explicit LatentAttentionImpl(LatentAttentionOptions options_) : options(std::move(options_)) { build(); }

  void reset() override;

  at::Tensor forward(const at::Tensor& x, const Mask& mask = {});
  /// Like `forward`, for tokens that follow those in the cache: x holds only the new tokens; `mask` covers
  /// every key, cached ones included. For few tokens kv_b_proj is absorbed into the queries and the output,
  /// so that each latent is read once for all heads; for many, the keys and values of all cached tokens are
  /// made first, which takes fewer operations. Requires what `TransformerAttention::forward_cached` does,
  /// and a cache of `cache_options`.
  at::Tensor forward_cached(const at::Tensor& x, KVCache& cache, int64_t layer, const Mask& mask = {});

  /// The options of a cache for `layers` such modules: one head, whose keys are the latent and the rotated
  /// key, and whose values are the latent.
  KVCacheOptions cache_options(int64_t layers, int64_t batch) const;

  LatentAttentionOptions options;
  torch::nn::Linear q_proj{nullptr};                       ///< null with q_lora_rank
  torch::nn::Linear q_a_proj{nullptr}, q_b_proj{nullptr};  ///< null without it
  RMSNorm q_a_layernorm{nullptr};                          ///< likewise
  torch::nn::Linear kv_a_proj_with_mqa{nullptr}, kv_b_proj{nullptr}, o_proj{nullptr};
  RMSNorm kv_a_layernorm{nullptr};
  RotaryPositions rotary{nullptr};

 private:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(Mask())})

  // What the heads read, (B, H, T, v_head_dim). The cache, if there is one, gets the tokens of x.
  at::Tensor attended(const at::Tensor& x, KVCache* cache, int64_t layer, const Mask& mask);
};
using LatentAttention = ModuleHolder<LatentAttentionImpl>;

}  // namespace attentive

#pragma once

#include <memory>
#include <optional>
#include <utility>

#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/linear.h>

#include <attentive/cache/kv_cache.h>
#include <attentive/core/mask.h>
#include <attentive/core/options.h>
#include <attentive/functional/attention.h>
#include <attentive/modules/module.h>
#include <attentive/modules/norms.h>
#include <attentive/modules/position_bias.h>
#include <attentive/modules/positions.h>
#include <attentive/score/score_callbacks.h>

namespace attentive {

/// Options of `TransformerAttention`.
struct TransformerAttentionOptions {
  TransformerAttentionOptions(int64_t emb_dim, int64_t num_heads)
      : emb_dim_(emb_dim), num_heads_(num_heads) {}

  TORCH_ARG(int64_t, emb_dim);  ///< features of a token, in and out; num_heads divides it, or head_dim is set
  TORCH_ARG(int64_t, num_heads);
  TORCH_ARG(int64_t, num_kv_heads) = 0;    ///< divides num_heads (grouped queries); 0: num_heads
  TORCH_ARG(int64_t, head_dim) = 0;        ///< features of a head; 0: emb_dim / num_heads
  TORCH_ARG(int64_t, context_length) = 0;  ///< maximum number of tokens, cached ones included; 0: no limit
  TORCH_ARG(double, dropout) = 0.0;        ///< probability of dropping an attention weight in training
  TORCH_ARG(bool, qkv_bias) = false;
  TORCH_ARG(bool, out_bias) = true;
  /// Rotates queries and keys by their positions; the module sets its head_dim.
  TORCH_ARG(std::optional<RotaryPositionsOptions>, rotary) = std::nullopt;
  /// A learned bias by position, as the child `position_bias`: the options of one of its modules.
  TORCH_ARG(PositionBiasOptions, position_bias) = {};
  /// Whether queries and keys of every head are normalized (`RMSNorm` over head_dim) before the rotation.
  TORCH_ARG(bool, qk_norm) = false;
  TORCH_ARG(RMSNormOptions, head_norm) = RMSNormOptions(0);  ///< for qk_norm; the module sets its features
  /// Whether sigmoid(W_gate x) multiplies the heads' output elementwise before out_proj.
  TORCH_ARG(bool, output_gate) = false;
  /// A custom score function (`score_mod`) for every call, and a mask: a mask function (`mask_mod`), or
  /// a `BlockMask` whose classified tiles serve every layer and step of the lengths that it has. Copies of
  /// the options share the function and the tensors that it captured, which are no parameters of the module:
  /// `to` does not move them, and no file holds them.
  TORCH_ARG(ScoreMod, score) = {};
  TORCH_ARG(BlockMask, block_mask) = {};
  /// How the heads attend. Its `dropout_p` must stay 0: `dropout` applies, in training only.
  TORCH_ARG(AttentionOptions, attention) = AttentionOptions{.causal = Causal::BottomRight};

  ATTENTIVE_OPTIONS(emb_dim_, num_heads_, num_kv_heads_, head_dim_, context_length_, dropout_, qkv_bias_,
                    out_bias_, rotary_, position_bias_, qk_norm_, head_norm_, output_gate_, score_,
                    block_mask_, attention_);
};

/// The self-attention of the transformer blocks: `MultiHeadAttention` with grouped queries, rotary positions
/// and a key-value cache.
///
///   x (B, T, emb_dim) or (T, emb_dim) -> the same shape, dtype and device of the parameters
///
/// Parameters W_query, W_key, W_value, out_proj: names and random draws of the chapter-3
/// `MultiHeadAttention`. With qk_norm also q_norm.weight and k_norm.weight; with output_gate also W_gate,
/// drawn after out_proj; with position_bias also those of its module, drawn last. A query that a mask leaves
/// without keys yields the bias of out_proj. Throws c10::ValueError for another shape or more than
/// context_length tokens, c10::TypeError for another dtype.
/// Memory: O(B T emb_dim) beyond input and output with a fused backend; a table of position biases adds
/// O(num_heads T T). Sources: Dehghani et al. 2023, "Scaling Vision Transformers to 22 Billion Parameters"
/// (qk_norm); Qiu et al. 2025, "Gated Attention for Large Language Models" (output_gate).
///
///   attentive::TransformerAttention attention(attentive::TransformerAttentionOptions(768, 12));
///   auto y = attention->forward(x);
class TransformerAttentionImpl : public Module<TransformerAttentionImpl> {
 public:
  static constexpr const char* kName = "TransformerAttention";
  TransformerAttentionImpl(int64_t emb_dim, int64_t num_heads)
      : TransformerAttentionImpl(TransformerAttentionOptions(emb_dim, num_heads)) {}
  explicit TransformerAttentionImpl(TransformerAttentionOptions options_) : options(std::move(options_)) {
    build();
  }

  void reset() override;

  at::Tensor forward(const at::Tensor& x, const Mask& mask = {});
  /// Like `forward`, for tokens that follow those in the cache: x holds only the new tokens; `mask` covers
  /// every key, cached ones included. Requires bottom-right causal attention and, with a `RingKVCache`, a
  /// window no larger than the cache's and neither `score` nor `block_mask`, since it forgets where its keys
  /// are; so does a cache with padding, whose keys are hidden. The rotation counts padding as well, which
  /// changes no distance between tokens.
  at::Tensor forward_cached(const at::Tensor& x, KVCache& cache, int64_t layer, const Mask& mask = {});

  int64_t head_dim() const {
    return options.head_dim() == 0 ? options.emb_dim() / options.num_heads() : options.head_dim();
  }
  int64_t num_kv_heads() const {
    return options.num_kv_heads() == 0 ? options.num_heads() : options.num_kv_heads();
  }

  TransformerAttentionOptions options;
  torch::nn::Linear W_query{nullptr}, W_key{nullptr}, W_value{nullptr}, out_proj{nullptr};
  RotaryPositions rotary{nullptr};
  RMSNorm q_norm{nullptr}, k_norm{nullptr};
  torch::nn::Linear W_gate{nullptr};
  std::shared_ptr<torch::nn::Module> position_bias;  ///< null without the option
  /// If set, x holds this process's tokens of a longer sequence, `mask` covers the whole sequence, and a
  /// cache and a position bias are refused.
  std::shared_ptr<AttentionContext> context;

 private:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(Mask())})

  at::Tensor run(const at::Tensor& x, KVCache* cache, int64_t layer, const Mask& mask);
};
using TransformerAttention = ModuleHolder<TransformerAttentionImpl>;

}  // namespace attentive

#pragma once

#include <optional>
#include <ostream>

#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/linear.h>

#include <attentive/cache/kv_cache.h>
#include <attentive/core/mask.h>
#include <attentive/core/options.h>
#include <attentive/modules/module.h>
#include <attentive/modules/positions.h>
#include <attentive/modules/rms_norm.h>

namespace attentive {

/// Options of `TransformerAttention`.
struct TransformerAttentionOptions {
  TransformerAttentionOptions(int64_t emb_dim, int64_t num_heads)
      : emb_dim_(emb_dim), num_heads_(num_heads) {}

  TORCH_ARG(int64_t, emb_dim);  ///< features of a token, in and out; num_heads divides it
  TORCH_ARG(int64_t, num_heads);
  TORCH_ARG(int64_t, num_kv_heads) = 0;    ///< divides num_heads (grouped queries); 0: num_heads
  TORCH_ARG(int64_t, context_length) = 0;  ///< most tokens, cached ones included; 0: no limit
  TORCH_ARG(double, dropout) = 0.0;        ///< probability of dropping an attention weight in training
  TORCH_ARG(bool, qkv_bias) = false;
  TORCH_ARG(bool, out_bias) = true;
  /// Turns queries and keys by their positions; its head_dim is set by this module.
  TORCH_ARG(std::optional<RotaryPositionsOptions>, rotary) = std::nullopt;
  /// Whether queries and keys of every head are normalized (`RMSNorm` over head_dim) before they are turned.
  TORCH_ARG(bool, qk_norm) = false;
  /// Whether sigmoid(W_gate x) scales the heads' output, feature by feature, before out_proj.
  TORCH_ARG(bool, output_gate) = false;
  /// How the heads attend; its `dropout_p` stays 0 (`dropout` and `is_training()` decide).
  TORCH_ARG(AttentionOptions, attention) = AttentionOptions{.causal = Causal::BottomRight};
};

/// The self-attention of the transformer blocks: `MultiHeadAttention` with grouped queries, rotary positions
/// and a key-value cache.
///
///   x (B, T, emb_dim) or (T, emb_dim) -> the same shape, dtype and device of the parameters
///
/// Parameters W_query, W_key, W_value, out_proj: names and random draws of the chapter-3
/// `MultiHeadAttention`. The weights of the first three lie side by side in memory (also after `clone()` and
/// `to()`), so that one matrix product serves all three. With qk_norm also q_norm.weight and k_norm.weight,
/// with output_gate also W_gate, drawn after out_proj. A query that a mask leaves without keys yields the
/// bias of out_proj.
/// Source of the two: Dehghani et al. 2023, "Scaling Vision Transformers to 22 Billion Parameters"
/// (normalized queries and keys); Qiu et al. 2025, "Gated Attention for Large Language Models". Throws
/// c10::ValueError for another shape or more than context_length tokens, c10::TypeError for another dtype.
/// Memory: O(B T emb_dim) beyond input and output with a fused backend.
///
///   attentive::TransformerAttention attention(attentive::TransformerAttentionOptions(768, 12));
///   auto y = attention->forward(x);
class TransformerAttentionImpl : public Module<TransformerAttentionImpl> {
 public:
  TransformerAttentionImpl(int64_t emb_dim, int64_t num_heads)
      : TransformerAttentionImpl(TransformerAttentionOptions(emb_dim, num_heads)) {}
  explicit TransformerAttentionImpl(TransformerAttentionOptions options);

  void reset() override;
  void pretty_print(std::ostream& stream) const override;
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<at::Device>& device = std::nullopt) const override;
  void to(at::Device device, at::ScalarType dtype, bool non_blocking = false) override;
  void to(at::ScalarType dtype, bool non_blocking = false) override;
  void to(at::Device device, bool non_blocking = false) override;

  at::Tensor forward(const at::Tensor& x, const Mask& mask = {});
  /// The same for tokens that follow those in the cache: x holds only the new ones, `mask` covers all keys of
  /// the cache. Only for causal attention, and for a `RingKVCache` with a window of at most the ring's.
  at::Tensor forward_cached(const at::Tensor& x, KVCache& cache, int64_t layer, const Mask& mask = {});

  int64_t head_dim() const { return options.emb_dim() / options.num_heads(); }
  int64_t num_kv_heads() const {
    return options.num_kv_heads() == 0 ? options.num_heads() : options.num_kv_heads();
  }

  TransformerAttentionOptions options;
  torch::nn::Linear W_query{nullptr}, W_key{nullptr}, W_value{nullptr}, out_proj{nullptr};
  RotaryPositions rotary{nullptr};
  RMSNorm q_norm{nullptr}, k_norm{nullptr};
  torch::nn::Linear W_gate{nullptr};

 private:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(Mask())})

  void pack();
  at::Tensor run(const at::Tensor& x, KVCache* cache, int64_t layer, const Mask& mask);
};
using TransformerAttention = ModuleHolder<TransformerAttentionImpl>;

}  // namespace attentive

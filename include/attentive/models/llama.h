#pragma once

#include <concepts>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <attentive/cache/kv_cache.h>
#include <attentive/models/generate.h>
#include <attentive/modules/module.h>
#include <attentive/modules/norms.h>
#include <attentive/modules/transformer_attention.h>
#include <attentive/modules/transformer_blocks.h>

namespace attentive {

/// Options of `Llama`. The members of the family differ only in these.
struct LlamaOptions {
  LlamaOptions(int64_t vocab_size, int64_t emb_dim, int64_t num_heads, int64_t num_layers)
      : vocab_size_(vocab_size), emb_dim_(emb_dim), num_heads_(num_heads), num_layers_(num_layers) {}

  TORCH_ARG(int64_t, vocab_size);
  TORCH_ARG(int64_t, emb_dim);  ///< features of a token; a multiple of num_heads unless head_dim is set
  TORCH_ARG(int64_t, num_heads);
  TORCH_ARG(int64_t, num_layers);
  TORCH_ARG(int64_t, context_length) = 0;  ///< maximum number of tokens; 0: no limit
  TORCH_ARG(int64_t, num_kv_heads) = 0;    ///< divides num_heads; 0: num_heads
  TORCH_ARG(int64_t, head_dim) = 0;        ///< features of a head; 0: emb_dim / num_heads
  TORCH_ARG(int64_t, hidden_dim) = 0;      ///< features inside the feed-forward layer; 0: 4 * emb_dim
  TORCH_ARG(Activation, activation) = Activation::Silu;  ///< in the gate
  TORCH_ARG(bool, qkv_bias) = false;                     ///< Qwen2
  TORCH_ARG(bool, out_bias) = false;                     ///< on the attention's output projection
  TORCH_ARG(bool, ff_bias) = false;                      ///< on the feed-forward layers
  TORCH_ARG(bool, qk_norm) = false;                      ///< Qwen3, Gemma 3
  TORCH_ARG(bool, tied) = false;                         ///< whether the head uses the weight of tok_emb
  TORCH_ARG(double, eps) = 1e-6;                         ///< added to the mean square in the norms
  TORCH_ARG(bool, unit_offset) = false;                  ///< whether norms multiply by 1 + weight (Gemma)
  /// Whether each sublayer's output is normalized as well, before it is added (Gemma 2 and 3).
  TORCH_ARG(bool, norm_after) = false;
  TORCH_ARG(bool, scaled_embedding) = false;  ///< whether embeddings are multiplied by sqrt(emb_dim) (Gemma)
  TORCH_ARG(std::optional<double>,
            scale) = std::nullopt;                           ///< scores' factor; not set: 1 / sqrt(head_dim)
  TORCH_ARG(std::optional<double>, softcap) = std::nullopt;  ///< cap of the scores (Gemma 2)
  TORCH_ARG(std::optional<double>, logit_softcap) = std::nullopt;  ///< cap of the logits (Gemma 2)
  TORCH_ARG(double, dropout) = 0.0;                                ///< probability for attention weights
  TORCH_ARG(RotaryPositionsOptions,
            rotary) = RotaryPositionsOptions(0).pairing(RotaryPairing::Halves);  ///< the model sets head_dim
  /// windows()[i] is the number of tokens that a query of layer i attends to, its own included; 0: all
  /// earlier ones. Layers beyond the end of the list have no window.
  TORCH_ARG(std::vector<int64_t>, windows) = {};
  /// The rotation of layers with a window, if it differs from `rotary` (Gemma 3).
  TORCH_ARG(std::optional<RotaryPositionsOptions>, window_rotary) = std::nullopt;
  /// Each group of so many blocks keeps only its input for the backward pass, which computes the blocks again
  /// (`activation_checkpoint`); 0: every block keeps its activations. The bits are the same.
  TORCH_ARG(int64_t, checkpoint) = 0;

  ATTENTIVE_OPTIONS(vocab_size_, emb_dim_, num_heads_, num_layers_, context_length_, num_kv_heads_, head_dim_,
                    hidden_dim_, activation_, qkv_bias_, out_bias_, ff_bias_, qk_norm_, tied_, eps_,
                    unit_offset_, norm_after_, scaled_embedding_, scale_, softcap_, logit_softcap_, dropout_,
                    rotary_, windows_, window_rotary_, checkpoint_);
};

/// One block of a `Llama`: attention and a gated feed-forward layer, each after an RMS norm, with residual
/// connections.
///
///   x (B, T, emb_dim) or (T, emb_dim) -> the same shape, dtype and device of the parameters
///
/// Children att, ff, norm1, norm2; with `norm_after` also after1 and after2. Throws the errors of its
/// children.
///
///   attentive::LlamaBlock block(options, /*layer=*/0);
///   auto y = block->forward(x);
class LlamaBlockImpl : public Module<LlamaBlockImpl> {
 public:
  static constexpr const char* kName = "LlamaBlock";
  /// `layer`, in [0, num_layers), determines the window and the rotation.
  explicit LlamaBlockImpl(LlamaOptions options, int64_t layer = 0);

  void reset() override;
  at::Tensor forward(const at::Tensor& x, const Mask& mask = {});
  /// Processes tokens that follow those in layer `layer` of the cache.
  at::Tensor forward_cached(const at::Tensor& x, KVCache& cache, int64_t layer, const Mask& mask = {});

  LlamaOptions options;
  TransformerAttention att{nullptr};
  FeedForward ff{nullptr};
  RMSNorm norm1{nullptr}, norm2{nullptr}, after1{nullptr}, after2{nullptr};

 private:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(Mask())})

  at::Tensor run(const at::Tensor& x, KVCache* cache, int64_t layer, const Mask& mask);

  int64_t layer_;
};
using LlamaBlock = ModuleHolder<LlamaBlockImpl>;

/// A decoder-only language model of the Llama family; `known_families({LlamaImpl::kName})` lists its members.
///
///   ids (B, T) int64 or int32 -> logits (B, T, vocab_size), or (B, 1, vocab_size) with `Logits::Last`
///
/// Parameters tok_emb, blocks.N.{att.{W_query, W_key, W_value, out_proj, q_norm, k_norm}, ff.{layers.0 (up),
/// layers.2 (down), gate}, norm1, norm2, after1, after2}, final_norm, out_head (absent if `tied`).
/// Throws c10::ValueError for more tokens than context_length, or for an id outside the vocabulary (checked
/// on the host, so that on CUDA the call waits for the device).
/// Memory: O(B T (num_layers emb_dim + vocab_size)); with `Logits::Last`, O(B (T num_layers emb_dim +
/// vocab_size)).
/// Source: Touvron et al. 2023, "LLaMA"; Jiang et al. 2023, "Mistral 7B"; Gemma Team 2024 and 2025.
///
///   attentive::Llama model(attentive::LlamaOptions(32000, 768, 12, 12).hidden_dim(2048).num_kv_heads(4));
///   auto logits = model->forward(ids);
class LlamaImpl : public Module<LlamaImpl> {
 public:
  static constexpr const char* kName = "Llama";
  explicit LlamaImpl(LlamaOptions options_) : options(std::move(options_)) { build(); }
  /// Never compiles; its message says where the sizes belong.
  template <class... Others>
  explicit LlamaImpl(std::integral auto, Others&&...) : LlamaImpl(LlamaOptions(0, 0, 0, 0)) {
    static_assert(
        sizeof...(Others) > sizeof...(Others),
        "Llama takes its sizes as options: Llama model(attentive::LlamaOptions(vocab_size, emb_dim, "
        "num_heads, num_layers))");
  }

  void reset() override;

  /// `mask` hides keys beside the padding. With a mask, context_length counts padding as well.
  at::Tensor forward(const at::Tensor& ids, const Mask& mask = {}, Logits which = Logits::All,
                     const Padding& padding = {});
  /// Processes tokens that follow those in the cache; ids holds only the new tokens. `mask` covers every key,
  /// cached ones included. Rows of different length begin with padding, which `KVCache::set_padding` counts.
  at::Tensor forward_cached(const at::Tensor& ids, KVCache& cache, const Mask& mask = {},
                            Logits which = Logits::All);
  /// The mean cross-entropy of predicting `targets` (B, T), in nats per token. Targets of -100, such as those
  /// of a prompt, do not count, and neither does padding.
  /// If all logits would take more than 128 MiB, they are computed in chunks, by `linear_cross_entropy`.
  at::Tensor loss(const at::Tensor& ids, const at::Tensor& targets, const Padding& padding = {});

  /// An empty cache that fits this model, its device and its dtype (under autocast, autocast's dtype): a
  /// `RingKVCache` if every layer has a window and there is no context_length, otherwise a `DenseKVCache`.
  /// `capacity` 0 means context_length; a dense cache needs one of the two.
  std::unique_ptr<KVCache> make_cache(int64_t batch = 1, int64_t capacity = 0) const;

  LlamaOptions options;
  torch::nn::Embedding tok_emb{nullptr};
  torch::nn::ModuleList blocks{nullptr};
  RMSNorm final_norm{nullptr};
  torch::nn::Linear out_head{nullptr};  ///< empty if tied

 private:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(Mask())}, {2, torch::nn::AnyValue(Logits::All)},
                           {3, torch::nn::AnyValue(Padding())})

  class TiedEmbedding tied_embedding(const at::Tensor& ids) const;
  struct LogitHead head(const TiedEmbedding& weights) const;
  at::Tensor features(const TiedEmbedding& weights, const struct PaddedRows& rows, KVCache* cache,
                      const Mask& mask, Logits which);
};
using Llama = ModuleHolder<LlamaImpl>;

}  // namespace attentive

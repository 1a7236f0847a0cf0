#pragma once

#include <concepts>
#include <memory>
#include <utility>

#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <attentive/cache/kv_cache.h>
#include <attentive/models/generate.h>
#include <attentive/modules/module.h>
#include <attentive/modules/norms.h>
#include <attentive/modules/positions.h>
#include <attentive/modules/transformer_blocks.h>

namespace attentive {

/// How a GPT encodes the position of a token: by adding a learned vector to its embedding, or by rotating
/// queries and keys (RoPE).
enum class GPTPositions { Learned, Rotary };
std::string_view to_string(GPTPositions value);

/// The initial weights.
/// Book: PyTorch's defaults, drawn as the book's `GPTModel` draws them.
/// Gpt2: normal with standard deviation 0.02 (0.02 / sqrt(2 num_layers) for the projections onto the residual
/// stream), biases zero; drawn in the order of `named_parameters()`, after the draws of Book.
enum class GPTInit { Book, Gpt2 };
std::string_view to_string(GPTInit value);

/// Options of `GPT`.
struct GPTOptions {
  GPTOptions(int64_t vocab_size, int64_t context_length, int64_t emb_dim, int64_t num_heads,
             int64_t num_layers)
      : vocab_size_(vocab_size),
        context_length_(context_length),
        emb_dim_(emb_dim),
        num_heads_(num_heads),
        num_layers_(num_layers) {}

  TORCH_ARG(int64_t, vocab_size);
  TORCH_ARG(int64_t, context_length);  ///< maximum number of tokens; 0 (only with Rotary): no limit
  TORCH_ARG(int64_t, emb_dim);         ///< features of a token; a multiple of num_heads
  TORCH_ARG(int64_t, num_heads);
  TORCH_ARG(int64_t, num_layers);
  TORCH_ARG(int64_t, num_kv_heads) = 0;  ///< key and value heads; divides num_heads; 0: num_heads
  TORCH_ARG(double, dropout) = 0.0;  ///< probability for embeddings, attention weights and residual branches
  TORCH_ARG(bool, qkv_bias) = false;
  TORCH_ARG(bool, bias) = true;   ///< biases of the other projections and the norms; the head has none
  TORCH_ARG(bool, tied) = false;  ///< whether the head uses the weight of tok_emb
  TORCH_ARG(GPTPositions, positions) = GPTPositions::Learned;
  TORCH_ARG(RotaryPositionsOptions,
            rotary) = RotaryPositionsOptions(0);  ///< the model sets its head_dim
  TORCH_ARG(int64_t, window) = 0;  ///< tokens that a query attends to, including its own; 0: all earlier ones
  TORCH_ARG(GPTInit, init) = GPTInit::Book;
  TORCH_ARG(int64_t, hidden_dim) = 0;  ///< features inside the feed-forward layer; 0: 4 * emb_dim
  TORCH_ARG(Activation, activation) = Activation::GeluTanh;  ///< of the feed-forward layer
  TORCH_ARG(double, eps) = 1e-5;                             ///< added to the variance in the norms
  /// Each group of so many blocks keeps only its input for the backward pass, which computes the blocks again
  /// (`activation_checkpoint`); 0: every block keeps its activations. The bits are the same.
  TORCH_ARG(int64_t, checkpoint) = 0;

  ATTENTIVE_OPTIONS(vocab_size_, context_length_, emb_dim_, num_heads_, num_layers_, num_kv_heads_, dropout_,
                    qkv_bias_, bias_, tied_, positions_, rotary_, window_, init_, hidden_dim_, activation_,
                    eps_, checkpoint_);
};

/// A decoder-only transformer language model with pre-norm blocks: the book's `GPTModel`.
///
///   ids (B, T) int64 or int32 -> logits (B, T, vocab_size), or (B, 1, vocab_size) with `Logits::Last`
///
/// Parameters tok_emb, pos_emb, trf_blocks.N.{att.{W_query, W_key, W_value, out_proj}, ff.layers.{0, 2},
/// norm1, norm2}, final_norm, out_head, with the names and random draws of the book's class. With `tied`
/// there is no out_head: the head uses tok_emb's weight itself, which therefore need not be tied again after
/// `clone()`, `to()` or loading.
/// Throws c10::ValueError for more tokens than context_length, or for an id outside the vocabulary (checked
/// on the host, so that on CUDA the call waits for the device).
/// Memory: O(B T (num_layers emb_dim + vocab_size)); with `Logits::Last`, O(B (T num_layers emb_dim +
/// vocab_size)).
/// Source: "Build a Large Language Model (From Scratch)", chapter 4.
///
///   attentive::GPT model(attentive::GPTOptions(50257, 1024, 768, 12, 12).dropout(0.1));
///   auto logits = model->forward(ids);
class GPTImpl : public Module<GPTImpl> {
 public:
  static constexpr const char* kName = "GPT";
  explicit GPTImpl(GPTOptions options_) : options(std::move(options_)) { build(); }
  /// Never compiles; its message says where the sizes belong.
  template <class... Others>
  explicit GPTImpl(std::integral auto, Others&&...) : GPTImpl(GPTOptions(0, 0, 0, 0, 0)) {
    static_assert(
        sizeof...(Others) > sizeof...(Others),
        "GPT takes its sizes as options: GPT model(attentive::GPTOptions(vocab_size, context_length, "
        "emb_dim, num_heads, num_layers).dropout(0.1))");
  }

  void reset() override;
  /// Draws the weights again as `GPTInit::Gpt2` specifies, if that option is set.
  void reset_parameters();

  /// From now on, ids hold this process's part of a longer sequence; nullptr ends that. Positions, attention
  /// and context_length refer to the whole sequence; `forward_cached`, padding and the option checkpoint are
  /// refused.
  void set_context(std::shared_ptr<AttentionContext> context);

  at::Tensor forward(const at::Tensor& ids, Logits which = Logits::All, const Padding& padding = {});
  /// Processes tokens that follow those in the cache; ids holds only the new tokens, and so do the logits.
  /// Rows of different length begin with padding, which `KVCache::set_padding` counts.
  at::Tensor forward_cached(const at::Tensor& ids, KVCache& cache, Logits which = Logits::All);
  /// The mean cross-entropy of predicting `targets` (B, T), in nats per token. Targets of -100, such as those
  /// of a prompt, do not count, and neither does padding.
  /// If all logits would take more than 128 MiB, they are computed in chunks, by `linear_cross_entropy`.
  at::Tensor loss(const at::Tensor& ids, const at::Tensor& targets, const Padding& padding = {});

  /// An empty cache that fits this model, its device and its dtype (under autocast, autocast's dtype): a
  /// `RingKVCache` if the model has a window and no context_length, otherwise a `DenseKVCache`. `capacity` 0
  /// means context_length.
  std::unique_ptr<KVCache> make_cache(int64_t batch = 1, int64_t capacity = 0) const;

  GPTOptions options;
  torch::nn::Embedding tok_emb{nullptr};
  LearnedPositions pos_emb{nullptr};
  torch::nn::ModuleList trf_blocks{nullptr};
  LayerNorm final_norm{nullptr};
  torch::nn::Linear out_head{nullptr};  ///< empty if tied

 private:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(Logits::All)}, {2, torch::nn::AnyValue(Padding())})

  class TiedEmbedding tied_embedding(const at::Tensor& ids) const;
  at::Tensor features(const TiedEmbedding& weights, const struct PaddedRows& rows, KVCache* cache,
                      Logits which);

  std::shared_ptr<AttentionContext> context_;
};
using GPT = ModuleHolder<GPTImpl>;

}  // namespace attentive

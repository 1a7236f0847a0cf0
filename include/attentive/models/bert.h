#pragma once

#include <concepts>
#include <optional>
#include <string_view>
#include <utility>

#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <attentive/modules/module.h>
#include <attentive/modules/norms.h>
#include <attentive/modules/transformer_blocks.h>

namespace attentive {

/// Selects what a `Bert` classifies.
///   None      nothing
///   Sequence  whole texts
///   Tokens    each token
enum class BertHead { None, Sequence, Tokens };
std::string_view to_string(BertHead value);

/// Options of `Bert`.
struct BertOptions {
  BertOptions(int64_t vocab_size, int64_t context_length, int64_t emb_dim, int64_t num_heads,
              int64_t num_layers)
      : vocab_size_(vocab_size),
        context_length_(context_length),
        emb_dim_(emb_dim),
        num_heads_(num_heads),
        num_layers_(num_layers) {}

  TORCH_ARG(int64_t, vocab_size);
  TORCH_ARG(int64_t, context_length);  ///< rows of pos_emb
  TORCH_ARG(int64_t, emb_dim);         ///< features of a token; a multiple of num_heads
  TORCH_ARG(int64_t, num_heads);
  TORCH_ARG(int64_t, num_layers);
  TORCH_ARG(int64_t, token_types) = 2;  ///< rows of type_emb
  TORCH_ARG(int64_t, hidden_dim) = 0;   ///< features inside the feed-forward layer; 0: 4 * emb_dim
  /// Features of the embeddings, which emb_proj projects to emb_dim (ALBERT); 0: emb_dim, without emb_proj.
  TORCH_ARG(int64_t, embedding_dim) = 0;
  /// Whether all layers share one block, which is run num_layers times (ALBERT).
  TORCH_ARG(bool, shared_layers) = false;
  /// RoBERTa's positions: a token has the position (number of tokens up to it that are not padding_id) +
  /// padding_id, and padding has the position padding_id. The rows of padding_id in tok_emb and pos_emb get
  /// no gradient, and the head uses exact GELU.
  TORCH_ARG(std::optional<int64_t>, padding_id) = std::nullopt;
  /// A token whose row of tok_emb is initially zero and gets no gradient from look-ups: Python's padding_idx,
  /// which BERT and ALBERT set to their padding token. padding_id implies it.
  TORCH_ARG(std::optional<int64_t>, frozen_id) = std::nullopt;
  TORCH_ARG(Activation, activation) = Activation::Gelu;  ///< in the feed-forward layers and the head
  TORCH_ARG(double, eps) = 1e-12;                        ///< added to the variance in the norms
  TORCH_ARG(double, dropout) = 0.0;  ///< probability for embeddings, attention weights and residual branches
  TORCH_ARG(bool, pooler) = true;    ///< whether `pooled` is computed
  /// Whether there is a head that predicts tokens; its decoder shares the weight of tok_emb.
  TORCH_ARG(bool, masked_lm) = false;
  /// Whether there is a classifier. Sequence needs the pooler, except with padding_id (RoBERTa).
  TORCH_ARG(BertHead, head) = BertHead::None;
  TORCH_ARG(int64_t, num_labels) = 2;     ///< classes of the classifier
  TORCH_ARG(double, head_dropout) = 0.0;  ///< probability for the classifier's input

  ATTENTIVE_OPTIONS(vocab_size_, context_length_, emb_dim_, num_heads_, num_layers_, token_types_,
                    hidden_dim_, embedding_dim_, shared_layers_, padding_id_, frozen_id_, activation_, eps_,
                    dropout_, pooler_, masked_lm_, head_, num_labels_, head_dropout_);
};

/// The result of `Bert`.
struct BertOutput {
  at::Tensor hidden;  ///< (B, T, emb_dim), after the last block
  /// (B, emb_dim): tanh of a linear layer of the first token's state; undefined without `pooler`.
  at::Tensor pooled;
};

/// An encoder of the BERT family: BERT, RoBERTa (and its multilingual and French versions, XLM-RoBERTa and
/// CamemBERT), ALBERT.
///
///   ids (B, T), token_types (B, T) int64 or int32 -> BertOutput
///
/// Parameters tok_emb, pos_emb, type_emb, emb_norm, emb_proj (with embedding_dim), blocks.N.{att, ff, norm1,
/// norm2} (post-norm, one block if shared_layers), pooler; with masked_lm also mlm_dense, mlm_norm, mlm_bias;
/// with a head also classifier or, for Sequence with padding_id, classifier_dense and classifier_out.
/// The initial weights are PyTorch's defaults. A token that `mask` hides is processed like any other, but no
/// token attends to it. Throws c10::ValueError for ids or types outside their tables (checked on the host, so
/// that on CUDA the call waits for the device), for more tokens than positions, and for empty sequences.
/// Memory: O(B T num_layers emb_dim). Source: Devlin et al. 2019, "BERT"; Liu et al. 2019, "RoBERTa"; Lan et
/// al. 2020, "ALBERT".
///
///   attentive::Bert model(attentive::BertOptions(30522, 512, 768, 12, 12));
///   auto [hidden, pooled] = model->forward(ids, {}, attentive::Mask::key_lengths(lengths));
class BertImpl : public Module<BertImpl> {
 public:
  static constexpr const char* kName = "Bert";
  explicit BertImpl(BertOptions options_) : options(std::move(options_)) { build(); }
  /// Never compiles; its message says where the sizes belong.
  template <class... Others>
  explicit BertImpl(std::integral auto, Others&&...) : BertImpl(BertOptions(0, 0, 0, 0, 0)) {
    static_assert(sizeof...(Others) > sizeof...(Others),
                  "Bert takes its sizes as options: Bert model(attentive::BertOptions(vocab_size, "
                  "context_length, emb_dim, num_heads, num_layers))");
  }

  void reset() override;

  /// If token_types is undefined, all types are 0. `mask` hides padding: `Mask::key_lengths(lengths)`.
  BertOutput forward(const at::Tensor& ids, const at::Tensor& token_types = {}, const Mask& mask = {});
  /// Logits (B, T, vocab_size) of the masked-language-model head for `hidden` (B, T, emb_dim). Throws
  /// c10::ValueError without `masked_lm`.
  at::Tensor masked_lm_logits(const at::Tensor& hidden);
  /// Logits of the classifier, computed from a result of `forward`: (B, num_labels) with BertHead::Sequence,
  /// (B, T, num_labels) with BertHead::Tokens. Throws c10::ValueError without `head`.
  ///
  ///   auto logits = model->label_logits(model->forward(ids));
  at::Tensor label_logits(const BertOutput& output);

  BertOptions options;
  torch::nn::Embedding tok_emb{nullptr}, pos_emb{nullptr}, type_emb{nullptr};
  LayerNorm emb_norm{nullptr};
  torch::nn::Linear emb_proj{nullptr};  ///< empty without embedding_dim
  torch::nn::ModuleList blocks{nullptr};
  torch::nn::Linear pooler{nullptr};
  torch::nn::Linear mlm_dense{nullptr};
  LayerNorm mlm_norm{nullptr};
  at::Tensor mlm_bias;  ///< (vocab_size)
  /// classifier_dense: only for Sequence with padding_id, where `classifier` is named classifier_out.
  torch::nn::Linear classifier_dense{nullptr}, classifier{nullptr};

 private:
  void check_options() const;
  at::Tensor embed(const at::Tensor& ids, const at::Tensor& token_types);

  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(at::Tensor())}, {2, torch::nn::AnyValue(Mask())})
};
using Bert = ModuleHolder<BertImpl>;

}  // namespace attentive

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/zeros.h>

#include <attentive/models/bert.h>

#include "functional/elementwise.h"
#include "functional/linear.h"
#include "modules/activate.h"
#include "modules/checks.h"
#include "modules/first_weights.h"
#include "modules/projection.h"

namespace attentive {
namespace {

TransformerBlock block(const BertOptions& options) {
  const auto attention = TransformerAttentionOptions(options.emb_dim(), options.num_heads())
                             .dropout(options.dropout())
                             .qkv_bias(true);
  return encoder_block(TransformerBlockOptions(attention)
                           .hidden_dim(options.hidden_dim())
                           .dropout(options.dropout())
                           .norm_first(false)
                           .activation(options.activation())
                           .eps(options.eps()));
}

LayerNorm layer_norm(const BertOptions& options, int64_t features) {
  return LayerNorm(LayerNormOptions(features).eps(options.eps()));
}

int64_t embedding_dim(const BertOptions& options) {
  return options.embedding_dim() == 0 ? options.emb_dim() : options.embedding_dim();
}

// Returns ATen's padding_idx: the row that gets no gradient, or -1 if there is none.
int64_t frozen_row(const std::optional<int64_t>& row) {
  return row.value_or(-1);
}

std::optional<int64_t> frozen_token(const BertOptions& options) {
  return options.padding_id() ? options.padding_id() : options.frozen_id();
}

torch::nn::Embedding table(int64_t rows, int64_t features, const std::optional<int64_t>& frozen = {}) {
  auto layer = embedding_layer(rows, features);
  if (frozen && draws_first_weights()) {
    const at::NoGradGuard no_grad;
    layer->weight.select(0, *frozen).zero_();
  }
  return layer;
}

void check_index(const char* name, const std::optional<int64_t>& index, int64_t rows) {
  TORCH_CHECK_VALUE(!index || (*index >= 0 && *index < rows), BertImpl::kName, ": expected ", name,
                    " in [0, ", rows, "), got ", index.value_or(0));
}

// RoBERTa's positions of (B, T) tokens.
at::Tensor positions_after(int64_t padding_id, const at::Tensor& ids) {
  const auto real = ids.ne(padding_id);
  return at::cumsum(real, 1) * real + padding_id;
}

}  // namespace

std::string_view to_string(BertHead value) {
  return enum_name(value, {"none", "sequence", "tokens"});
}

BertImpl::BertImpl(BertOptions options_) : options(std::move(options_)) {
  build();
}

void BertImpl::check_options() const {
  check_positive(kName, "vocab_size", options.vocab_size());
  check_positive(kName, "context_length", options.context_length());
  check_positive(kName, "emb_dim", options.emb_dim());
  check_heads(kName, "emb_dim", options.emb_dim(), options.num_heads());
  check_count(kName, "num_layers", options.num_layers());
  check_positive(kName, "token_types", options.token_types());
  if (options.hidden_dim() != 0) check_positive(kName, "hidden_dim", options.hidden_dim());
  check_positive(kName, "embedding_dim", embedding_dim(options));
  check_index("padding_id", options.padding_id(), std::min(options.vocab_size(), options.context_length()));
  check_index("frozen_id", options.frozen_id(), options.vocab_size());
  check_eps(kName, options.eps());
  check_probability(kName, "dropout", options.dropout());
  check_probability(kName, "head_dropout", options.head_dropout());
  if (options.head() == BertHead::None) return;
  check_positive(kName, "num_labels", options.num_labels());
  TORCH_CHECK_VALUE(!options.masked_lm(), kName, ": expected masked_lm or head = ", to_string(options.head()),
                    ", got both");
  TORCH_CHECK_VALUE(options.head() != BertHead::Sequence || options.pooler() || options.padding_id(), kName,
                    ": expected a pooler for head = sequence, got none");
}

void BertImpl::reset() {
  check_options();
  const auto features = embedding_dim(options);
  tok_emb = register_module("tok_emb", table(options.vocab_size(), features, frozen_token(options)));
  pos_emb = register_module("pos_emb", table(options.context_length(), features, options.padding_id()));
  type_emb = register_module("type_emb", table(options.token_types(), features));
  emb_norm = register_module("emb_norm", layer_norm(options, features));
  if (options.embedding_dim() != 0) {
    emb_proj = register_module("emb_proj", linear_layer(features, options.emb_dim()));
  }
  blocks = register_module("blocks", torch::nn::ModuleList());
  const auto built = options.shared_layers() ? 1 : options.num_layers();
  for (int64_t i = 0; i < built; ++i) blocks->push_back(block(options));
  if (options.pooler())
    pooler = register_module("pooler", linear_layer(options.emb_dim(), options.emb_dim()));
  if (options.masked_lm()) {
    mlm_dense = register_module("mlm_dense", linear_layer(options.emb_dim(), features));
    mlm_norm = register_module("mlm_norm", layer_norm(options, features));
    mlm_bias = register_parameter("mlm_bias", at::zeros({options.vocab_size()}));
  }
  if (options.head() == BertHead::None) return;
  const bool own_layer = options.head() == BertHead::Sequence && options.padding_id();
  if (own_layer) {
    classifier_dense =
        register_module("classifier_dense", linear_layer(options.emb_dim(), options.emb_dim()));
  }
  classifier = register_module(own_layer ? "classifier_out" : "classifier",
                               linear_layer(options.emb_dim(), options.num_labels()));
}

at::Tensor BertImpl::embed(const at::Tensor& ids, const at::Tensor& token_types) {
  check_tokens(kName, "ids", ids);
  TORCH_CHECK_VALUE(ids.size(1) > 0, kName, ": expected ids of at least one token, got ",
                    shape_string(ids.sizes()));
  check_indices(kName, "ids", ids, options.vocab_size());
  if (token_types.defined()) {
    check_tokens(kName, "token_types", token_types);
    TORCH_CHECK_VALUE(token_types.sizes() == ids.sizes(), kName, ": expected token_types of shape ",
                      shape_string(ids.sizes()), " like ids, got ", shape_string(token_types.sizes()));
    check_indices(kName, "token_types", token_types, options.token_types());
  }
  // Adds the embeddings in the same order as Python.
  const auto tokens = at::embedding(tok_emb->weight, ids, frozen_row(frozen_token(options)));
  const auto typed = tokens + (token_types.defined() ? at::embedding(type_emb->weight, token_types)
                                                     : type_emb->weight.select(0, 0));
  if (!options.padding_id()) {
    check_context(kName, ids.size(1), options.context_length());
    return typed + pos_emb->weight.narrow(0, 0, ids.size(1));
  }
  const auto positions = positions_after(*options.padding_id(), ids);
  check_indices(kName, "positions", positions, options.context_length());
  return typed + at::embedding(pos_emb->weight, positions, frozen_row(options.padding_id()));
}

BertOutput BertImpl::forward(const at::Tensor& ids, const at::Tensor& token_types, const Mask& mask) {
  auto x = emb_norm->forward(embed(ids, token_types));
  x = drop_features(x, options.dropout(), is_training());
  if (!emb_proj.is_empty()) x = project(emb_proj, x);
  for (int64_t i = 0; i < options.num_layers(); ++i) {
    const auto index = options.shared_layers() ? 0 : static_cast<size_t>(i);
    x = blocks->at<TransformerBlockImpl>(index).forward(x, mask);
  }
  return {x, pooler.is_empty() ? at::Tensor() : project(pooler, x.select(1, 0)).tanh()};
}

at::Tensor BertImpl::masked_lm_logits(const at::Tensor& hidden) {
  TORCH_CHECK_VALUE(options.masked_lm(), kName,
                    ": expected the option masked_lm for logits of tokens, got a model without that head");
  check_sequence(kName, "hidden", hidden, options.emb_dim(), mlm_dense->weight);
  const auto activation = options.padding_id() ? Activation::Gelu : options.activation();
  const auto x = mlm_norm->forward(activate(activation, project(mlm_dense, hidden)));
  return attentive::linear(x, tok_emb->weight, mlm_bias);
}

at::Tensor BertImpl::label_logits(const BertOutput& output) {
  TORCH_CHECK_VALUE(options.head() != BertHead::None, kName,
                    ": expected the option head for logits of labels, got a model without a classifier");
  const auto& weight = classifier->weight;
  const auto dropped = [&](const at::Tensor& x) {
    return drop_features(x, options.head_dropout(), is_training());
  };
  if (options.head() == BertHead::Sequence && !options.padding_id()) {
    check_sequence(kName, "pooled", output.pooled, options.emb_dim(), weight);
    return project(classifier, dropped(output.pooled));
  }
  check_sequence(kName, "hidden", output.hidden, options.emb_dim(), weight);
  if (options.head() == BertHead::Tokens) return project(classifier, dropped(output.hidden));
  TORCH_CHECK_VALUE(output.hidden.dim() == 3 && output.hidden.size(1) > 0, kName,
                    ": expected hidden of shape (B, T, ", options.emb_dim(), "), got ",
                    shape_string(output.hidden.sizes()));
  const auto first = dropped(output.hidden.select(1, 0));
  return project(classifier, dropped(project(classifier_dense, first).tanh()));
}

}  // namespace attentive

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/zeros.h>

#include <attentive/models/bert.h>

#include "functional/elementwise.h"
#include "functional/linear.h"
#include "models/model_config.h"
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

BertOptions read_bert_options(const std::string& caller, const Family& family, const FileValue& config_,
                              const BertParts& parts, const PretrainedOptions& pretrained) {
  const ModelConfig config(caller, config_);
  check_common_fields(config);
  config.must_be("is_decoder", false);
  config.must_be("position_embedding_type", "absolute");
  const auto& traits = family.encoder;
  BertOptions options(config.size("vocab_size"), config.size("max_position_embeddings", 512),
                      config.size("hidden_size"), config.size("num_attention_heads"),
                      config.layers("num_hidden_layers"));
  options.token_types(config.size("type_vocab_size", 2))
      .hidden_dim(config.size("intermediate_size"))
      .activation(config.activation("hidden_act", traits.activation))
      .eps(config.number("layer_norm_eps", 1e-12))
      .dropout(config.dropout({"hidden_dropout_prob", "attention_probs_dropout_prob"}, traits.dropout,
                              pretrained.dropout))
      .pooler(parts.pooler)
      .masked_lm(parts.masked_lm)
      .head(parts.head);
  if (parts.head != BertHead::None) {
    const auto usual = traits.head_dropout ? *traits.head_dropout : config.number("hidden_dropout_prob", 0.1);
    options.num_labels(read_labels(config))
        .head_dropout(pretrained.dropout.value_or(config.number(traits.head_dropout_field, usual)));
  }
  if (parts.masked_lm) config.must_be("tie_word_embeddings", true);
  if (traits.padding_positions) {
    if (config.is_null("pad_token_id")) config.refuse("pad_token_id", "a token, from which positions count");
    options.padding_id(config.integer("pad_token_id", 1));
  } else if (!config.is_null("pad_token_id")) {
    options.frozen_id(config.integer("pad_token_id", 0));
  }
  if (traits.shared_layers) {
    config.must_be("num_hidden_groups", int64_t{1});
    config.must_be("inner_group_num", int64_t{1});
    options.embedding_dim(config.size("embedding_size", 128)).shared_layers(true);
  }
  return options;
}

void write_options(const Family& family, const BertOptions& options, FileValue::Dict& config) {
  const auto set = [&](std::string_view field, FileValue value) {
    set_field(config, field, std::move(value));
  };
  const auto* kind = options.masked_lm()                    ? "ForMaskedLM"
                     : options.head() == BertHead::Sequence ? "ForSequenceClassification"
                     : options.head() == BertHead::Tokens   ? "ForTokenClassification"
                                                            : "Model";
  set("architectures", FileValue::List{{std::string(family.python_class) + kind}});
  if (options.head() != BertHead::None) {
    set(family.encoder.head_dropout_field, options.head_dropout());
    write_labels(config, options.num_labels());
  }
  set("vocab_size", options.vocab_size());
  set("max_position_embeddings", options.context_length());
  set("hidden_size", options.emb_dim());
  set("num_attention_heads", options.num_heads());
  set("num_hidden_layers", options.num_layers());
  set("type_vocab_size", options.token_types());
  set("intermediate_size", hidden_dim_of(options));
  set("hidden_act", std::string(activation_word(options.activation())));
  set("layer_norm_eps", options.eps());
  set("hidden_dropout_prob", options.dropout());
  set("attention_probs_dropout_prob", options.dropout());
  set("tie_word_embeddings", true);
  const auto padding = options.padding_id() ? options.padding_id() : options.frozen_id();
  set("pad_token_id", padding ? FileValue(*padding) : FileValue());
  if (!family.encoder.shared_layers) return;
  set("embedding_size", options.embedding_dim() > 0 ? options.embedding_dim() : options.emb_dim());
  set("num_hidden_groups", int64_t{1});
  set("inner_group_num", int64_t{1});
}

}  // namespace attentive

#include "models/family_options.h"
#include "models/model_config.h"

namespace attentive {
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

void write_bert_options(const Family& family, const BertOptions& options, FileValue::Dict& config) {
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

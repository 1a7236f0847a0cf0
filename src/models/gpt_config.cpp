#include "models/family_options.h"
#include "models/model_config.h"

namespace attentive {

GPTOptions read_gpt_options(const std::string& caller, const FileValue& config_,
                            const PretrainedOptions& pretrained) {
  const ModelConfig config(caller, config_);
  check_common_fields(config);
  const auto emb_dim = config.size("n_embd");
  GPTOptions options(config.size("vocab_size"), config.size("n_positions", 1024), emb_dim,
                     config.size("n_head"), config.layers("n_layer"));
  // Python's names of other families for these four, which it reads as well and prefers.
  config.must_be("max_position_embeddings", options.context_length());
  config.must_be("hidden_size", emb_dim);
  config.must_be("num_attention_heads", options.num_heads());
  config.must_be("num_hidden_layers", options.num_layers());
  config.must_be("scale_attn_weights", true);
  config.must_be("scale_attn_by_inverse_layer_idx", false);
  const auto inner = config.size("n_inner", 4 * emb_dim);
  return options.qkv_bias(true)
      .hidden_dim(inner == 4 * emb_dim ? 0 : inner)
      .activation(config.activation("activation_function", "gelu_new"))
      .eps(config.number("layer_norm_epsilon", 1e-5))
      .tied(config.flag("tie_word_embeddings", true))
      .dropout(config.dropout({"resid_pdrop", "embd_pdrop", "attn_pdrop"}, 0.1, pretrained.dropout));
}

void write_gpt_options(const Family& family, const GPTOptions& options, FileValue::Dict& config) {
  set_field(config, "architectures", FileValue::List{{std::string(family.python_class) + "LMHeadModel"}});
  set_field(config, "vocab_size", options.vocab_size());
  set_field(config, "n_positions", options.context_length());
  set_field(config, "n_embd", options.emb_dim());
  set_field(config, "n_head", options.num_heads());
  set_field(config, "n_layer", options.num_layers());
  const bool usual = hidden_dim_of(options) == 4 * options.emb_dim();
  set_field(config, "n_inner", usual ? FileValue() : FileValue(options.hidden_dim()));
  const bool gpt2 = options.activation() == Activation::GeluTanh;
  set_field(config, "activation_function",
            std::string(gpt2 ? "gelu_new" : activation_word(options.activation())));
  set_field(config, "layer_norm_epsilon", options.eps());
  set_field(config, "tie_word_embeddings", options.tied());
  for (const auto* field : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) {
    set_field(config, field, options.dropout());
  }
}

}  // namespace attentive

#include "models/family_options.h"
#include "models/model_config.h"

namespace attentive {

GPTOptions read_gpt_options(const std::string& who, const FileValue& config_,
                            const PretrainedOptions& pretrained) {
  const ModelConfig config(who, config_);
  check_common_fields(config);
  const auto emb_dim = config.size("n_embd");
  GPTOptions options(config.size("vocab_size"), config.size("n_positions", 1024), emb_dim,
                     config.size("n_head"), config.layers("n_layer"));
  config.must_be("n_inner", 4 * emb_dim);
  if (config.activation("activation_function", "gelu_new") != Activation::GeluTanh) {
    config.refuse("activation_function", "\"gelu_new\" or \"gelu_pytorch_tanh\"");
  }
  if (config.number("layer_norm_epsilon", 1e-5) != 1e-5) config.refuse("layer_norm_epsilon", "1e-05");
  config.must_be("scale_attn_weights", true);
  config.must_be("scale_attn_by_inverse_layer_idx", false);
  return options.qkv_bias(true)
      .tied(config.flag("tie_word_embeddings", true))
      .dropout(config.dropout({"resid_pdrop", "embd_pdrop", "attn_pdrop"}, 0.1, pretrained.dropout));
}

void write_gpt_options(const GPTOptions& options, FileValue::Dict& config) {
  set_field(config, "architectures", FileValue::List{{"GPT2LMHeadModel"}});
  set_field(config, "vocab_size", options.vocab_size());
  set_field(config, "n_positions", options.context_length());
  set_field(config, "n_embd", options.emb_dim());
  set_field(config, "n_head", options.num_heads());
  set_field(config, "n_layer", options.num_layers());
  set_field(config, "n_inner", {});
  set_field(config, "activation_function", "gelu_new");
  set_field(config, "layer_norm_epsilon", 1e-5);
  set_field(config, "tie_word_embeddings", options.tied());
  for (const auto* field : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) {
    set_field(config, field, options.dropout());
  }
}

}  // namespace attentive

#include "models/family_options.h"
#include "models/model_config.h"

namespace attentive {
namespace {

// Reads a number, or a list of two equal ones.
int64_t side(const ModelConfig& config, std::string_view field, int64_t fallback) {
  const auto* value = config.find(field);
  if (value == nullptr || !value->is<FileValue::List>()) return config.size(field, fallback);
  const auto& sides = value->as<FileValue::List>().items;
  const bool square = sides.size() == 2 && sides[0].is<int64_t>() && sides[1].is<int64_t>() &&
                      sides[0].as<int64_t>() == sides[1].as<int64_t>();
  if (!square) config.refuse(field, "the side of a square");
  return sides[0].as<int64_t>();
}

}  // namespace

ViTOptions read_vit_options(const std::string& caller, const Family& family, const FileValue& config_,
                            bool classifier, const PretrainedOptions& pretrained) {
  const ModelConfig config(caller, config_);
  check_common_fields(config);
  ViTOptions options(side(config, "image_size", 224), side(config, "patch_size", 16),
                     config.size("num_channels", 3), classifier ? read_labels(config) : 0);
  return options.emb_dim(config.size("hidden_size"))
      .num_heads(config.size("num_attention_heads"))
      .num_layers(config.layers("num_hidden_layers"))
      .hidden_dim(config.size("intermediate_size"))
      .activation(config.activation("hidden_act", "gelu"))
      .eps(config.number("layer_norm_eps", 1e-12))
      .distillation_token(family.distillation_token)
      .qkv_bias(config.flag("qkv_bias", true))
      .dropout(
          config.dropout({"hidden_dropout_prob", "attention_probs_dropout_prob"}, 0.0, pretrained.dropout));
}

void write_vit_options(const Family& family, const ViTOptions& options, FileValue::Dict& config) {
  const auto set = [&](std::string_view field, FileValue value) {
    set_field(config, field, std::move(value));
  };
  set("architectures",
      FileValue::List{{std::string(family.python_class) + (options.num_classes() > 0 ? "ForImageClassification" : "Model")}});
  set("image_size", options.image_size());
  set("patch_size", options.patch_size());
  set("num_channels", options.channels());
  set("hidden_size", options.emb_dim());
  set("num_attention_heads", options.num_heads());
  set("num_hidden_layers", options.num_layers());
  set("intermediate_size", hidden_dim_of(options));
  set("hidden_act", std::string(activation_word(options.activation())));
  set("layer_norm_eps", options.eps());
  set("hidden_dropout_prob", options.dropout());
  set("attention_probs_dropout_prob", options.dropout());
  set("qkv_bias", options.qkv_bias());
  if (options.num_classes() > 0) write_labels(config, options.num_classes());
}

}  // namespace attentive

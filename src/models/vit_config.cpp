#include "models/family_options.h"
#include "models/model_config.h"

namespace attentive {
namespace {

// A number, or a list of two equal ones.
int64_t side(const ModelConfig& config, std::string_view field, int64_t fallback) {
  const auto* value = config.find(field);
  if (value == nullptr || !value->is<FileValue::List>()) return config.size(field, fallback);
  const auto& sides = value->as<FileValue::List>().items;
  const bool square = sides.size() == 2 && sides[0].is<int64_t>() && sides[1].is<int64_t>() &&
                      sides[0].as<int64_t>() == sides[1].as<int64_t>();
  if (!square) config.refuse(field, "the side of a square");
  return sides[0].as<int64_t>();
}

int64_t classes(const ModelConfig& config) {
  const auto* labels = config.find("id2label");
  if (labels == nullptr) return config.size("num_labels", 2);
  if (!labels->is<FileValue::Dict>()) config.refuse("id2label", "an object");
  return static_cast<int64_t>(labels->as<FileValue::Dict>().items.size());
}

}  // namespace

ViTOptions read_vit_options(const std::string& who, std::string_view family, const FileValue& config_,
                            const PretrainedOptions& pretrained) {
  const ModelConfig config(who, config_);
  check_common_fields(config);
  config.must_be("qkv_bias", true);
  ViTOptions options(side(config, "image_size", 224), side(config, "patch_size", 16),
                     config.size("num_channels", 3), classes(config));
  return options.emb_dim(config.size("hidden_size"))
      .num_heads(config.size("num_attention_heads"))
      .num_layers(config.layers("num_hidden_layers"))
      .hidden_dim(config.size("intermediate_size"))
      .activation(config.activation("hidden_act", "gelu"))
      .eps(config.number("layer_norm_eps", 1e-12))
      .distillation_token(family == "deit")
      .dropout(
          config.dropout({"hidden_dropout_prob", "attention_probs_dropout_prob"}, 0.0, pretrained.dropout));
}

void write_vit_options(const ViTOptions& options, FileValue::Dict& config) {
  const auto set = [&](std::string_view field, FileValue value) {
    set_field(config, field, std::move(value));
  };
  set("architectures", FileValue::List{{options.distillation_token() ? "DeiTForImageClassification"
                                                                     : "ViTForImageClassification"}});
  set("image_size", options.image_size());
  set("patch_size", options.patch_size());
  set("num_channels", options.channels());
  set("hidden_size", options.emb_dim());
  set("num_attention_heads", options.num_heads());
  set("num_hidden_layers", options.num_layers());
  set("intermediate_size", options.hidden_dim() > 0 ? options.hidden_dim() : 4 * options.emb_dim());
  set("hidden_act", std::string(activation_word(options.activation())));
  set("layer_norm_eps", options.eps());
  set("hidden_dropout_prob", options.dropout());
  set("attention_probs_dropout_prob", options.dropout());
  set("qkv_bias", true);
  const FileValue before(config);  // the labels' names are kept if they are as many
  const ModelConfig old("save_model_folder", before);
  if (old.find("id2label") != nullptr && classes(old) == options.num_classes()) return;
  FileValue::Dict names, numbers;
  for (int64_t i = 0; i < options.num_classes(); ++i) {
    const auto name = "LABEL_" + std::to_string(i);
    set_field(names, std::to_string(i), name);
    set_field(numbers, name, i);
  }
  set("id2label", names);
  set("label2id", numbers);
}

}  // namespace attentive

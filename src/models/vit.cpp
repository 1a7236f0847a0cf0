#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <attentive/models/vit.h>

#include "functional/elementwise.h"
#include "models/model_config.h"
#include "modules/checks.h"
#include "modules/first_weights.h"
#include "modules/projection.h"

namespace attentive {
namespace {

// Values in one patch: channels * patch_size^2.
int64_t pixels_of(const ViTOptions& options) {
  int64_t pixels = 0;
  const bool fits = !__builtin_mul_overflow(options.patch_size(), options.patch_size(), &pixels) &&
                    !__builtin_mul_overflow(pixels, options.channels(), &pixels);
  TORCH_CHECK_VALUE(fits, ViTImpl::kName, ": expected channels * patch_size^2 below 2^63, got ",
                    options.channels(), " * ", options.patch_size(), "^2");
  return pixels;
}

}  // namespace

void ViTBlockImpl::reset() {
  const auto norm = LayerNormOptions(options.emb_dim()).eps(options.eps());
  const auto hidden =
      FeedForwardOptions(options.emb_dim()).hidden_dim(options.hidden_dim()).activation(options.activation());
  norm1 = register_module("norm1", LayerNorm(norm));
  attn = register_module("attn",
                         FusedSelfAttention(FusedSelfAttentionOptions(options.emb_dim(), options.num_heads())
                                                .dropout(options.dropout())
                                                .qkv_bias(options.qkv_bias())));
  norm2 = register_module("norm2", LayerNorm(norm));
  mlp = register_module("mlp", FeedForward(hidden));
}

at::Tensor ViTBlockImpl::forward(const at::Tensor& x) {
  const auto attended = add_dropped(x, attn->forward(norm1->forward(x)), options.dropout(), is_training());
  return add_dropped(attended, mlp->forward(norm2->forward(attended)), options.dropout(), is_training());
}

int64_t ViTImpl::num_patches() const {
  const auto side = options.image_size() / options.patch_size();
  return side * side;
}

void ViTImpl::reset() {
  check_positive(kName, "image_size", options.image_size());
  check_positive(kName, "patch_size", options.patch_size());
  check_positive(kName, "channels", options.channels());
  if (options.num_classes() != 0) check_positive(kName, "num_classes", options.num_classes());
  check_positive(kName, "emb_dim", options.emb_dim());
  check_count(kName, "num_layers", options.num_layers());
  check_heads(kName, "emb_dim", options.emb_dim(), options.num_heads());
  check_probability(kName, "dropout", options.dropout());
  if (options.hidden_dim() != 0) check_positive(kName, "hidden_dim", options.hidden_dim());
  check_eps(kName, options.eps());
  TORCH_CHECK_VALUE(options.image_size() % options.patch_size() == 0, kName,
                    ": expected patch_size to divide image_size = ", options.image_size(), ", got ",
                    options.patch_size());
  check_count(kName, "image_size / patch_size", options.image_size() / options.patch_size());
  const int64_t extra = options.distillation_token() ? 2 : 1;
  cls_token = register_parameter("cls_token", at::zeros({1, 1, options.emb_dim()}));
  if (options.distillation_token()) {
    dist_token = register_parameter("dist_token", at::zeros({1, 1, options.emb_dim()}));
  }
  pos_embed =
      register_parameter("pos_embed", normal_parameter({1, num_patches() + extra, options.emb_dim()}) * 0.02);
  patch_embed = register_module("patch_embed", linear_layer(pixels_of(options), options.emb_dim()));
  blocks = register_module("blocks", torch::nn::ModuleList());
  for (int64_t i = 0; i < options.num_layers(); ++i) blocks->push_back(ViTBlock(options));
  norm = register_module("norm", LayerNorm(LayerNormOptions(options.emb_dim()).eps(options.eps())));
  if (options.num_classes() == 0) return;
  head = register_module("head", linear_layer(options.emb_dim(), options.num_classes()));
}

at::Tensor ViTImpl::embed(const at::Tensor& images) {
  check_floating(kName, "images", images);
  TORCH_CHECK_VALUE(images.dim() == 4 && images.size(1) == options.channels() &&
                        images.size(2) == options.image_size() && images.size(3) == options.image_size(),
                    kName, ": expected images of shape (B, ", options.channels(), ", ", options.image_size(),
                    ", ", options.image_size(), "), got ", shape_string(images.sizes()));
  const auto patches = image_patches(images, options.patch_size());
  check_sequence(kName, "patches", patches, patches.size(2), patch_embed->weight);
  const auto embedded = project(patch_embed, patches);
  std::vector<at::Tensor> tokens;
  for (const auto& token : {cls_token, dist_token}) {
    if (token.defined()) tokens.push_back(token.to(embedded.scalar_type()).expand({images.size(0), -1, -1}));
  }
  tokens.push_back(embedded);
  return drop_features(at::cat(tokens, 1) + pos_embed, options.dropout(), is_training());
}

at::Tensor ViTImpl::encode(const at::Tensor& images) {
  auto x = embed(images);
  for (int64_t i = 0; i < options.num_layers(); ++i) {
    x = blocks->at<ViTBlockImpl>(static_cast<size_t>(i)).forward(x);
  }
  return x;
}

at::Tensor ViTImpl::forward(const at::Tensor& images) {
  const auto x = norm->forward(encode(images).select(1, 0));
  return head.is_empty() ? x : project(head, x);
}

at::Tensor ViTImpl::hidden(const at::Tensor& images) {
  return norm->forward(encode(images));
}

at::Tensor image_patches(const at::Tensor& images, int64_t patch) {
  constexpr const char* caller = "image_patches";
  check_defined(caller, "images", images);
  TORCH_CHECK_VALUE(images.dim() == 4, caller, ": expected images of shape (B, C, H, W), got ",
                    shape_string(images.sizes()));
  TORCH_CHECK_VALUE(patch > 0 && images.size(2) % patch == 0 && images.size(3) % patch == 0, caller,
                    ": expected patch to divide ", images.size(2), " and ", images.size(3), ", got ", patch);
  const auto rows = images.size(2) / patch, columns = images.size(3) / patch;
  return images.reshape({images.size(0), images.size(1), rows, patch, columns, patch})
      .permute({0, 2, 4, 1, 3, 5})
      .flatten(3)
      .flatten(1, 2);
}

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

void write_options(const Family& family, const ViTOptions& options, FileValue::Dict& config) {
  const auto set = [&](std::string_view field, FileValue value) {
    set_field(config, field, std::move(value));
  };
  set("architectures", FileValue::List{{std::string(family.python_class) +
                                        (options.num_classes() > 0 ? "ForImageClassification" : "Model")}});
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

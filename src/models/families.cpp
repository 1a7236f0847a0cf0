#include "models/families.h"

#include <algorithm>

#include "models/python_names.h"

namespace attentive {
namespace {

constexpr NameRule kGpt2[] = {
    {"wte.weight", "tok_emb.weight"},
    {"wpe.weight", "pos_emb.weight"},
    {"h.#.{ln_1,ln_2}.{weight,bias}", "trf_blocks.#.{norm1,norm2}.{scale,shift}"},
    {"h.#.attn.c_attn.{weight,bias}", "trf_blocks.#.att.[W_query,W_key,W_value].{weight,bias}", kTransposed},
    {"h.#.{attn.c_proj,mlp.c_fc,mlp.c_proj}.{weight,bias}",
     "trf_blocks.#.{att.out_proj,ff.layers.0,ff.layers.2}.{weight,bias}", kTransposed},
    {"ln_f.{weight,bias}", "final_norm.{scale,shift}"},
    {"lm_head.weight", "out_head.weight", kHead},
};

constexpr NameRule kDecoder[] = {
    {"embed_tokens.weight", "tok_emb.weight"},
    {"layers.#.self_attn.{q_proj,k_proj,v_proj,o_proj}.{weight,bias}",
     "blocks.#.att.{W_query,W_key,W_value,out_proj}.{weight,bias}"},
    {"layers.#.self_attn.{q_norm,k_norm}.weight", "blocks.#.att.{q_norm,k_norm}.weight"},
    {"layers.#.mlp.{up_proj,down_proj,gate_proj}.{weight,bias}",
     "blocks.#.ff.{layers.0,layers.2,gate}.{weight,bias}"},
    {"norm.weight", "final_norm.weight"},
    {"lm_head.weight", "out_head.weight", kHead},
};
constexpr NameRule kLlamaNorms[] = {
    {"layers.#.{input_layernorm,post_attention_layernorm}.weight", "blocks.#.{norm1,norm2}.weight"},
};
constexpr NameRule kGemmaNorms[] = {
    {"layers.#.{input_layernorm,post_attention_layernorm}.weight", "blocks.#.{norm1,after1}.weight"},
    {"layers.#.{pre_feedforward_layernorm,post_feedforward_layernorm}.weight",
     "blocks.#.{norm2,after2}.weight"},
};

constexpr NameRule kEmbeddings[] = {
    {"embeddings.{word_embeddings,position_embeddings,token_type_embeddings}.weight",
     "{tok_emb,pos_emb,type_emb}.weight"},
    {"embeddings.LayerNorm.{weight,bias}", "emb_norm.{scale,shift}"},
    {"embeddings.LayerNorm.{gamma,beta}", "emb_norm.{scale,shift}", kAlias},
};
constexpr NameRule kBertLayers[] = {
    {"encoder.layer.#.attention.self.{query,key,value}.{weight,bias}",
     "blocks.#.att.{W_query,W_key,W_value}.{weight,bias}"},
    {"encoder.layer.#.{attention.output.dense,intermediate.dense,output.dense}.{weight,bias}",
     "blocks.#.{att.out_proj,ff.layers.0,ff.layers.2}.{weight,bias}"},
    {"encoder.layer.#.{attention.output,output}.LayerNorm.{weight,bias}",
     "blocks.#.{norm1,norm2}.{scale,shift}"},
    {"encoder.layer.#.{attention.output,output}.LayerNorm.{gamma,beta}",
     "blocks.#.{norm1,norm2}.{scale,shift}", kAlias},
    {"pooler.dense.{weight,bias}", "pooler.{weight,bias}"},
};
constexpr NameRule kBertHead[] = {
    {"cls.predictions.transform.dense.{weight,bias}", "mlm_dense.{weight,bias}", kHead},
    {"cls.predictions.transform.LayerNorm.{weight,bias}", "mlm_norm.{scale,shift}", kHead},
    {"cls.predictions.transform.LayerNorm.{gamma,beta}", "mlm_norm.{scale,shift}", kHead | kAlias},
    {"cls.predictions.bias", "mlm_bias", kHead},
    {"cls.predictions.decoder.{weight,bias}", "{tok_emb.weight,mlm_bias}", kHead | kCopy},
    {"classifier.{weight,bias}", "classifier.{weight,bias}", kHead},
};
constexpr NameRule kRobertaHead[] = {
    {"lm_head.dense.{weight,bias}", "mlm_dense.{weight,bias}", kHead},
    {"lm_head.layer_norm.{weight,bias}", "mlm_norm.{scale,shift}", kHead},
    {"lm_head.bias", "mlm_bias", kHead},
    {"lm_head.decoder.{weight,bias}", "{tok_emb.weight,mlm_bias}", kHead | kCopy},
    {"classifier.{weight,bias}", "classifier.{weight,bias}", kHead},
    {"classifier.{dense,out_proj}.{weight,bias}", "{classifier_dense,classifier_out}.{weight,bias}", kHead},
};
constexpr NameRule kAlbertLayers[] = {
    {"encoder.embedding_hidden_mapping_in.{weight,bias}", "emb_proj.{weight,bias}"},
    {"encoder.albert_layer_groups.0.albert_layers.0.attention.{query,key,value,dense}.{weight,bias}",
     "blocks.0.att.{W_query,W_key,W_value,out_proj}.{weight,bias}"},
    {"encoder.albert_layer_groups.0.albert_layers.0.{ffn,ffn_output}.{weight,bias}",
     "blocks.0.ff.{layers.0,layers.2}.{weight,bias}"},
    {"encoder.albert_layer_groups.0.albert_layers.0.{attention.LayerNorm,full_layer_layer_norm}.{weight,"
     "bias}",
     "blocks.0.{norm1,norm2}.{scale,shift}"},
    {"pooler.{weight,bias}", "pooler.{weight,bias}"},
    {"predictions.dense.{weight,bias}", "mlm_dense.{weight,bias}", kHead},
    {"predictions.LayerNorm.{weight,bias}", "mlm_norm.{scale,shift}", kHead},
    {"predictions.bias", "mlm_bias", kHead},
    {"predictions.decoder.{weight,bias}", "{tok_emb.weight,mlm_bias}", kHead | kCopy},
    {"classifier.{weight,bias}", "classifier.{weight,bias}", kHead},
};

// Version 5 of transformers uses the names of the aliases for its modules, but still saves the older names.
constexpr NameRule kViT[] = {
    {"embeddings.{cls_token,distillation_token,position_embeddings}", "{cls_token,dist_token,pos_embed}"},
    {"embeddings.patch_embeddings.projection.{weight,bias}", "patch_embed.{weight,bias}", kFlattened},
    {"encoder.layer.#.attention.attention.[query,key,value].{weight,bias}",
     "blocks.#.attn.qkv.{weight,bias}"},
    {"layers.#.attention.[q_proj,k_proj,v_proj].{weight,bias}", "blocks.#.attn.qkv.{weight,bias}", kAlias},
    {"encoder.layer.#.{attention.output.dense,intermediate.dense,output.dense}.{weight,bias}",
     "blocks.#.{attn.proj,mlp.layers.0,mlp.layers.2}.{weight,bias}"},
    {"layers.#.{attention.o_proj,mlp.fc1,mlp.fc2}.{weight,bias}",
     "blocks.#.{attn.proj,mlp.layers.0,mlp.layers.2}.{weight,bias}", kAlias},
    {"encoder.layer.#.{layernorm_before,layernorm_after}.{weight,bias}",
     "blocks.#.{norm1,norm2}.{scale,shift}"},
    {"layers.#.{layernorm_before,layernorm_after}.{weight,bias}", "blocks.#.{norm1,norm2}.{scale,shift}",
     kAlias},
    {"layernorm.{weight,bias}", "norm.{scale,shift}"},
    {"classifier.{weight,bias}", "head.{weight,bias}", kHead},
};

const std::vector<Family>& families() {
  static const NameRules gpt2{"transformer.", {kGpt2}, {"h.#.attn.{bias,masked_bias}"}};
  static const NameRules llama{
      "model.", {kDecoder, kLlamaNorms}, {"layers.#.self_attn.rotary_emb.inv_freq", "rotary_emb.inv_freq"}};
  static const NameRules gemma{"model.", {kDecoder, kGemmaNorms}, llama.ignored};
  static const NameRules roberta{
      "roberta.", {kEmbeddings, kBertLayers, kRobertaHead}, {"embeddings.{position_ids,token_type_ids}"}};
  static const NameRules bert{
      "bert.",
      {kEmbeddings, kBertLayers, kBertHead},
      {"embeddings.{position_ids,token_type_ids}", "cls.seq_relationship.{weight,bias}"}};
  static const NameRules albert_names{
      "albert.",
      {kEmbeddings, kAlbertLayers},
      {"embeddings.{position_ids,token_type_ids}", "sop_classifier.classifier.{weight,bias}"}};
  static const std::vector<std::string_view> some{"q_proj", "v_proj"};
  static const DecoderTraits gemma2{.kv_heads = 4,
                                    .head_dim = 256,
                                    .context = 8192,
                                    .tied = true,
                                    .activation_field = "hidden_activation",
                                    .activation = "gelu_pytorch_tanh",
                                    .norm_after = true,
                                    .gemma = true,
                                    .softcap = 50.0,
                                    .logit_softcap = 30.0,
                                    .windows = WindowRule::EveryOther};
  static const DecoderTraits gemma3 = [] {
    auto traits = gemma2;
    traits.context = 131072;
    traits.qk_norm = true;
    traits.softcap = traits.logit_softcap = std::nullopt;
    traits.windows = WindowRule::AllButEveryNth;
    traits.theta = 1e6;
    traits.local_theta = 1e4;
    return traits;
  }();
  static const DecoderTraits mistral{
      .kv_heads = 8, .attention_bias_field = false, .windows = WindowRule::All};
  static const DecoderTraits qwen2{.kv_heads = 32,
                                   .context = 32768,
                                   .attention_bias_field = false,
                                   .qkv_bias = true,
                                   .windows = WindowRule::FromLayer};
  static const DecoderTraits qwen3{
      .kv_heads = 32, .head_dim = 128, .context = 32768, .qk_norm = true, .windows = WindowRule::FromLayer};
  static const EncoderTraits by_padding{.padding_positions = true};
  static const EncoderTraits albert{.activation = "gelu_new",
                                    .dropout = 0.0,
                                    .head_dropout_field = "classifier_dropout_prob",
                                    .head_dropout = 0.1,
                                    .shared_layers = true};
  constexpr const char *gpt = GPTImpl::kName, *decoder = LlamaImpl::kName, *encoder = BertImpl::kName,
                       *images = ViTImpl::kName;
  static const std::vector<Family> all{
      {"gpt2", gpt, "GPT2", gpt2, {"c_attn"}, {}, {}, false, "n_layer"},
      {"llama", decoder, "Llama", llama, some, {.context = 2048, .mlp_bias_field = true}},
      {"mistral", decoder, "Mistral", llama, some, mistral},
      {"qwen2", decoder, "Qwen2", llama, some, qwen2},
      {"qwen3", decoder, "Qwen3", llama, some, qwen3},
      {"gemma2", decoder, "Gemma2", gemma, some, gemma2},
      {"gemma3_text", decoder, "Gemma3", gemma, some, gemma3},
      {"bert", encoder, "Bert", bert, {"query", "value"}},
      {"roberta", encoder, "Roberta", roberta, {"query", "value"}, {}, by_padding},
      {"xlm-roberta", encoder, "XLMRoberta", roberta, {}, {}, by_padding},
      {"camembert", encoder, "Camembert", roberta, {}, {}, by_padding},
      {"albert", encoder, "Albert", albert_names, {}, {}, albert, false, ""},
      {"vit", images, "ViT", {"vit.", {kViT}, {"pooler.dense.{weight,bias}"}}},
      {"deit", images, "DeiT", {"deit.", {kViT}, {"pooler.dense.{weight,bias}"}}, {}, {}, {}, true}};
  return all;
}

template <class Fits>
const Family& first_family(std::string_view model, const Fits& fits) {
  const auto found = std::find_if(families().begin(), families().end(), [&](const Family& family) {
    return family.model == model && fits(family);
  });
  TORCH_INTERNAL_ASSERT(found != families().end(), model);
  return *found;
}

bool has_traits(const DecoderTraits& traits, const LlamaOptions& options) {
  if (traits.norm_after != options.norm_after() || traits.qk_norm != options.qk_norm()) return false;
  if (traits.norm_after || traits.qk_norm) return true;
  const bool biases = options.qkv_bias() && !options.out_bias();
  if (biases || traits.qkv_bias) return biases == traits.qkv_bias;
  return has_windows(options) == (traits.windows != WindowRule::None);
}

}  // namespace

const Family* find_family(std::string_view name) {
  for (const auto& family : families()) {
    if (family.name == name) return &family;
  }
  return nullptr;
}

std::vector<std::string_view> families_of_model(std::string_view model) {
  std::vector<std::string_view> found;
  for (const auto& family : families()) {
    if (family.model == model) found.push_back(family.name);
  }
  return found;
}

std::vector<std::string_view> families_of_names(const StateDict& state) {
  std::vector<std::string_view> found;
  for (const auto& family : families()) {
    const NameTable table(family.rules);
    const auto known = [&](const auto& item) {
      std::optional<int64_t> layer;
      const auto plain = table.without_prefix(item.first);
      return table.is_ignored(plain) || !table.of_python_name(plain, layer).empty();
    };
    if (std::all_of(state.begin(), state.end(), known)) found.push_back(family.name);
  }
  return found;
}

std::string known_families(std::initializer_list<std::string_view> models) {
  std::string names;
  for (const auto& family : families()) {
    if (models.size() > 0 && std::find(models.begin(), models.end(), family.model) == models.end()) continue;
    names += (names.empty() ? "" : ", ") + std::string(family.name);
  }
  return names;
}

const Family& natural_family(const GPTOptions&) {
  return first_family(GPTImpl::kName, [](const Family&) { return true; });
}

const Family& natural_family(const LlamaOptions& options) {
  return first_family(LlamaImpl::kName,
                      [&](const Family& family) { return has_traits(family.decoder, options); });
}

const Family& natural_family(const BertOptions& options) {
  return first_family(BertImpl::kName, [&](const Family& family) {
    const auto& traits = family.encoder;
    return traits.shared_layers == options.shared_layers() &&
           (traits.shared_layers || traits.padding_positions == options.padding_id().has_value());
  });
}

const Family& natural_family(const ViTOptions& options) {
  return first_family(ViTImpl::kName, [&](const Family& family) {
    return family.distillation_token == options.distillation_token();
  });
}

const Family* natural_family(const torch::nn::Module& model) {
  if (const auto* gpt = dynamic_cast<const GPTImpl*>(&model)) return &natural_family(gpt->options);
  if (const auto* llama = dynamic_cast<const LlamaImpl*>(&model)) return &natural_family(llama->options);
  if (const auto* bert = dynamic_cast<const BertImpl*>(&model)) return &natural_family(bert->options);
  if (const auto* vit = dynamic_cast<const ViTImpl*>(&model)) return &natural_family(vit->options);
  return nullptr;
}

bool has_windows(const LlamaOptions& options) {
  const auto& windows = options.windows();
  return std::any_of(windows.begin(), windows.end(), [](int64_t window) { return window > 0; });
}

}  // namespace attentive

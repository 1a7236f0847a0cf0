// All families: the class that reads each one, and its tensors' names.

#include <algorithm>
#include <array>

#include <attentive/models/bert.h>
#include <attentive/models/gpt.h>
#include <attentive/models/llama.h>
#include <attentive/models/vit.h>

#include "models/name_rules.h"

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

const std::array<Family, 14>& families() {
  static const NameRules llama{
      "model.", {kDecoder, kLlamaNorms}, {"layers.#.self_attn.rotary_emb.inv_freq", "rotary_emb.inv_freq"}};
  static const NameRules gemma{"model.", {kDecoder, kGemmaNorms}, llama.ignored};
  static const NameRules roberta{
      "roberta.", {kEmbeddings, kBertLayers, kRobertaHead}, {"embeddings.{position_ids,token_type_ids}"}};
  static const std::array<Family, 14> all{{
      {"gpt2", GPTImpl::kName, {"transformer.", {kGpt2}, {"h.#.attn.{bias,masked_bias}"}}},
      {"llama", LlamaImpl::kName, llama},
      {"mistral", LlamaImpl::kName, llama},
      {"qwen2", LlamaImpl::kName, llama},
      {"qwen3", LlamaImpl::kName, llama},
      {"gemma2", LlamaImpl::kName, gemma},
      {"gemma3_text", LlamaImpl::kName, gemma},
      {"bert",
       BertImpl::kName,
       {"bert.",
        {kEmbeddings, kBertLayers, kBertHead},
        {"embeddings.{position_ids,token_type_ids}", "cls.seq_relationship.{weight,bias}"}}},
      {"roberta", BertImpl::kName, roberta},
      {"xlm-roberta", BertImpl::kName, roberta},
      {"camembert", BertImpl::kName, roberta},
      {"albert",
       BertImpl::kName,
       {"albert.",
        {kEmbeddings, kAlbertLayers},
        {"embeddings.{position_ids,token_type_ids}", "sop_classifier.classifier.{weight,bias}"}}},
      {"vit", ViTImpl::kName, {"vit.", {kViT}, {"pooler.dense.{weight,bias}"}}},
      {"deit", ViTImpl::kName, {"deit.", {kViT}, {"pooler.dense.{weight,bias}"}}},
  }};
  return all;
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

std::string known_families() {
  std::string names;
  for (const auto& family : families()) names += (names.empty() ? "" : ", ") + std::string(family.name);
  return names;
}

}  // namespace attentive

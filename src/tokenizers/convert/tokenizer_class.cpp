#include "tokenizers/convert/tokenizer_class.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "base/refusal.h"

namespace attentive::tokenizers {
namespace {

struct ClassFacts {
  TokenizerClass kind;
  const char* name;
  const char* file;
  std::string_view model_types;  // separated by spaces, with one at either end
};

// The classes of transformers 5.23.0 with their files and the model types that they are for.
constexpr std::array<ClassFacts, 11> kClasses{{
    {TokenizerClass::Bert, "BertTokenizer", "vocab.txt",
     " align bark bert blip bros chinese_clip convbert distilbert electra ernie flava git grounding-dino "
     "layoutlm "
     "megatron-bert mm-grounding-dino nezha nomic_bert qdqbert realm retribert squeezebert tvp vilt "
     "visual_bert "},
    {TokenizerClass::Gpt2, "GPT2Tokenizer", "vocab.json",
     " blip-2 codegen dbrx emu3 gpt2 gpt_neo gptj hyperclovax_vision_v2 instructblip instructblipvideo jais2 "
     "opt phi "
     "starcoder2 "},
    {TokenizerClass::Roberta, "RobertaTokenizer", "vocab.json",
     " bart bridgetower clap data2vec-text ibert lilt longformer mega mra roberta roberta-prelayernorm "},
    {TokenizerClass::Qwen2, "Qwen2Tokenizer", "vocab.json",
     " audioflamingo3 colqwen2 cosmos3_omni dots3_note fun_asr_nano hunyuan_vl internvl lighton_ocr "
     "moss_transcribe_diarize ovis2 qianfan_ocr qwen2 qwen2_5_omni qwen2_5_vl qwen2_audio qwen2_moe qwen2_vl "
     "qwen3 qwen3_asr qwen3_moe qwen3_next qwen3_omni_moe qwen3_vl qwen3_vl_moe vibevoice "},
    {TokenizerClass::Llama, "LlamaTokenizer", "tokenizer.model", " idefics idefics2 "},
    {TokenizerClass::Gemma, "GemmaTokenizer", "tokenizer.model",
     " diffusion_gemma gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text recurrent_gemma shieldgemma2 "
     "t5gemma "
     "zaya "},
    {TokenizerClass::Backend, "TokenizersBackend", "tokenizer.model",
     " EvollaModel aria beam bigbird_pegasus canary flex_olmo glm glm4 glm4_moe glm4_moe_lite glm4v "
     "glm4v_moe glm_image "
     "glmasr got_ocr2 gpt_bigcode gradium_phonon_tts granite granitemoe granitemoehybrid granitemoeshared "
     "kimi_k25 "
     "kimi_linear kosmos-2 mimo_v2_flash minicpm_ocr minicpmv4_6 minicpmv4_7 ministral ministral3 mistral "
     "mistral3 "
     "mistral_large4 mixtral nystromformer olmo2 olmo3 olmo_hybrid pegasus_x persimmon pix2struct pixtral "
     "pocket_tts "
     "stablelm umt5 voxtral voxtral_realtime xlm-roberta-xl "},
    {TokenizerClass::T5, "T5Tokenizer", "spiece.model",
     " mt5 musicgen musicgen_melody switch_transformers t5 "},
    {TokenizerClass::Albert, "AlbertTokenizer", "spiece.model", " albert yoso "},
    {TokenizerClass::XlmRoberta, "XLMRobertaTokenizer", "sentencepiece.bpe.model",
     " gte jina_embeddings_v3 metaclip_2 trocr xlm-roberta xmod "},
    {TokenizerClass::Camembert, "CamembertTokenizer", "sentencepiece.bpe.model", " camembert "},
}};

// The published files of these model types state a wrong class, or Python code that is not needed; both are
// ignored. The first list is read as TokenizersBackend, the second by another class, and the third by classes
// that are not supported here.
constexpr std::string_view kWrongForBackend =
    " arctic camembertv2-base chatlm cohere_asr ernie4_5 ernie4_5_moe fuyu h2ovl_chat hyperclovax "
    "hyperclovax_vlm "
    "internlm2 internlm3 iquestcoder jamba llava llava_next minicpm3 minicpmv minimax_m2 modernbert "
    "modernbert-decoder molmo molmo2 nemotron nvfp4 opencua openvla paddleocr_vl phi3 phi3_v phimoe smolvlm "
    "step3_vl vipllava ";
constexpr std::string_view kWrongForOther = " qwen2 hyperclovax_vision_v2 ";
constexpr std::string_view kWrongForUnread = " qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen4_exp siglip2 ";
// Model types without a class of their own are read as TokenizersBackend if the files state no class.
constexpr std::string_view kWithoutClass = " llama ";
// Python has other names for some of these classes.
constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kOtherNames{{
    {"ConvBertTokenizer", "BertTokenizer"},
    {"DistilBertTokenizer", "BertTokenizer"},
    {"ElectraTokenizer", "BertTokenizer"},
    {"LayoutLMTokenizer", "BertTokenizer"},
    {"MobileBertTokenizer", "BertTokenizer"},
    {"SqueezeBertTokenizer", "BertTokenizer"},
    {"BartTokenizer", "RobertaTokenizer"},
    {"LEDTokenizer", "RobertaTokenizer"},
    {"LongformerTokenizer", "RobertaTokenizer"},
    {"MvpTokenizer", "RobertaTokenizer"},
    {"Phi3Tokenizer", "LlamaTokenizer"},
    {"BloomTokenizer", "TokenizersBackend"},
    {"PreTrainedTokenizerFast", "TokenizersBackend"},
    {"PreTrainedTokenizer", "TokenizersBackend"},
}};

bool lists(std::string_view names, std::string_view name) {
  return name.find(' ') == name.npos && names.find(' ' + std::string(name) + ' ') != names.npos;
}

const ClassFacts& facts_of(TokenizerClass kind) {
  return *std::find_if(kClasses.begin(), kClasses.end(),
                       [&](const ClassFacts& facts) { return facts.kind == kind; });
}

const ClassFacts* class_of_model_type(std::string_view type) {
  if (lists(kWrongForBackend, type)) return &facts_of(TokenizerClass::Backend);
  const auto found = std::find_if(kClasses.begin(), kClasses.end(),
                                  [&](const ClassFacts& facts) { return lists(facts.model_types, type); });
  return found == kClasses.end() ? nullptr : &*found;
}

const ClassFacts* class_of_name(std::string name) {
  if (name.ends_with("Fast") && name != "PreTrainedTokenizerFast") name.resize(name.size() - 4);
  for (const auto& [other, known] : kOtherNames) {
    if (name == other) name = known;
  }
  const auto found = std::find_if(kClasses.begin(), kClasses.end(),
                                  [&](const ClassFacts& facts) { return facts.name == name; });
  return found == kClasses.end() ? nullptr : &*found;
}

// Returns a member that is a string; as in Python, null and "" count as absent.
std::string stated_text(const JsonView& json, std::string_view key) {
  const auto value = json.find(key);
  return value ? value->string() : std::string();
}

// Refuses a folder with Python code, which AutoTokenizer runs if the caller trusts it.
void refuse_own_code(const JsonView& tokenizer_config) {
  const auto map = tokenizer_config.find("auto_map");
  if (!map) return;
  const bool is_list = map->raw().is_array();
  if (!is_list && !map->has("AutoTokenizer")) return;
  const auto classes = is_list ? *map : map->at("AutoTokenizer");
  std::string name;
  if (classes.raw().is_array()) {
    for (const auto& item : classes.items()) {
      if (name.empty() && item.raw().is_string()) name = item.string();
    }
  }
  refuse("auto_map of tokenizer_config.json names Python code of the folder's own, {}, which is not run here",
         quoted_name(name));
}

}  // namespace

ChosenClass choose_tokenizer_class(const JsonView& tokenizer_config, const JsonView& config) {
  const auto model_type = stated_text(config, "model_type");
  const auto* const by_type = class_of_model_type(model_type);
  const bool states_wrong = lists(kWrongForBackend, model_type) || lists(kWrongForOther, model_type);
  const bool is_by_type_only = states_wrong || (by_type && by_type->kind == TokenizerClass::Backend);
  if (!states_wrong) refuse_own_code(tokenizer_config);
  if (lists(kWrongForUnread, model_type)) {
    refuse("the tokenizer class of model_type {} of config.json is not read here", quoted_name(model_type));
  }
  const auto of_type = [&](const ClassFacts& facts) {
    return ChosenClass{facts.kind, fmt::format("model_type {} of config.json", quoted_name(model_type))};
  };
  auto stated = stated_text(tokenizer_config, "tokenizer_class");
  const char* const file = stated.empty() ? "config.json" : "tokenizer_config.json";
  if (stated.empty()) stated = stated_text(config, "tokenizer_class");
  if (!stated.empty() && !is_by_type_only) {
    const auto* const facts = class_of_name(stated);
    if (!facts) refuse("tokenizer_class {} of {} is not read here", quoted_name(stated), file);
    return {facts->kind, fmt::format("tokenizer_class of {}", file)};
  }
  if (by_type) return of_type(*by_type);
  if (model_type.empty()) {
    return {TokenizerClass::Backend,
            "neither tokenizer_config.json nor config.json names a class or a model"};
  }
  if (lists(kWithoutClass, model_type)) return of_type(facts_of(TokenizerClass::Backend));
  refuse("the tokenizer class of model_type {} of config.json is not known here", quoted_name(model_type));
}

const char* name_of(TokenizerClass kind) {
  return facts_of(kind).name;
}

const char* vocabulary_file_of(TokenizerClass kind) {
  return facts_of(kind).file;
}

}  // namespace attentive::tokenizers

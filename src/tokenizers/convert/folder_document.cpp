#include <algorithm>
#include <array>
#include <string_view>

#include "base/files.h"
#include "base/refusal.h"
#include "tokenizers/convert/documents.h"
#include "tokenizers/convert/vocabulary_files.h"

namespace attentive::tokenizers {
namespace {

struct ClassFacts {
  TokenizerClass kind;
  const char* name;
  const char* file;
  const char* model;
};

constexpr std::array<ClassFacts, 11> kClasses{{
    {TokenizerClass::Bert, "BertTokenizer", "vocab.txt", "WordPiece"},
    {TokenizerClass::Gpt2, "GPT2Tokenizer", "vocab.json", "BPE"},
    {TokenizerClass::Roberta, "RobertaTokenizer", "vocab.json", "BPE"},
    {TokenizerClass::Qwen2, "Qwen2Tokenizer", "vocab.json", "BPE"},
    {TokenizerClass::Llama, "LlamaTokenizer", "tokenizer.model", "BPE"},
    {TokenizerClass::Gemma, "GemmaTokenizer", "tokenizer.model", "BPE"},
    {TokenizerClass::Backend, "TokenizersBackend", "tokenizer.model", ""},
    {TokenizerClass::T5, "T5Tokenizer", "spiece.model", "Unigram"},
    {TokenizerClass::Albert, "AlbertTokenizer", "spiece.model", "Unigram"},
    {TokenizerClass::XlmRoberta, "XLMRobertaTokenizer", "sentencepiece.bpe.model", "Unigram"},
    {TokenizerClass::Camembert, "CamembertTokenizer", "sentencepiece.bpe.model", "Unigram"},
}};

// AutoTokenizer's treatment of the class that a folder states.
enum class Stated {
  Counts,   // before the class of the model type
  Ignored,  // the model type demands its class
  Wrong,    // so does this one, whose published folders also name Python code that is not needed
};

struct ModelType {
  std::string_view name;
  TokenizerClass kind;
  Stated stated = Stated::Counts;
};

// The model types that load_pretrained reads, and gemma and t5. AutoTokenizer knows two hundred more, with
// exceptions of their own; they are refused.
constexpr std::array<ModelType, 14> kModelTypes{{
    {"albert", TokenizerClass::Albert},
    {"bert", TokenizerClass::Bert},
    {"camembert", TokenizerClass::Camembert},
    {"gemma", TokenizerClass::Gemma},
    {"gemma2", TokenizerClass::Gemma},
    {"gemma3_text", TokenizerClass::Gemma},
    {"gpt2", TokenizerClass::Gpt2},
    {"llama", TokenizerClass::Backend},
    {"mistral", TokenizerClass::Backend, Stated::Ignored},
    {"qwen2", TokenizerClass::Qwen2, Stated::Wrong},
    {"qwen3", TokenizerClass::Qwen2},
    {"roberta", TokenizerClass::Roberta},
    {"t5", TokenizerClass::T5},
    {"xlm-roberta", TokenizerClass::XlmRoberta},
}};
static_assert(std::ranges::is_sorted(kModelTypes, {}, &ModelType::name));

// AutoTokenizer reads any other model type by TokenizersBackend where a folder states that class, but for
// these, which demand classes that are not read here.
constexpr std::array<std::string_view, 6> kOtherDemands{"hyperclovax_vision_v2", "qwen3_5",   "qwen3_5_moe",
                                                        "qwen3_5_moe_text",      "qwen4_exp", "siglip2"};

const ClassFacts& facts_of(TokenizerClass kind) {
  return *std::ranges::find(kClasses, kind, &ClassFacts::kind);
}

const ModelType* find_model_type(std::string_view name) {
  const auto found = std::ranges::lower_bound(kModelTypes, name, {}, &ModelType::name);
  return found != kModelTypes.end() && found->name == name ? &*found : nullptr;
}

const ClassFacts* class_of_name(std::string_view name) {
  if (name == "PreTrainedTokenizerFast" || name == "PreTrainedTokenizer") name = "TokenizersBackend";
  if (name.ends_with("Fast")) name.remove_suffix(4);
  const auto found = std::ranges::find(kClasses, name, &ClassFacts::name);
  return found == kClasses.end() ? nullptr : &*found;
}

// Returns a member that is a string; as in Python, null and "" count as absent.
std::string stated_text(const JsonView& json, std::string_view key) {
  const auto value = json.find(key);
  return value ? value->string() : std::string();
}

// Refuses a folder with Python code, which AutoTokenizer runs if the caller trusts it.
void refuse_user_code(const JsonView& tokenizer_config) {
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
  const auto name = stated_text(config, "model_type");
  const auto* const type = find_model_type(name);
  const auto counts = type ? type->stated : Stated::Counts;
  if (counts != Stated::Wrong) refuse_user_code(tokenizer_config);
  auto stated = stated_text(tokenizer_config, "tokenizer_class");
  const char* const file = stated.empty() ? "config.json" : "tokenizer_config.json";
  if (stated.empty()) stated = stated_text(config, "tokenizer_class");
  const auto* const facts = class_of_name(stated);
  const bool generic = facts && facts->kind == TokenizerClass::Backend &&
                       std::ranges::find(kOtherDemands, name) == kOtherDemands.end();
  if (!type && !name.empty() && !generic) {
    refuse("the tokenizer of model_type {} of config.json is not read here", quoted_name(name));
  }
  if (!stated.empty() && counts == Stated::Counts) {
    if (!facts) refuse("tokenizer_class {} of {} is not read here", quoted_name(stated), file);
    return {facts->kind, fmt::format("tokenizer_class of {}", file)};
  }
  if (type) return {type->kind, fmt::format("model_type {} of config.json", quoted_name(name))};
  return {TokenizerClass::Backend, "neither tokenizer_config.json nor config.json names a class or a model"};
}

const char* name_of(TokenizerClass kind) {
  return facts_of(kind).name;
}

const char* vocabulary_file_of(TokenizerClass kind) {
  return facts_of(kind).file;
}

const char* model_of(TokenizerClass kind) {
  return facts_of(kind).model;
}

namespace {

// These limits exceed the published files: their vocabularies have at most 20 MiB, their settings 1 MiB.
constexpr size_t kLargestVocabulary = size_t{1} << 26;
constexpr size_t kLargestSettings = size_t{1} << 24;
constexpr size_t kLargestTokenizer = size_t{1} << 29;

// Parses a file of the folder; errors are prefixed with the file's name.
template <class Parse>
auto read_as(const std::filesystem::path& folder, const char* name, const Parse& parse) {
  const auto text = read_file(folder / name, kLargestVocabulary);
  try {
    return parse(text);
  } catch (const Refusal& refusal) {
    refuse("{}: {}", name, refusal.what());
  }
}

std::string text_if_there(const std::filesystem::path& folder, const char* name) {
  if (!is_there(folder / name)) return "";
  auto text = read_file(folder / name, kLargestSettings);
  if (text.empty()) refuse("{}: expected an object, got an empty file", name);
  return text;
}

std::string listed_vocabularies(const std::filesystem::path& folder) {
  std::string names;
  for (const char* name : {"vocab.txt", "vocab.json", "merges.txt", "tokenizer.model", "spiece.model",
                           "sentencepiece.bpe.model"}) {
    if (is_there(folder / name)) names += (names.empty() ? "" : ", ") + std::string(name);
  }
  return names.empty() ? "none" : names;
}

// Returns the name of the vocabulary file. A SentencePiece model has the name that its class gives it, or the
// most common one.
std::string vocabulary_file(const std::filesystem::path& folder, const ChosenClass& chosen) {
  for (const char* other : {"tekken.json", "tiktoken.model"}) {
    if (is_there(folder / other)) refuse("the vocabulary {} is not read here{}", other, kInPython);
  }
  const std::string vocabulary = vocabulary_file_of(chosen.kind);
  const std::string common = "tokenizer.model";
  if (is_there(folder / common)) {
    if (vocabulary.ends_with(".model")) return common;
    refuse("expected one vocabulary, got both {} and what {} reads, {}{}", common, name_of(chosen.kind),
           vocabulary, kInPython);
  }
  if (is_there(folder / vocabulary)) return vocabulary;
  refuse("expected {}, which {} reads ({}), or tokenizer.json; got other vocabularies: {}", vocabulary,
         name_of(chosen.kind), chosen.why, listed_vocabularies(folder));
}

nlohmann::json document_of(const std::filesystem::path& folder, const ChosenClass& chosen,
                           const TokenizerSettings& settings) {
  const auto file = vocabulary_file(folder, chosen);
  if (chosen.kind == TokenizerClass::Bert) {
    return class_document(chosen.kind, {.tokens = read_as(folder, file.c_str(), parse_vocab_txt)}, settings);
  }
  if (file == "vocab.json") {
    VocabularyParts parts{.tokens = read_as(folder, file.c_str(), parse_vocab_json)};
    if (!is_there(folder / "merges.txt")) refuse("expected merges.txt beside vocab.json, got no such file");
    parts.merges = read_as(folder, "merges.txt",
                           [&](const std::string& text) { return parse_merges_txt(text, parts.tokens); });
    return class_document(chosen.kind, std::move(parts), settings);
  }
  return sentence_piece_document(chosen.kind, read_as(folder, file.c_str(), parse_sentence_piece_model),
                                 settings);
}

}  // namespace

std::string convert_folder(const std::filesystem::path& folder) {
  const bool has_file = is_there(folder / "tokenizer.json");
  const auto text = has_file ? read_file(folder / "tokenizer.json", kLargestTokenizer) : std::string();
  const auto file = has_file ? parse_json(text) : nlohmann::json();
  if (has_file && !file.contains("model")) return text;  // in the format of this package
  if (!has_file && listed_vocabularies(folder) == "none" && !is_there(folder / "tekken.json") &&
      !is_there(folder / "tiktoken.model")) {
    refuse(
        "expected tokenizer.json, vocab.txt, vocab.json and merges.txt, or a SentencePiece model; got none");
  }
  const auto config_text = text_if_there(folder, "tokenizer_config.json");
  const auto tokenizer_config = parse_settings(config_text, "tokenizer_config.json");
  const auto config = parse_settings(text_if_there(folder, "config.json"), "config.json");
  ChosenClass chosen;
  try {
    chosen = choose_tokenizer_class(JsonView(tokenizer_config), JsonView(config));
  } catch (const Refusal& refusal) {
    refuse("{}{}", refusal.what(), has_file ? kByItself : kInPython);
  }
  const TokenizerSettings settings({.tokenizer_config = config_text,
                                    .special_tokens_map = text_if_there(folder, "special_tokens_map.json"),
                                    .added_tokens = text_if_there(folder, "added_tokens.json"),
                                    .file = has_file ? &file : nullptr});
  if (!has_file) return document_of(folder, chosen, settings).dump();
  // As in Python: Llama 3 and its kin state a class that cannot read them.
  if (chosen.kind == TokenizerClass::Llama && text.find("\"ByteLevel\"") != text.npos) {
    chosen.kind = TokenizerClass::Backend;
  }
  try {
    const auto made = file_document(chosen.kind, file, settings);
    return made == file ? text : made.dump();
  } catch (const Refusal& refusal) {
    refuse("{} ({}): {}{}", name_of(chosen.kind), chosen.why, refusal.what(), kByItself);
  }
}

std::string convert_vocab_txt(const std::filesystem::path& file, const TokenizerSettings& settings) {
  VocabularyParts parts{.tokens = parse_vocab_txt(read_file(file, kLargestVocabulary))};
  return class_document(TokenizerClass::Bert, std::move(parts), settings).dump();
}

}  // namespace attentive::tokenizers

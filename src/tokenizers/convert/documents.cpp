#include "tokenizers/convert/documents.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>

#include "base/refusal.h"
#include "tokenizers/models.h"

namespace attentive::tokenizers {
namespace {

std::string to_base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const auto count = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t n = 0; n < 3; ++n) {
      group = group << 8 | (n < count ? static_cast<uint8_t>(bytes[i + n]) : 0U);
    }
    for (size_t n = 0; n < 4; ++n) text += n <= count ? kDigits[group >> (18 - 6 * n) & 63] : '=';
  }
  return text;
}

}  // namespace

nlohmann::json plain_part(const char* type) {
  return {{"type", type}};
}

nlohmann::json sequence_part(const char* list, nlohmann::json parts) {
  return {{"type", "Sequence"}, {list, std::move(parts)}};
}

nlohmann::json replace_part(const char* from, const char* to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

nlohmann::json replace_matches_part(const char* pattern, const char* to) {
  return {{"type", "Replace"}, {"pattern", {{"Regex", pattern}}}, {"content", to}};
}

nlohmann::json isolating_part(std::string_view pattern) {
  return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
}

nlohmann::json metaspace_part(const char* prepend_scheme, bool split) {
  return {{"type", "Metaspace"},
          {"replacement", kWordMark},
          {"prepend_scheme", prepend_scheme},
          {"split", split}};
}

nlohmann::json precompiled_part(std::string_view charsmap) {
  return {{"type", "Precompiled"}, {"precompiled_charsmap", to_base64(charsmap)}};
}

nlohmann::json bpe_part(nlohmann::json vocabulary, nlohmann::json merges) {
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", false},
          {"vocab", std::move(vocabulary)},
          {"merges", std::move(merges)}};
}

NamedTokenTable::NamedTokenTable(const Defaults& defaults, const TokenizerSettings& settings) {
  for (const auto& key : named_token_keys()) {
    const auto usual =
        std::find_if(defaults.begin(), defaults.end(), [&](const auto& entry) { return entry.first == key; });
    std::optional<DeclaredToken> token;
    if (usual != defaults.end()) token = text_token(usual->second);
    if (const auto stated = settings.named(key)) token = *stated;
    tokens_.emplace_back(key, std::move(token));
  }
  for (const auto& [key, token] : settings.of_this_model()) {
    if (has(key)) {
      at(key) = token;
    } else {
      tokens_.emplace_back(key, token);
    }
  }
}

std::optional<DeclaredToken>& NamedTokenTable::at(std::string_view key) {
  return std::find_if(tokens_.begin(), tokens_.end(), [&](const auto& entry) { return entry.first == key; })
      ->second;
}

bool NamedTokenTable::has(std::string_view key) const {
  return std::any_of(tokens_.begin(), tokens_.end(),
                     [&](const auto& entry) { return entry.first == key && entry.second; });
}

const std::string& NamedTokenTable::text(std::string_view key) const {
  if (!has(key)) refuse("expected a token as {}, got none", key);
  return std::find_if(tokens_.begin(), tokens_.end(), [&](const auto& entry) { return entry.first == key; })
      ->second->content;
}

namespace {

// Returns the ids of a model's tokens. The keys are views into `model`.
std::unordered_map<std::string_view, int64_t> ids_of_model(const nlohmann::json& model) {
  std::unordered_map<std::string_view, int64_t> ids;
  const auto& vocabulary = model["vocab"];
  ids.reserve(vocabulary.size());
  if (vocabulary.is_object()) {
    for (const auto& [token, id] : vocabulary.items()) ids.emplace(token, id.get<int64_t>());
    return ids;
  }
  int64_t place = 0;  // if two tokens are equal, the last one counts
  for (const auto& entry : vocabulary) ids[entry[0].get_ref<const std::string&>()] = place++;
  return ids;
}

// Returns the tokens that a draft and a folder's settings add to the vocabulary and to tokens that were
// `added` before, in the order in which Python's TokenizersBackend adds them.
std::vector<DeclaredToken> tokens_to_add(const Draft& draft, const TokenizerSettings& settings,
                                         const AddedTokenList& added) {
  std::vector<DeclaredToken> tokens;
  std::map<std::string, std::vector<DeclaredToken>> offered;  // by content; equal tokens are added once
  std::set<std::string_view> stated, names;
  for (const auto& [id, token] : settings.added()) {
    tokens.push_back(token);
    stated.insert(token.content);
  }
  const auto offer = [&](const DeclaredToken& token) {
    if (stated.contains(token.content) || added.has(token.content)) return;
    auto& same = offered[token.content];
    if (std::find(same.begin(), same.end(), token) != same.end()) return;
    same.push_back(token);
    tokens.push_back(token);
  };
  for (const auto& [key, token] : draft.named.all()) {
    if (!token) continue;
    names.insert(token->content);
    offer(*token);
  }
  if (draft.extra) {
    for (const auto& token : *draft.extra) offer(token);
  }
  for (auto& token : tokens) {
    if (names.contains(token.content)) token.special = true;
  }
  return tokens;
}

nlohmann::json byte_level_part(bool add_prefix_space, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

// One entry of a template: "$A", "$B" or the name of a token; and its segment.
using TemplateEntry = std::pair<std::string, int>;

nlohmann::json template_pieces(const std::vector<TemplateEntry>& entries) {
  auto pieces = nlohmann::json::array();
  for (const auto& [name, type_id] : entries) {
    const bool is_sequence = name == "$A" || name == "$B";
    pieces.push_back({{is_sequence ? "Sequence" : "SpecialToken",
                       {{"id", is_sequence ? name.substr(1) : name}, {"type_id", type_id}}}});
  }
  return pieces;
}

// Makes a template post-processor; `tokens` holds the names and ids of the tokens in it. Throws Refusal for a
// name that Python's templates cannot have.
nlohmann::json template_part(const std::vector<TemplateEntry>& single, const std::vector<TemplateEntry>& pair,
                             const std::vector<std::pair<std::string, int64_t>>& tokens) {
  auto known = nlohmann::json::object();
  for (const auto& [name, id] : tokens) {
    if (name.empty() || name.find_first_of(" :") != name.npos || name[0] == '$') {
      refuse("expected a token without spaces, colons and a dollar sign around a text, got {}",
             quoted_name(name));
    }
    known[name] = {
        {"id", name}, {"ids", nlohmann::json::array({id})}, {"tokens", nlohmann::json::array({name})}};
  }
  return {{"type", "TemplateProcessing"},
          {"single", template_pieces(single)},
          {"pair", template_pieces(pair)},
          {"special_tokens", std::move(known)}};
}

// The pattern by which Qwen's tokenizers cut a text into words.
constexpr const char* kQwenWords =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
    "\\s+(?!\\S)|\\s+";

// Refuses settings of Python that change ids or the files that are read, and that a document cannot hold.
void check_settings(const TokenizerSettings& settings) {
  for (const char* key : {"split_special_tokens", "fix_mistral_regex"}) {
    if (settings.flag(key, false)) refuse("tokenizer_config.json: {} is not supported", key);
  }
  for (const char* key : {"vocab", "merges", "tokenizer_truncation", "tokenizer_padding"}) {
    if (settings.states(key)) refuse("tokenizer_config.json: {} is not supported", key);
  }
}

// Makes the template for the tokens that add_bos_token and add_eos_token put around a text.
nlohmann::json begin_end_template(const Draft& draft, const AddedTokenList& added,
                                  const TokenizerSettings& settings) {
  std::vector<TemplateEntry> single{{"$A", 0}}, second{{"$B", 1}};
  std::vector<std::pair<std::string, int64_t>> tokens;
  const auto take = [&](const char* flag, const char* key, bool front) {
    if (!settings.flag(flag, false) || !draft.named.has(key)) return;
    const auto& token = draft.named.text(key);
    tokens.emplace_back(token, added.id_of(token));
    single.emplace(front ? single.begin() : single.end(), token, 0);
    second.emplace(front ? second.begin() : second.end(), token, 1);
  };
  take("add_bos_token", "bos_token", /*front=*/true);
  take("add_eos_token", "eos_token", /*front=*/false);
  auto pair = single;
  pair.insert(pair.end(), second.begin(), second.end());
  return template_part(single, pair, tokens);
}

// Makes the template of A and B, each between two tokens; `joint` is the number of times that the second
// token stands between A and B.
nlohmann::json enclosing_template(const std::string& first, int64_t first_id, const std::string& last,
                                  int64_t last_id, int joint, int second_type) {
  const std::vector<TemplateEntry> single{{first, 0}, {"$A", 0}, {last, 0}};
  auto pair = single;
  for (int n = 1; n < joint; ++n) pair.emplace_back(last, 0);
  pair.emplace_back("$B", second_type);
  pair.emplace_back(last, second_type);
  return template_part(single, pair, {{first, first_id}, {last, last_id}});
}

nlohmann::json post_processor_of(TokenizerClass kind, const Draft& draft, const AddedTokenList& added,
                                 const TokenizerSettings& settings) {
  const auto text = [&](const char* key) { return draft.named.text(key); };
  const auto id = [&](const char* key) { return added.id_of(draft.named.text(key)); };
  switch (kind) {
    case TokenizerClass::Bert:
      return enclosing_template(text("cls_token"), id("cls_token"), text("sep_token"), id("sep_token"), 1, 1);
    case TokenizerClass::Roberta:
      return {{"type", "RobertaProcessing"},
              {"sep", nlohmann::json::array({text("sep_token"), id("sep_token")})},
              {"cls", nlohmann::json::array({text("cls_token"), id("cls_token")})},
              {"trim_offsets", settings.flag("trim_offsets", true)},
              {"add_prefix_space", settings.flag("add_prefix_space", false)}};
    case TokenizerClass::T5:
      return template_part({{"$A", 0}, {"</s>", 0}}, {{"$A", 0}, {"</s>", 0}, {"$B", 0}, {"</s>", 0}},
                           {{"</s>", id("eos_token")}});
    case TokenizerClass::Albert:
      for (const char* key : {"cls_token", "sep_token"}) {  // their ids precede added tokens
        if (!added.is_own(text(key)))
          refuse("expected {} in the vocabulary as {}", quoted_name(text(key)), key);
      }
      if (settings.states("add_bos_token") || settings.states("add_eos_token")) break;
      return enclosing_template("[CLS]", id("cls_token"), "[SEP]", id("sep_token"), 1, 1);
    case TokenizerClass::XlmRoberta:
    case TokenizerClass::Camembert:
      return enclosing_template(text("bos_token"), id("bos_token"), text("eos_token"), id("eos_token"), 2, 0);
    default:
      break;
  }
  return begin_end_template(draft, added, settings);
}

// These classes keep the post-processor of a tokenizer.json; the others make their own.
bool keeps_post_processor(TokenizerClass kind) {
  switch (kind) {
    case TokenizerClass::Gpt2:
    case TokenizerClass::Qwen2:
    case TokenizerClass::Llama:
    case TokenizerClass::Gemma:
    case TokenizerClass::Albert:
      return true;
    default:
      return false;
  }
}

nlohmann::json finished(TokenizerClass kind, Draft draft, const TokenizerSettings& settings,
                        const nlohmann::json& file = nullptr) {
  check_settings(settings);
  const auto ids = ids_of_model(draft.model);
  AddedTokenList added(draft.model["vocab"].size(), ids);
  added.add(tokens_to_add(draft, settings, added));
  if (kind == TokenizerClass::Qwen2) {  // the class adds the named tokens again, as plain strings
    std::vector<DeclaredToken> names;
    for (const auto& [key, token] : draft.named.all()) {
      if (token) names.push_back(text_token(token->content));
    }
    for (const auto& token : draft.extra.value_or(std::vector<DeclaredToken>())) {
      names.push_back(text_token(token.content));
    }
    added.add(names);
  }
  auto post_processor = post_processor_of(kind, draft, added, settings);
  if (const auto kept = JsonView(file).find("post_processor"); kept && keeps_post_processor(kind)) {
    post_processor = kept->raw();
  }
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added.json()},
          {"normalizer", std::move(draft.normalizer)},
          {"pre_tokenizer", std::move(draft.pre_tokenizer)},
          {"post_processor", std::move(post_processor)},
          {"decoder", std::move(draft.decoder)},
          {"model", std::move(draft.model)}};
}

nlohmann::json optional_flag(std::optional<bool> value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

void draft_bert(Draft& draft, VocabularyParts vocabulary, const TokenizerSettings& settings) {
  draft.model = {{"type", "WordPiece"},
                 {"unk_token", draft.named.text("unk_token")},
                 {"continuing_subword_prefix", "##"},
                 {"max_input_chars_per_word", 100},
                 {"vocab", std::move(vocabulary.tokens)}};
  draft.normalizer = {{"type", "BertNormalizer"},
                      {"clean_text", true},
                      {"handle_chinese_chars", settings.flag("tokenize_chinese_chars", true)},
                      {"strip_accents", optional_flag(settings.flag("strip_accents"))},
                      {"lowercase", settings.flag("do_lower_case", true)}};
  draft.pre_tokenizer = plain_part("BertPreTokenizer");
  draft.decoder = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
}

void draft_byte_level(TokenizerClass kind, Draft& draft, VocabularyParts vocabulary,
                      const TokenizerSettings& settings) {
  draft.model = bpe_part(std::move(vocabulary.tokens), std::move(vocabulary.merges));
  draft.model["continuing_subword_prefix"] = "";
  draft.model["end_of_word_suffix"] = "";
  const bool prefix = settings.flag("add_prefix_space", false);
  if (kind == TokenizerClass::Qwen2) {
    draft.normalizer = plain_part("NFC");
    draft.pre_tokenizer = sequence_part(
        "pretokenizers",
        nlohmann::json::array({isolating_part(kQwenWords), byte_level_part(prefix, /*use_regex=*/false)}));
  } else {
    draft.pre_tokenizer = byte_level_part(prefix, /*use_regex=*/true);
  }
  draft.decoder = byte_level_part(/*add_prefix_space=*/true, /*use_regex=*/true);
}

// Refuses a model of a tokenizer.json whose "vocab" is no object of tokens and ids, or, for a Unigram, no list
// of tokens and scores.
void check_vocabulary(const JsonView& model) {
  const bool is_list = model_type_of(model) == "Unigram";
  const auto& tokens = model.at("vocab").raw();
  const bool good = (is_list ? tokens.is_array() : tokens.is_object()) &&
                    std::all_of(tokens.begin(), tokens.end(), [&](const auto& entry) {
                      return is_list ? entry.is_array() && entry.size() == 2 && entry[0].is_string()
                                     : entry.is_number_integer();
                    });
  if (!good) model.at("vocab").expected(is_list ? "tokens and their scores" : "tokens and their ids");
}

// Returns the first charsmap among a file's normalizers, where the classes look for it.
nlohmann::json precompiled_of(const nlohmann::json& file) {
  const auto none = nlohmann::json();
  const auto& normalizer = file.contains("normalizer") ? file["normalizer"] : none;
  const auto is_precompiled = [&](const nlohmann::json& part) {
    return part.is_object() && part.value("type", none) == "Precompiled";
  };
  if (is_precompiled(normalizer)) return normalizer;
  if (!normalizer.is_object() || !normalizer.contains("normalizers")) return none;
  for (const auto& part : normalizer["normalizers"]) {
    if (is_precompiled(part)) return part;
  }
  return none;
}

nlohmann::json backend_document(const nlohmann::json& file, const TokenizerSettings& settings) {
  check_settings(settings);
  auto made = file;
  for (const char* key : {"truncation", "padding"}) {
    if (made.contains(key)) made[key] = nullptr;
  }
  Draft draft(NamedTokenTable(default_tokens(TokenizerClass::Backend, file), settings));
  draft.extra = settings.extra() ? settings.extra() : settings.additional();
  const auto ids = ids_of_model(made["model"]);
  AddedTokenList added(made["model"]["vocab"].size(), ids);
  for (const auto& [id, token] : parse_file_tokens(file)) added.add({token});
  added.add(tokens_to_add(draft, settings, added));
  auto tokens = added.json();
  if (!tokens.empty()) made["added_tokens"] = std::move(tokens);
  return made;
}

}  // namespace

NamedTokenTable::Defaults default_tokens(TokenizerClass kind, const nlohmann::json& file) {
  NamedTokenTable::Defaults padding;
  if (const auto stated = JsonView(file).find("padding")) {
    padding.emplace_back("pad_token", stated->at("pad_token").string());
  }
  switch (kind) {
    case TokenizerClass::Bert:
      return {{"unk_token", "[UNK]"},
              {"sep_token", "[SEP]"},
              {"pad_token", "[PAD]"},
              {"cls_token", "[CLS]"},
              {"mask_token", "[MASK]"}};
    case TokenizerClass::Gpt2:
      return {{"unk_token", "<|endoftext|>"}, {"eos_token", "<|endoftext|>"}, {"bos_token", "<|endoftext|>"}};
    case TokenizerClass::Qwen2:
      return {{"unk_token", "<|endoftext|>"}, {"eos_token", "<|endoftext|>"}, {"pad_token", "<|endoftext|>"}};
    case TokenizerClass::Llama:
      padding.insert(padding.end(), {{"unk_token", "<unk>"}, {"bos_token", "<s>"}, {"eos_token", "</s>"}});
      return padding;
    case TokenizerClass::Gemma:
      return {{"unk_token", "<unk>"},
              {"bos_token", "<bos>"},
              {"eos_token", "<eos>"},
              {"pad_token", "<pad>"},
              {"mask_token", "<mask>"}};
    case TokenizerClass::T5:
      return {{"eos_token", "</s>"}, {"unk_token", "<unk>"}, {"pad_token", "<pad>"}};
    case TokenizerClass::Albert:
      return {{"bos_token", "[CLS]"}, {"eos_token", "[SEP]"}, {"unk_token", "<unk>"},  {"sep_token", "[SEP]"},
              {"pad_token", "<pad>"}, {"cls_token", "[CLS]"}, {"mask_token", "[MASK]"}};
    case TokenizerClass::Roberta:
    case TokenizerClass::XlmRoberta:
    case TokenizerClass::Camembert:
      return {{"bos_token", "<s>"},   {"eos_token", "</s>"},  {"sep_token", "</s>"},   {"cls_token", "<s>"},
              {"unk_token", "<unk>"}, {"pad_token", "<pad>"}, {"mask_token", "<mask>"}};
    case TokenizerClass::Backend:
      break;
  }
  return padding;
}

nlohmann::json class_document(TokenizerClass kind, VocabularyParts vocabulary,
                              const TokenizerSettings& settings, const nlohmann::json& file) {
  Draft draft(NamedTokenTable(default_tokens(kind, file), settings));
  draft.extra = vocabulary.additional ? std::move(vocabulary.additional) : settings.additional();
  if (kind == TokenizerClass::Bert) {
    draft_bert(draft, std::move(vocabulary), settings);
  } else if (kind == TokenizerClass::Gpt2 || kind == TokenizerClass::Roberta ||
             kind == TokenizerClass::Qwen2) {
    draft_byte_level(kind, draft, std::move(vocabulary), settings);
  } else {
    draft_sentence_piece(kind, draft, std::move(vocabulary), settings);
  }
  if (settings.extra()) draft.extra = settings.extra();
  return finished(kind, std::move(draft), settings, file);
}

nlohmann::json sentence_piece_document(TokenizerClass kind, const SentencePieceModel& model,
                                       const TokenizerSettings& settings) {
  if (kind == TokenizerClass::Backend) {
    auto changed = settings;
    auto draft = draft_backend(model, changed);
    return finished(kind, std::move(draft), changed);
  }
  return class_document(kind, vocabulary_of(kind, model, settings), settings);
}

nlohmann::json file_document(TokenizerClass kind, const nlohmann::json& file,
                             const TokenizerSettings& settings) {
  const auto model = JsonView(file).at("model");
  check_vocabulary(model);
  if (kind == TokenizerClass::Backend) return backend_document(file, settings);
  if (model_type_of(model) != model_of(kind)) {
    refuse("model.type: expected {}, of which the class is made, got {}", model_of(kind),
           model_type_of(model));
  }
  VocabularyParts vocabulary{.tokens = model.at("vocab").raw(), .precompiled = precompiled_of(file)};
  if (model.has("merges")) vocabulary.merges = model.at("merges").raw();
  return class_document(kind, std::move(vocabulary), settings, file);
}

}  // namespace attentive::tokenizers

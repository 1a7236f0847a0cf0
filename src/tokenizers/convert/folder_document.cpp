#include "tokenizers/convert/folder_document.h"

#include <optional>

#include "base/files.h"
#include "base/refusal.h"
#include "tokenizers/convert/tokenizer_class.h"
#include "tokenizers/convert/tokenizer_document.h"
#include "tokenizers/convert/vocabulary_files.h"

namespace attentive::tokenizers {
namespace {

// These limits exceed the published files: their vocabularies have at most 20 MiB, their settings 1 MiB.
constexpr size_t kLargestVocabulary = size_t{1} << 26;
constexpr size_t kLargestSettings = size_t{1} << 24;
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

nlohmann::json object_of(const char* name, const std::string& text) {
  if (text.empty()) return nlohmann::json::object();
  try {
    auto document = parse_json(text);
    if (!document.is_object()) JsonView(document).expected("an object");
    return document;
  } catch (const Refusal& refusal) {
    refuse("{}: {}", name, refusal.what());
  }
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
    return word_piece_document(read_as(folder, file.c_str(), parse_vocab_txt), settings);
  }
  if (file == "vocab.json") {
    auto vocabulary = read_as(folder, file.c_str(), parse_vocab_json);
    if (!is_there(folder / "merges.txt")) refuse("expected merges.txt beside vocab.json, got no such file");
    auto merges = read_as(folder, "merges.txt",
                          [&](const std::string& text) { return parse_merges_txt(text, vocabulary); });
    return byte_level_document(chosen.kind, std::move(vocabulary), std::move(merges), settings);
  }
  return sentence_piece_document(chosen.kind, read_as(folder, file.c_str(), parse_sentence_piece_model),
                                 settings);
}

}  // namespace

std::string convert_folder(const std::filesystem::path& folder) {
  if (listed_vocabularies(folder) == "none" && !is_there(folder / "tekken.json") &&
      !is_there(folder / "tiktoken.model")) {
    refuse(
        "expected tokenizer.json, vocab.txt, vocab.json and merges.txt, or a SentencePiece model; got none");
  }
  const auto config_text = text_if_there(folder, "tokenizer_config.json");
  const auto tokenizer_config = object_of("tokenizer_config.json", config_text);
  const auto config = object_of("config.json", text_if_there(folder, "config.json"));
  std::optional<ChosenClass> chosen;
  try {
    chosen = choose_tokenizer_class(JsonView(tokenizer_config), JsonView(config));
  } catch (const Refusal& refusal) {
    refuse("{}{}", refusal.what(), kInPython);
  }
  const TokenizerSettings settings({.tokenizer_config = config_text,
                                    .special_tokens_map = text_if_there(folder, "special_tokens_map.json"),
                                    .added_tokens = text_if_there(folder, "added_tokens.json")});
  return document_of(folder, *chosen, settings).dump();
}

std::string convert_vocab_txt(const std::filesystem::path& file, const TokenizerSettings& settings) {
  return word_piece_document(parse_vocab_txt(read_file(file, kLargestVocabulary)), settings).dump();
}

}  // namespace attentive::tokenizers

#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tokenizers/convert/tokenizer_settings.h"
#include "tokenizers/convert/vocabulary_files.h"
#include "tokenizers/json_view.h"

namespace attentive::tokenizers {

/// The classes of Python's transformers whose vocabulary files are read here.
enum class TokenizerClass {
  Bert,        // vocab.txt
  Gpt2,        // vocab.json and merges.txt
  Roberta,     // the same
  Qwen2,       // the same
  Llama,       // tokenizer.model
  Gemma,       // the same
  Backend,     // tokenizer.model, for models without a class of their own, such as Mistral
  T5,          // spiece.model
  Albert,      // the same
  XlmRoberta,  // sentencepiece.bpe.model
  Camembert,   // the same
};

inline constexpr const char* kWordMark = "\u2581";  // SentencePiece's sign for a space

// These functions make the parts of a `tokenizer.json` that more than one class of tokenizers has, with every
// member that Python writes.

/// Makes a part that has only a type, such as NFC.
nlohmann::json plain_part(const char* type);
/// Makes a Sequence; `list` is "normalizers", "pretokenizers" or "decoders".
nlohmann::json sequence_part(const char* list, nlohmann::json parts);
/// Makes a normalizer or a decoder that replaces one text by another.
nlohmann::json replace_part(const char* from, const char* to);
/// Makes a Metaspace; `prepend_scheme` is "always", "first" or "never".
nlohmann::json metaspace_part(const char* prepend_scheme, bool split);
nlohmann::json precompiled_part(std::string_view charsmap);
nlohmann::json bpe_part(nlohmann::json vocabulary, nlohmann::json merges);

/// Ends the refusal of a folder that only Python's class can read.
inline constexpr const char* kInPython =
    "; in Python, transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(folder) writes a "
    "tokenizer.json";

/// The named tokens, such as bos_token, in Python's order: a class's defaults, replaced by those of a
/// folder's settings where these state them. std::nullopt means that there is no such token.
class NamedTokenTable {
 public:
  using Defaults = std::vector<std::pair<std::string, std::string>>;
  NamedTokenTable(const Defaults& defaults, const TokenizerSettings& settings);

  /// Returns the text of a named token. Throws Refusal if there is none.
  const std::string& text(std::string_view key) const;
  bool has(std::string_view key) const;
  const std::vector<std::pair<std::string, std::optional<DeclaredToken>>>& all() const { return tokens_; }
  std::optional<DeclaredToken>& at(std::string_view key);

 private:
  std::vector<std::pair<std::string, std::optional<DeclaredToken>>> tokens_;
};

/// The document that a class of tokenizers drafts, before tokens are added.
struct Draft {
  explicit Draft(NamedTokenTable tokens) : named(std::move(tokens)) {}

  nlohmann::json model, normalizer, pre_tokenizer, decoder;
  NamedTokenTable named;
  std::optional<std::vector<DeclaredToken>> extra;  // special tokens without a name
};

/// Drafts the document of a class that reads SentencePiece models: Llama, Gemma, Backend, T5, Albert,
/// XlmRoberta or Camembert.
Draft draft_sentence_piece(TokenizerClass kind, const SentencePieceModel& model,
                           const TokenizerSettings& settings);

// These functions make the `tokenizer.json` document that a class of Python's transformers 5.23.0 makes of a
// vocabulary and settings: the text that `AutoTokenizer.from_pretrained(folder).backend_tokenizer.to_str()`
// returns. They throw Refusal for settings that the class does not accept or that a document cannot hold.

/// Makes the document of Bert; `vocabulary` is the result of parse_vocab_txt.
nlohmann::json word_piece_document(nlohmann::json vocabulary, const TokenizerSettings& settings);

/// Makes the document of Gpt2, Roberta or Qwen2; vocabulary and merges are the results of parse_vocab_json
/// and parse_merges_txt.
nlohmann::json byte_level_document(TokenizerClass kind, nlohmann::json vocabulary, nlohmann::json merges,
                                   const TokenizerSettings& settings);

/// Makes the document of any other class.
nlohmann::json sentence_piece_document(TokenizerClass kind, const SentencePieceModel& model,
                                       const TokenizerSettings& settings);

struct ChosenClass {
  TokenizerClass kind;
  std::string why;  // the reason, such as "tokenizer_class of tokenizer_config.json"
};

/// Returns the class that reads a folder, as AutoTokenizer of transformers 5.23.0 decides: `tokenizer_class`
/// of tokenizer_config.json, else that of config.json, unless the `model_type` of config.json demands another
/// class; else the class of the `model_type`. Both documents may be empty objects. Throws Refusal for a class
/// and a model type that are not read here, and for a folder with Python code.
ChosenClass choose_tokenizer_class(const JsonView& tokenizer_config, const JsonView& config);

/// Returns the class's name in Python.
const char* name_of(TokenizerClass kind);

/// Returns the name of the class's vocabulary file.
const char* vocabulary_file_of(TokenizerClass kind);

/// Returns the text of a `tokenizer.json` for a folder that lacks one, made of the files that the folder has:
/// the text that Python's `AutoTokenizer.from_pretrained(folder).save_pretrained(folder)` would write. Throws
/// Refusal with what is missing or wrong, and, if only Python's class can read the folder, with that line of
/// Python; std::system_error for a file that cannot be read.
std::string convert_folder(const std::filesystem::path& folder);

/// Returns the document of a lone `vocab.txt`, read as by Python's BertTokenizer.
std::string convert_vocab_txt(const std::filesystem::path& file, const TokenizerSettings& settings);

}  // namespace attentive::tokenizers

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
/// Makes a normalizer or a decoder that replaces one text by another; replace_matches_part, what a regular
/// expression matches.
nlohmann::json replace_part(const char* from, const char* to);
nlohmann::json replace_matches_part(const char* pattern, const char* to);
/// Makes a pre-tokenizer that isolates what a regular expression matches.
nlohmann::json isolating_part(std::string_view pattern);
/// Makes a Metaspace; `prepend_scheme` is "always", "first" or "never".
nlohmann::json metaspace_part(const char* prepend_scheme, bool split);
nlohmann::json precompiled_part(std::string_view charsmap);
nlohmann::json bpe_part(nlohmann::json vocabulary, nlohmann::json merges);

/// Ends the refusal of a folder that only Python's class can read.
inline constexpr const char* kInPython =
    "; in Python, transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(folder) writes a "
    "tokenizer.json";
/// Ends the refusal of a tokenizer.json whose folder does not say how it is read.
inline constexpr const char* kByItself = "; name tokenizer.json itself to read it as it is";

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

/// What a class of tokenizers takes from a file; it makes the other parts of its document itself.
struct VocabularyParts {
  nlohmann::json tokens;                 // "vocab" of the document's model
  nlohmann::json merges = nullptr;       // "merges" of the document's model, which only BPE has
  nlohmann::json precompiled = nullptr;  // the normalizer Precompiled, if there is one
  /// The "additional_special_tokens"; std::nullopt: those of the settings.
  std::optional<std::vector<DeclaredToken>> additional = std::nullopt;
};

/// The document that a class of tokenizers drafts, before tokens are added.
struct Draft {
  explicit Draft(NamedTokenTable tokens) : named(std::move(tokens)) {}

  nlohmann::json model, normalizer, pre_tokenizer, decoder;
  NamedTokenTable named;
  std::optional<std::vector<DeclaredToken>> extra;  // special tokens without a name
};

/// The named tokens that a class has unless the settings say otherwise. Llama and Backend have no pad_token
/// but that of the padding of `file`, a tokenizer.json or null.
NamedTokenTable::Defaults default_tokens(TokenizerClass kind, const nlohmann::json& file = nullptr);

/// Returns what Llama, Gemma, T5, Albert, XlmRoberta or Camembert takes from a SentencePiece model.
VocabularyParts vocabulary_of(TokenizerClass kind, const SentencePieceModel& model,
                              const TokenizerSettings& settings);

/// Drafts the parts of a class that vocabulary_of knows. `draft.extra` holds the additional tokens.
void draft_sentence_piece(TokenizerClass kind, Draft& draft, VocabularyParts vocabulary,
                          const TokenizerSettings& settings);

/// Drafts the document that Backend makes of a SentencePiece model. `settings` get the tokens that it adds.
Draft draft_backend(const SentencePieceModel& model, TokenizerSettings& settings);

// These functions make the `tokenizer.json` document that a class of Python's transformers 5.24.0 makes of a
// vocabulary and settings: the text that `AutoTokenizer.from_pretrained(folder).backend_tokenizer.to_str()`
// returns. They throw Refusal for settings that the class does not accept or that a document cannot hold.

/// Makes the document of any class but Backend. `file` is a folder's tokenizer.json, or null: some classes
/// keep its post-processor.
nlohmann::json class_document(TokenizerClass kind, VocabularyParts vocabulary,
                              const TokenizerSettings& settings, const nlohmann::json& file = nullptr);

/// Makes the document of a class that reads SentencePiece models.
nlohmann::json sentence_piece_document(TokenizerClass kind, const SentencePieceModel& model,
                                       const TokenizerSettings& settings);

/// Makes the document that a class makes of a folder's tokenizer.json: Backend takes all of it, and any other
/// class the vocabulary, the merges, the charsmap and the added tokens. The file's truncation and padding are
/// left out, as Python's tokenizers apply those of a call. `settings` were read with the file's added tokens.
nlohmann::json file_document(TokenizerClass kind, const nlohmann::json& file,
                             const TokenizerSettings& settings);

struct ChosenClass {
  TokenizerClass kind = TokenizerClass::Backend;
  std::string why;  // the reason, such as "tokenizer_class of tokenizer_config.json"
};

/// Returns the class that reads a folder, as AutoTokenizer of transformers 5.24.0 decides: `tokenizer_class`
/// of tokenizer_config.json, else that of config.json, unless the `model_type` of config.json demands another
/// class; else the class of the `model_type`. Both documents may be empty objects. Throws Refusal for a class
/// and a model type that are not read here, and for a folder with Python code.
ChosenClass choose_tokenizer_class(const JsonView& tokenizer_config, const JsonView& config);

/// Returns the class's name in Python.
const char* name_of(TokenizerClass kind);

/// Returns the name of the class's vocabulary file.
const char* vocabulary_file_of(TokenizerClass kind);

/// Returns the "type" of the models that the class reads from a tokenizer.json; "" for Backend, which reads all.
const char* model_of(TokenizerClass kind);

/// Returns the text of the `tokenizer.json` that Python's
/// `AutoTokenizer.from_pretrained(folder).save_pretrained(folder)` would write: the folder's own, byte for
/// byte, where its class makes the same of it; else what the class makes of it, or of the vocabulary files of
/// a folder without one. A tokenizer.json that is not in Hugging Face's format is returned as it is. Throws
/// Refusal with what is missing or wrong, and with what to do if only Python's class can read the folder;
/// std::system_error for a file that cannot be read.
std::string convert_folder(const std::filesystem::path& folder);

/// Returns the document of a lone `vocab.txt`, read as by Python's BertTokenizer.
std::string convert_vocab_txt(const std::filesystem::path& file, const TokenizerSettings& settings);

}  // namespace attentive::tokenizers

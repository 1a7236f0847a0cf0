#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tokenizers/convert/declared_token.h"
#include "tokenizers/convert/sentence_piece_model.h"
#include "tokenizers/convert/tokenizer_class.h"
#include "tokenizers/convert/tokenizer_settings.h"

namespace attentive::tokenizers {

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

/// Returns the merges that a vocabulary implies: for each token, in the order of ids, every split of it into
/// two other tokens, from left to right. `vocabulary` is an object of tokens and ids.
nlohmann::json merges_of_vocabulary(const nlohmann::json& vocabulary);

/// Returns the ids of a model's tokens. The keys are views into `model`.
std::unordered_map<std::string_view, int64_t> ids_of_model(const nlohmann::json& model);

/// Returns the tokens that a draft and a folder's settings add to the vocabulary, in the order in which
/// Python's TokenizersBackend adds them.
std::vector<DeclaredToken> tokens_to_add(const Draft& draft, const TokenizerSettings& settings);

}  // namespace attentive::tokenizers

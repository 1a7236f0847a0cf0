#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

#include "tokenizers/convert/sentence_piece_model.h"
#include "tokenizers/convert/tokenizer_class.h"
#include "tokenizers/convert/tokenizer_settings.h"

namespace attentive::tokenizers {

// The `tokenizer.json` document that a class of Python's transformers 5.23.0 makes of a vocabulary and settings:
// what `AutoTokenizer.from_pretrained(folder).backend_tokenizer.to_str()` writes. Each throws Refusal for
// settings that the class does not take, or that say what a document cannot.

/// Bert: `vocabulary` is what parse_vocab_txt returns.
nlohmann::json word_piece_document(nlohmann::json vocabulary, const TokenizerSettings& settings);

/// Gpt2, Roberta and Qwen2: vocabulary and merges are what parse_vocab_json and parse_merges_txt return.
nlohmann::json byte_level_document(TokenizerClass kind, nlohmann::json vocabulary, nlohmann::json merges,
                                   const TokenizerSettings& settings);

/// The other classes.
nlohmann::json sentence_piece_document(TokenizerClass kind, const SentencePieceModel& model,
                                       const TokenizerSettings& settings);

}  // namespace attentive::tokenizers

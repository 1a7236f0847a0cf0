#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

#include "tokenizers/convert/sentence_piece_model.h"
#include "tokenizers/convert/tokenizer_class.h"
#include "tokenizers/convert/tokenizer_settings.h"

namespace attentive::tokenizers {

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

}  // namespace attentive::tokenizers

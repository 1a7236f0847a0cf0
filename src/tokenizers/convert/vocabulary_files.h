#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

namespace attentive::tokenizers {

// These functions read the vocabulary files of models other than SentencePiece ones, with the results of
// Python's `tokenizers`, and return them as a `tokenizer.json` writes them.

/// Reads `vocab.txt`: one token per line, whose id is the line's number. White space at the end of a line is
/// ignored, and of two equal lines the last one counts. Returns an object of tokens and ids. Throws Refusal
/// for bad UTF-8, and for more than 4,194,304 lines.
nlohmann::json parse_vocab_txt(std::string_view text);

/// Reads `vocab.json`: an object of tokens and ids. Throws Refusal, also for two tokens with the same id.
nlohmann::json parse_vocab_json(std::string_view text);

/// Reads `merges.txt`: two tokens per line with a space between them, sorted by rank. Lines that begin with
/// "#version" are ignored. Returns an array of pairs. Throws Refusal with the number of the line, also for
/// tokens that are not in the vocabulary.
nlohmann::json parse_merges_txt(std::string_view text, const nlohmann::json& vocabulary);

}  // namespace attentive::tokenizers

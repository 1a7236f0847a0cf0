#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

namespace attentive::tokenizers {

// The vocabularies of models that are no SentencePiece models, as a `tokenizer.json` writes them. What is read is
// what Python's `tokenizers` reads out of the same files.

/// `vocab.txt`: a token a line, its id is the number of the line; white space at the end of a line does not
/// count, and of two equal lines the last one does. An object of tokens and ids. Throws Refusal for bad UTF-8, and
/// for more than 4,194,304 lines.
nlohmann::json parse_vocab_txt(std::string_view text);

/// `vocab.json`: an object of tokens and ids. Throws Refusal, also for two tokens of the same id.
nlohmann::json parse_vocab_json(std::string_view text);

/// `merges.txt`: two tokens a line with a space between them, those that are merged first stand first. An array
/// of pairs. Lines that begin with "#version" do not count. Throws Refusal with the number of the line, also for
/// tokens that are not in the vocabulary.
nlohmann::json parse_merges_txt(std::string_view text, const nlohmann::json& vocabulary);

}  // namespace attentive::tokenizers

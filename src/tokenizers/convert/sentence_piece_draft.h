#pragma once

#include "tokenizers/convert/draft.h"
#include "tokenizers/convert/sentence_piece_model.h"
#include "tokenizers/convert/tokenizer_class.h"

namespace attentive::tokenizers {

/// Drafts the document of a class that reads SentencePiece models: Llama, Gemma, Backend, T5, Albert,
/// XlmRoberta or Camembert.
Draft draft_sentence_piece(TokenizerClass kind, const SentencePieceModel& model,
                           const TokenizerSettings& settings);

/// Returns the merges that a vocabulary implies: for each token, in the order of ids, every split of it into
/// two other tokens, from left to right. `vocabulary` is an object of tokens and ids.
nlohmann::json merges_of_vocabulary(const nlohmann::json& vocabulary);

}  // namespace attentive::tokenizers

#pragma once

#include "tokenizers/convert/draft.h"
#include "tokenizers/convert/sentence_piece_model.h"
#include "tokenizers/convert/tokenizer_class.h"

namespace attentive::tokenizers {

/// What the classes for SentencePiece models draft: Llama, Gemma, Backend, T5, Albert, XlmRoberta and Camembert.
Draft draft_sentence_piece(TokenizerClass kind, const SentencePieceModel& model,
                           const TokenizerSettings& settings);

/// The merges that a vocabulary implies: for each token, in the order of the ids, every cut of it into two other
/// tokens, from left to right. `vocabulary`: an object of tokens and ids.
nlohmann::json merges_of_vocabulary(const nlohmann::json& vocabulary);

}  // namespace attentive::tokenizers

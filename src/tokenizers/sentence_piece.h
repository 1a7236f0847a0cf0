#pragma once

#include "tokenizers/json_view.h"

namespace attentive::tokenizers {

/// Throws Refusal, with what can be done instead, if the document is a SentencePiece model: Unigram, or BPE
/// over characters with spaces written as U+2581.
void refuse_sentence_piece(const JsonView& document);

}  // namespace attentive::tokenizers

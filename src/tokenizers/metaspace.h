#pragma once

#include "tokenizers/decoder.h"
#include "tokenizers/pre_tokenizer.h"

namespace attentive::tokenizers {

/// Metaspace: SentencePiece's sign for a space (U+2581) in place of each space, and before a text that does not
/// begin with one; words are cut before it.
PreTokenizer parse_metaspace(const JsonView& json);

/// The way back.
Decoder parse_metaspace_decoder(const JsonView& json);

}  // namespace attentive::tokenizers

#pragma once

#include "tokenizers/decoder.h"
#include "tokenizers/pre_tokenizer.h"

namespace attentive::tokenizers {

/// The Metaspace pre-tokenizer writes SentencePiece's sign for a space (U+2581) in place of each space, and
/// before a text that does not begin with one; words are cut before the sign.
PreTokenizer parse_metaspace(const JsonView& json);

/// Whether a file's "pre_tokenizer" inserts a sign only where the given text begins. In text that a
/// normalizer or an earlier step changed, only origins tell which piece stands there.
bool signs_beginning_only(const JsonView& pre_tokenizer);

/// The Metaspace decoder replaces signs by spaces again.
Decoder parse_metaspace_decoder(const JsonView& json);

}  // namespace attentive::tokenizers

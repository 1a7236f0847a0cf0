#pragma once

#include "tokenizers/decoder.h"
#include "tokenizers/pre_tokenizer.h"

namespace attentive::tokenizers {

/// Metaspace: SentencePiece's sign for a space (U+2581) in place of each space, and before a text that does not
/// begin with one; words are cut before it.
PreTokenizer parse_metaspace(const JsonView& json);

/// Whether a file's "pre_tokenizer" puts a sign only where the given text begins: in text that was changed before,
/// only origins tell which piece stands there.
bool signs_beginning_only(const JsonView& pre_tokenizer);

/// The way back.
Decoder parse_metaspace_decoder(const JsonView& json);

}  // namespace attentive::tokenizers

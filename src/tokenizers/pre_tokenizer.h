#pragma once

#include <functional>

#include "tokenizers/json_view.h"
#include "tokenizers/pieces.h"

namespace attentive::tokenizers {

using PreTokenizer = std::function<void(Pieces&)>;

/// Reads the file's "pre_tokenizer"; the result is empty if it is null.
PreTokenizer parse_pre_tokenizer(const JsonView& json);

/// The Metaspace pre-tokenizer writes SentencePiece's sign for a space (U+2581) in place of each space, and
/// before a text that does not begin with one; words are cut before the sign.
PreTokenizer parse_metaspace(const JsonView& json);

/// Whether a file's "pre_tokenizer" inserts a sign only where the given text begins. In text that a
/// normalizer or an earlier step changed, only origins tell which piece stands there.
bool signs_beginning_only(const JsonView& pre_tokenizer);

}  // namespace attentive::tokenizers

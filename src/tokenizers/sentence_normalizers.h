#pragma once

#include "tokenizers/json_view.h"
#include "tokenizers/normalizer.h"

namespace attentive::tokenizers {

// These normalizers belong to the tokenizers of SentencePiece models.

/// Prepend inserts a text before each text that is not empty.
Normalizer parse_prepend(const JsonView& json);

/// Replace replaces each match of a pattern by a text.
Normalizer parse_replace(const JsonView& json);

/// Precompiled replaces grapheme clusters and characters according to a charsmap.
Normalizer parse_precompiled(const JsonView& json);

/// Nmt removes control characters and replaces white space by plain spaces.
Piece normalize_nmt(const Piece& piece, Pieces& pieces);

/// ByteLevel writes the bytes of a text as visible characters.
Piece normalize_byte_level(const Piece& piece, Pieces& pieces);

}  // namespace attentive::tokenizers

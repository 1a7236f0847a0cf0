#pragma once

#include "tokenizers/json_view.h"
#include "tokenizers/normalizer.h"

namespace attentive::tokenizers {

// The normalizers of SentencePiece's models.

/// Prepend: a text before each text that is not empty.
Normalizer parse_prepend(const JsonView& json);

/// Replace: each match of a pattern becomes a text.
Normalizer parse_replace(const JsonView& json);

/// Precompiled: what a charsmap knows, by grapheme clusters and characters.
Normalizer parse_precompiled(const JsonView& json);

/// Nmt: without control characters, and with plain spaces.
Piece normalize_nmt(const Piece& piece, Pieces& pieces);

/// ByteLevel: the bytes of a text as visible characters.
Piece normalize_byte_level(const Piece& piece, Pieces& pieces);

}  // namespace attentive::tokenizers

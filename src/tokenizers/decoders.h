#pragma once

// The steps of a file's "decoder", which decoder.cpp joins.

#include "tokenizers/decoder.h"

namespace attentive::tokenizers {

/// The ByteLevel decoder joins the bytes that tokens stand for and reads them as UTF-8.
Decoder parse_byte_level_decoder(const JsonView& json);

/// The ByteFallback decoder replaces a run of tokens such as "<0xE2>" by the text of its bytes, or by one
/// U+FFFD for each of them if the run is not UTF-8.
Decoder parse_byte_fallback_decoder(const JsonView& json);

/// The Replace decoder replaces each match of a pattern in a token by a text.
Decoder parse_replace_decoder(const JsonView& json);

/// The Strip decoder removes a character at most `start` times from the start of each token, and at most
/// `stop` times from its end.
Decoder parse_strip_decoder(const JsonView& json);

/// The WordPiece decoder writes a space before each token that does not continue a word.
Decoder parse_word_piece_decoder(const JsonView& json);

/// The BPEDecoder writes a space after each token that ends a word.
Decoder parse_bpe_decoder(const JsonView& json);

/// The Metaspace decoder replaces signs by spaces again.
Decoder parse_metaspace_decoder(const JsonView& json);

}  // namespace attentive::tokenizers

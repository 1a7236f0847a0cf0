#pragma once

#include "tokenizers/decoder.h"

namespace attentive::tokenizers {

/// The WordPiece decoder writes a space before each token that does not continue a word.
Decoder parse_word_piece_decoder(const JsonView& json);

/// The BPEDecoder writes a space after each token that ends a word.
Decoder parse_bpe_decoder(const JsonView& json);

}  // namespace attentive::tokenizers

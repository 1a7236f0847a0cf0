#pragma once

#include "tokenizers/decoder.h"

namespace attentive::tokenizers {

/// WordPiece: a space before each token that does not continue a word.
Decoder parse_word_piece_decoder(const JsonView& json);

/// BPEDecoder: a space behind each token that ends a word.
Decoder parse_bpe_decoder(const JsonView& json);

}  // namespace attentive::tokenizers

#pragma once

#include "tokenizers/decoder.h"

namespace attentive::tokenizers {

/// The Replace decoder replaces each match of a pattern in a token by a text.
Decoder parse_replace_decoder(const JsonView& json);

/// The Strip decoder removes a character at most `start` times from the start of each token, and at most
/// `stop` times from its end.
Decoder parse_strip_decoder(const JsonView& json);

}  // namespace attentive::tokenizers

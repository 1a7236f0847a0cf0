#pragma once

#include "tokenizers/decoder.h"

namespace attentive::tokenizers {

/// Replace: each match of a pattern in a token becomes a text.
Decoder parse_replace_decoder(const JsonView& json);

/// Strip: at most `start` times a character goes from the start of each token, and `stop` times from its end.
Decoder parse_strip_decoder(const JsonView& json);

}  // namespace attentive::tokenizers

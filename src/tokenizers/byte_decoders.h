#pragma once

#include "tokenizers/decoder.h"

namespace attentive::tokenizers {

/// ByteLevel: the bytes that tokens stand for, joined and read as UTF-8.
Decoder parse_byte_level_decoder(const JsonView& json);

/// ByteFallback: a run of tokens such as "<0xE2>" becomes the text of its bytes, or U+FFFD for each of them if
/// the run is no UTF-8.
Decoder parse_byte_fallback_decoder(const JsonView& json);

}  // namespace attentive::tokenizers

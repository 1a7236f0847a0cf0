#pragma once

#include "tokenizers/decoder.h"

namespace attentive::tokenizers {

/// The ByteLevel decoder joins the bytes that tokens stand for and reads them as UTF-8.
Decoder parse_byte_level_decoder(const JsonView& json);

/// The ByteFallback decoder replaces a run of tokens such as "<0xE2>" by the text of its bytes, or by one
/// U+FFFD for each of them if the run is not UTF-8.
Decoder parse_byte_fallback_decoder(const JsonView& json);

}  // namespace attentive::tokenizers

#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "tokenizers/decoder.h"

namespace attentive::tokenizers {

/// Decodes one token, for decoders that need to know only whether it is the first one.
using DecodeToken = std::function<std::string(std::string token, bool first)>;

Decoder each_token(const DecodeToken& decode);
/// Makes a decoder that works on every character separately, and therefore also on parts of a token.
Decoder each_character(const DecodeToken& decode);

/// Returns a stream that replaces each `from` in a single token that arrives in parts.
std::unique_ptr<DecoderStream> replacing_stream(std::string from, std::string to);

void replace_all(std::string& text, std::string_view from, std::string_view to);

}  // namespace attentive::tokenizers

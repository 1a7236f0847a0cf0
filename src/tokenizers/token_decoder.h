#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "tokenizers/decoder.h"

namespace attentive::tokenizers {

/// What a token becomes, for decoders that need to know only whether it is the first one.
using DecodeToken = std::function<std::string(std::string token, bool first)>;

Decoder each_token(const DecodeToken& decode);
/// For decoders to which every character is a token: they also work on parts of one.
Decoder each_character(const DecodeToken& decode);

/// A single token, which comes in parts, with each `from` replaced.
std::unique_ptr<DecoderStream> replacing_stream(std::string from, std::string to);

void replace_all(std::string& text, std::string_view from, std::string_view to);

}  // namespace attentive::tokenizers

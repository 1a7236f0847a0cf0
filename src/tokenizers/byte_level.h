#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tokenizers/pieces.h"

namespace attentive::tokenizers {

/// Returns the bytes that the characters of a token stand for (the inverse of `to_visible`); std::nullopt if
/// a character stands for no byte.
std::optional<std::string> from_visible(std::string_view token);

/// Writes every piece of text as visible characters.
void make_visible(Pieces& pieces);

}  // namespace attentive::tokenizers

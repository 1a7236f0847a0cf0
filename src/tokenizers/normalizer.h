#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "tokenizers/json_view.h"
#include "tokenizers/pieces.h"

namespace attentive::tokenizers {

/// The next version of a piece, which may be the same one; new text lives in the pieces.
using Normalizer = std::function<Piece(const Piece&, Pieces&)>;

/// Reads the file's "normalizer", which may be null: then the result is empty.
Normalizer parse_normalizer(const JsonView& json);

/// The text that a normalizer makes of another one; the same text if it is empty.
std::string normalized_text(const Normalizer& normalizer, std::string_view text);

}  // namespace attentive::tokenizers

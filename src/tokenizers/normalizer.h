#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "tokenizers/json_view.h"
#include "tokenizers/pieces.h"

namespace attentive::tokenizers {

/// Returns the normalized version of a piece, which may be the piece itself; new text is stored in the
/// Pieces.
using Normalizer = std::function<Piece(const Piece&, Pieces&)>;

/// Reads the file's "normalizer"; the result is empty if it is null.
Normalizer parse_normalizer(const JsonView& json);

/// Returns the normalized text, or the same text if the normalizer is empty.
std::string normalized_text(const Normalizer& normalizer, std::string_view text);

}  // namespace attentive::tokenizers

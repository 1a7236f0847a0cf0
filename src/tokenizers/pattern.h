#pragma once

#include <string>

#include "tokenizers/json_view.h"
#include "tokenizers/pieces.h"
#include "tokenizers/regex.h"

namespace attentive::tokenizers {

FindMatches matches_of(Regex regex);
/// Of a text that is not empty.
FindMatches matches_of_text(std::string wanted);

/// What {"String": "▁"} or {"Regex": " {2,}"} finds.
FindMatches parse_pattern(const JsonView& json);

}  // namespace attentive::tokenizers

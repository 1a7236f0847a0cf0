#pragma once

#include <string>

#include "tokenizers/json_view.h"
#include "tokenizers/pieces.h"
#include "tokenizers/regex.h"

namespace attentive::tokenizers {

FindMatches matches_of(Regex regex);
/// Finds the occurrences of `wanted`. An empty one is found at both ends of every character.
FindMatches matches_of_text(std::string wanted);

/// Reads a pattern such as {"String": "▁"} or {"Regex": " {2,}"}.
FindMatches parse_pattern(const JsonView& json);

}  // namespace attentive::tokenizers

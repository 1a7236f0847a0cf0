#pragma once

#include <functional>

#include "tokenizers/json_view.h"
#include "tokenizers/pieces.h"

namespace attentive::tokenizers {

using PreTokenizer = std::function<void(Pieces&)>;

/// Reads the file's "pre_tokenizer"; the result is empty if it is null.
PreTokenizer parse_pre_tokenizer(const JsonView& json);

}  // namespace attentive::tokenizers

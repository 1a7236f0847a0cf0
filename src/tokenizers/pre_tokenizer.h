#pragma once

#include <functional>

#include "tokenizers/json_view.h"
#include "tokenizers/pieces.h"

namespace attentive::tokenizers {

using PreTokenizer = std::function<void(Pieces&)>;

/// Reads the file's "pre_tokenizer", which may be null: then the result is empty.
PreTokenizer parse_pre_tokenizer(const JsonView& json);

}  // namespace attentive::tokenizers

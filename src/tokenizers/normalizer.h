#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "tokenizers/json_view.h"

namespace attentive::tokenizers {

using Normalizer = std::function<std::string(std::string_view)>;

/// Reads the file's "normalizer", which may be null: then the result is empty.
Normalizer parse_normalizer(const JsonView& json);

}  // namespace attentive::tokenizers

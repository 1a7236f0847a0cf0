#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tokenizers/json_view.h"

namespace attentive::tokenizers {

/// Turns tokens into parts of a text, which are then joined.
struct Decoder {
  std::function<void(std::vector<std::string>&)> apply;
  bool byte_level = false;  // tokens stand for bytes
};

/// Reads the file's "decoder". Null joins the tokens with spaces.
Decoder parse_decoder(const JsonView& json);

}  // namespace attentive::tokenizers

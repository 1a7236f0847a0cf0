#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <attentive/tokenizers/text_span.h>

#include "tokenizers/pieces.h"

namespace attentive::tokenizers {

/// Which character of a text each of its bytes belongs to.
class CharacterPlaces {
 public:
  /// A text in UTF-8 of less than 4 GiB. A text that is ASCII takes no memory, another 4 bytes a byte.
  explicit CharacterPlaces(std::string_view text);

  /// The characters of a range of bytes. A range outside the text is what it is in Python.
  TextSpan characters(Origin bytes) const;

 private:
  size_t size_;
  std::vector<uint32_t> places_;
};

}  // namespace attentive::tokenizers

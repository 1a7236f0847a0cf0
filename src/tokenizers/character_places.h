#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <attentive/tokenizers/text_span.h>

#include "tokenizers/pieces.h"

namespace attentive::tokenizers {

/// Maps each byte of a text to the index of its character.
class CharacterPlaces {
 public:
  /// `text` is UTF-8 of less than 4 GiB. An ASCII text takes no memory, any other 4 bytes per byte.
  explicit CharacterPlaces(std::string_view text);

  /// The characters of a range of bytes. A range outside the text gives the values that Python gives.
  TextSpan characters(Origin bytes) const;

 private:
  size_t size_;
  std::vector<uint32_t> places_;
};

}  // namespace attentive::tokenizers

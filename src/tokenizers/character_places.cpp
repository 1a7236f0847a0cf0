#include "tokenizers/character_places.h"

#include "tokenizers/unicode.h"

namespace attentive::tokenizers {

CharacterPlaces::CharacterPlaces(std::string_view text) : size_(text.size()) {
  if (is_ascii(text)) return;
  places_.reserve(text.size());
  uint32_t place = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (at > 0 && begins_character(text[at])) ++place;
    places_.push_back(place);
  }
}

TextSpan CharacterPlaces::characters(Origin bytes) const {
  const auto place = [&](uint32_t byte) {
    return static_cast<int64_t>(places_.empty() ? byte : places_[byte]);
  };
  if (bytes.begin >= size_) return {bytes.begin, bytes.end};
  const int64_t begin = place(bytes.begin);
  if (bytes.end < size_) return {begin, place(bytes.end)};
  return {begin, bytes.end == size_ ? place(bytes.end - 1) + 1 : begin + 2};
}

}  // namespace attentive::tokenizers

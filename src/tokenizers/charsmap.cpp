#include "tokenizers/charsmap.h"

#include "base/refusal.h"
#include "base/strings.h"
#include "tokenizers/unicode.h"

namespace attentive::tokenizers {
namespace {

// The charsmaps of the published models have a quarter of a megabyte.
constexpr size_t kMostCharsmapBytes = size_t{1} << 24;

// Each unit of the double array has a label and an offset. From a state s, the byte c leads to the unit s ^ c
// if that unit's label is c; its place XOR its offset is the next state. If a text ends in a state, the unit
// at the state's own index holds the text's value.
constexpr uint32_t kValueMark = uint32_t{1} << 31;
uint32_t label_of(uint32_t unit) {
  return unit & (kValueMark | 0xFF);
}
bool ends_text(uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}
uint32_t offset_of(uint32_t unit) {
  return unit >> 10 << ((unit & (uint32_t{1} << 9)) >> 6);
}
uint32_t value_of(uint32_t unit) {
  return unit & (kValueMark - 1);
}

uint32_t little_endian(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

int sextet_of(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

}  // namespace

Charsmap::Charsmap(std::string_view bytes) {
  if (bytes.size() < 4 || bytes.size() > kMostCharsmapBytes) {
    refuse("expected a charsmap of 4 to {} bytes, got {}", kMostCharsmapBytes, bytes.size());
  }
  const size_t size = little_endian(bytes, 0);
  if (size == 0 || size % 4 != 0 || size > bytes.size() - 4) {
    refuse("expected a charsmap whose array has 4 to {} bytes in units of four, got {}", bytes.size() - 4,
           size);
  }
  units_.reserve(size / 4);
  for (size_t at = 4; at < 4 + size; at += 4) units_.push_back(little_endian(bytes, at));
  replacements_ = bytes.substr(4 + size);
  check();
  for (char32_t c = 0; c < 0x80; ++c) {
    const auto unit = units_[offset_of(units_[0]) ^ c];
    ascii_.push_back(c != 0 && label_of(unit) == c);
  }
}

void Charsmap::check() const {
  if (!is_utf8(replacements_)) refuse("expected a charsmap whose replacements are UTF-8");
  // A lookup may try every byte from a state, so its whole block of 256 units must exist.
  const auto check_state = [&](size_t state) {
    if ((state | 0xFF) >= units_.size())
      refuse("expected a charsmap of {} units, got a step to unit {}", units_.size(), state);
  };
  check_state(offset_of(units_[0]));
  for (uint32_t place = 0; place < units_.size(); ++place) {
    const auto unit = units_[place];
    if (label_of(unit) == 0 || label_of(unit) > 0xFF) continue;  // no byte leads to this unit
    const uint32_t state = place ^ offset_of(unit);
    check_state(state);
    if (!ends_text(unit)) continue;
    const auto value = value_of(units_[state]);
    if (value > replacements_.size() ||
        (value < replacements_.size() && !begins_character(replacements_[value]))) {
      refuse("expected a charsmap with {} bytes of replacements, got one at byte {}", replacements_.size(),
             value);
    }
  }
}

std::optional<std::string_view> Charsmap::find(std::string_view text) const {
  uint32_t state = offset_of(units_[0]);
  for (const char byte : text) {
    const uint32_t label = static_cast<unsigned char>(byte);
    const uint32_t place = state ^ label;
    const auto unit = units_[place];
    if (label == 0 || label_of(unit) != label) return std::nullopt;
    state = place ^ offset_of(unit);
    if (!ends_text(unit)) continue;
    const auto replacement = std::string_view(replacements_).substr(value_of(units_[state]));
    return replacement.substr(0, replacement.find('\0'));
  }
  return std::nullopt;
}

std::string from_base64(std::string_view text) {
  if (text.size() % 4 != 0) refuse("expected base64 of a multiple of four characters, got {}", text.size());
  const auto digits = text.substr(0, text.size() - (text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0));
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  uint32_t bits = 0;
  int count = 0;
  for (size_t i = 0; i < digits.size(); ++i) {
    const int sextet = sextet_of(digits[i]);
    if (sextet < 0) refuse("expected base64, got another character at byte {}", i);
    bits = bits << 6 | static_cast<uint32_t>(sextet);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xFF);
    bits &= (uint32_t{1} << count) - 1;
  }
  if (bits != 0) refuse("expected base64 whose last bits are zero");
  return bytes;
}

}  // namespace attentive::tokenizers

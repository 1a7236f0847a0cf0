#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attentive::tokenizers {

/// Returns the character that starts at byte `at` of well-formed UTF-8, and moves `at` behind it.
inline char32_t next_char(std::string_view text, size_t& offset) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[i])); };
  const char32_t lead = byte(offset++);
  if (lead < 0x80) return lead;
  const auto tail = [&] { return byte(offset++) & 0x3F; };
  if (lead < 0xE0) return (lead & 0x1F) << 6 | tail();
  const char32_t second = tail();
  if (lead < 0xF0) return (lead & 0x0F) << 12 | second << 6 | tail();
  const char32_t third = tail();
  return (lead & 0x07) << 18 | second << 12 | third << 6 | tail();
}

/// Whether a byte of well-formed UTF-8 is a character's first one.
inline bool begins_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
}

/// Returns the byte at which the character before byte `end` > 0 of well-formed UTF-8 starts.
inline size_t previous_start(std::string_view text, size_t end) {
  do --end;
  while (!begins_character(text[end]));
  return end;
}

/// Returns the character before byte `end` > 0 of well-formed UTF-8.
inline char32_t previous_char(std::string_view text, size_t end) {
  size_t offset = previous_start(text, end);
  return next_char(text, offset);
}

void append_utf8(std::string& text, char32_t c);

/// Whether a character has Unicode's property White_Space.
bool is_space(char32_t c);
/// Whether `\w` of Rust, which is used to find whole words, matches a character: letters, marks, digits,
/// joiners, connecting punctuation.
bool is_word(char32_t c);
bool is_numeric(char32_t c);
/// Whether a character is ASCII punctuation, an ASCII symbol, or Unicode's punctuation.
bool is_punctuation(char32_t c);
bool is_mark(char32_t c);
bool is_nonspacing_mark(char32_t c);
/// Whether a character is a control or format character or for private use.
bool is_other(char32_t c);

/// Returns the end of the grapheme cluster that begins at byte `at`. A cluster is what a reader sees as one
/// character, such as a letter with its accents. Unicode's rule for Indic conjuncts (15.1) is not
/// implemented.
size_t grapheme_end(std::string_view text, size_t offset);

bool is_ascii(std::string_view text);

/// The letter I with a dot is the only character whose lower case has two characters: i and a dot above.
inline constexpr char32_t kDottedI = 0x130, kDotAbove = 0x307;

/// Returns the lower case of a character without regard to its neighbours; for I with a dot, the first
/// character of it.
char32_t lower_case(char32_t c);
/// Returns the lower case of a text that is ASCII.
std::string lower_case(std::string_view ascii);

enum class NormalForm { C, D, KC, KD };

/// Returns a text in one of Unicode's normal forms. O(n log n), however many marks follow one another.
std::string normalize(std::string_view text, NormalForm form);

/// A new character, and its effect on the old ones at its place (tokenizers/pieces.h, Rewrite::put).
struct NewCharacter {
  char32_t character;
  ptrdiff_t change;
};

/// Returns a normal form character by character, for Rewrite. The first character of a decomposition replaces
/// the old one and the others are inserted; marks keep these changes when they are reordered. A composition
/// adds up the changes of its parts.
std::vector<NewCharacter> normalize_by_character(std::string_view text, NormalForm form);

}  // namespace attentive::tokenizers

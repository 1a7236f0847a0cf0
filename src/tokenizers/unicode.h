#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attentive::tokenizers {

/// The character that starts at byte `at` of well-formed UTF-8; `at` moves behind it.
inline char32_t next_char(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[i])); };
  const char32_t lead = byte(at++);
  if (lead < 0x80) return lead;
  const auto tail = [&] { return byte(at++) & 0x3F; };
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

/// Where the character before byte `end` > 0 of well-formed UTF-8 starts.
inline size_t previous_start(std::string_view text, size_t end) {
  do --end;
  while (!begins_character(text[end]));
  return end;
}

/// The character before byte `end` > 0 of well-formed UTF-8.
inline char32_t previous_char(std::string_view text, size_t end) {
  size_t at = previous_start(text, end);
  return next_char(text, at);
}

void append_utf8(std::string& text, char32_t c);

/// Unicode's White_Space.
bool is_space(char32_t c);
/// What `\w` means in Rust, which looks for whole words: letters, marks, digits, joiners, connecting
/// punctuation.
bool is_word(char32_t c);
bool is_numeric(char32_t c);
/// ASCII punctuation and symbols, and Unicode's punctuation.
bool is_punctuation(char32_t c);
bool is_mark(char32_t c);
bool is_nonspacing_mark(char32_t c);
/// Control, format and private use.
bool is_other(char32_t c);

/// Where the grapheme cluster that begins at byte `at` ends: what a reader takes for one character, such as a
/// letter with its accents. Of Unicode's rules, the one for Indic conjuncts (15.1) is not there.
size_t grapheme_end(std::string_view text, size_t at);

bool is_ascii(std::string_view text);

/// I with a dot has the only lower case of two characters: i and a dot above.
inline constexpr char32_t kDottedI = 0x130, kDotAbove = 0x307;

/// A character's own lower case, without regard to its neighbours; of I with a dot the first character.
char32_t lower_case(char32_t c);
/// The lower case of a text that is ASCII.
std::string lower_case(std::string_view ascii);

enum class NormalForm { C, D, KC, KD };

/// A text in one of Unicode's normal forms. O(n log n), however many marks follow one another.
std::string normalize(std::string_view text, NormalForm form);

/// A character, and what it does to the old ones at its place (tokenizers/pieces.h, Rewrite::put).
struct NewCharacter {
  char32_t character;
  ptrdiff_t change;
};

/// The same normal form by its characters. The first character of a decomposition replaces the old one, the others
/// are inserted, and marks take this along when they change places; a composition removes what it takes in.
std::vector<NewCharacter> normalize_by_character(std::string_view text, NormalForm form);

}  // namespace attentive::tokenizers

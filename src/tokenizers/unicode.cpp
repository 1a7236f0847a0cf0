#include "tokenizers/unicode.h"

#include <algorithm>
#include <utf8proc.h>
#include <utility>
#include <vector>

#include "base/refusal.h"

namespace attentive::tokenizers {
namespace {

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool between(utf8proc_category_t c, utf8proc_category_t first, utf8proc_category_t last) {
  return c >= first && c <= last;
}

// Canonical decomposition of one character, appended.
void decompose(char32_t c, utf8proc_option_t options, std::vector<utf8proc_int32_t>& out) {
  utf8proc_int32_t parts[32];  // the longest decomposition is one of 18
  int last_boundclass = 0;
  const auto count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, 32, options, &last_boundclass);
  if (count < 0 || count > 32) refuse("U+{:04X} does not decompose", static_cast<uint32_t>(c));
  out.insert(out.end(), parts, parts + count);
}

// Sorts each run of marks by its class. utf8proc's own sort is quadratic in the length of a run.
void order_marks(std::vector<utf8proc_int32_t>& text) {
  const auto mark_class = [&](size_t i) { return utf8proc_get_property(text[i])->combining_class; };
  std::vector<std::pair<int, size_t>> order;
  std::vector<utf8proc_int32_t> sorted;
  for (size_t begin = 0; begin < text.size(); ++begin) {
    if (mark_class(begin) == 0) continue;
    order.clear();
    size_t end = begin;
    for (; end < text.size() && mark_class(end) != 0; ++end) order.emplace_back(mark_class(end), end);
    std::sort(order.begin(), order.end());
    sorted.clear();
    for (const auto& [ignored, place] : order) sorted.push_back(text[place]);
    std::copy(sorted.begin(), sorted.end(), text.begin() + static_cast<std::ptrdiff_t>(begin));
    begin = end;
  }
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

}  // namespace

void append_utf8(std::string& text, char32_t c) {
  utf8proc_uint8_t bytes[4];
  const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(count));
}

bool is_space(char32_t c) {
  return (c >= '\t' && c <= '\r') || c == 0x85 ||
         between(category(c), UTF8PROC_CATEGORY_ZS, UTF8PROC_CATEGORY_ZP);
}

bool is_word(char32_t c) {
  const auto kind = category(c);
  if (between(kind, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_NL) || kind == UTF8PROC_CATEGORY_PC) return true;
  // Letters in circles and squares are symbols that count as alphabetic.
  return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

bool is_numeric(char32_t c) {
  return between(category(c), UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO);
}

bool is_punctuation(char32_t c) {
  if (c < 0x80)
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
  return between(category(c), UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO);
}

bool is_mark(char32_t c) {
  return between(category(c), UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME);
}

bool is_nonspacing_mark(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_MN;
}

bool is_other(char32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_CC || kind == UTF8PROC_CATEGORY_CF || kind == UTF8PROC_CATEGORY_CO;
}

size_t grapheme_end(std::string_view text, size_t at) {
  auto before = static_cast<utf8proc_int32_t>(next_char(text, at));
  for (utf8proc_int32_t state = 0; at < text.size();) {
    size_t end = at;
    const auto next = static_cast<utf8proc_int32_t>(next_char(text, end));
    if (utf8proc_grapheme_break_stateful(before, next, &state)) return at;
    before = next;
    at = end;
  }
  return at;
}

std::string lower_case(std::string_view text) {
  std::string lower;
  lower.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_char(text, at);
    append_utf8(lower, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    if (c == 0x130) append_utf8(lower, 0x307);  // I with a dot: the only lower case of two characters
  }
  return lower;
}

std::string normalize(std::string_view text, NormalForm form) {
  if (is_ascii(text)) return std::string(text);
  const bool compatible = form == NormalForm::KC || form == NormalForm::KD;
  const bool composed = form == NormalForm::C || form == NormalForm::KC;
  auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                (compatible ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> characters;
  characters.reserve(text.size());
  for (size_t at = 0; at < text.size();) decompose(next_char(text, at), options, characters);
  order_marks(characters);
  if (composed) {
    const auto count =
        utf8proc_normalize_utf32(characters.data(), static_cast<utf8proc_ssize_t>(characters.size()),
                                 static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    characters.resize(static_cast<size_t>(count));
  }
  std::string normal;
  normal.reserve(text.size());
  for (const auto c : characters) append_utf8(normal, static_cast<char32_t>(c));
  return normal;
}

}  // namespace attentive::tokenizers

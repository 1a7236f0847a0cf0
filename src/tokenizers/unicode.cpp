#include "tokenizers/unicode.h"

#include <algorithm>
#include <cstring>
#include <optional>
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

using Characters = std::vector<utf8proc_int32_t>;

bool is_composed(NormalForm form) {
  return form == NormalForm::C || form == NormalForm::KC;
}

utf8proc_option_t decomposition(NormalForm form) {
  const bool compatible = form == NormalForm::KC || form == NormalForm::KD;
  return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                        (compatible ? UTF8PROC_COMPAT : 0));
}

// Composes in place a text that is decomposed and whose marks are in order.
void compose(Characters& characters) {
  const auto count =
      utf8proc_normalize_utf32(characters.data(), static_cast<utf8proc_ssize_t>(characters.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  characters.resize(static_cast<size_t>(count));
}

// Calls `visit` for each part of a character's decomposition.
template <class Visit>
void decompose(char32_t c, utf8proc_option_t options, Visit visit) {
  utf8proc_int32_t parts[32];  // the longest decomposition has 18 characters
  int last_boundclass = 0;
  const auto count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, 32, options, &last_boundclass);
  if (count < 0 || count > 32) refuse("U+{:04X} does not decompose", static_cast<uint32_t>(c));
  for (utf8proc_ssize_t i = 0; i < count; ++i) visit(parts[i]);
}

int mark_class(utf8proc_int32_t c) {
  return utf8proc_get_property(c)->combining_class;
}
int mark_class(const NewCharacter& c) {
  return mark_class(static_cast<utf8proc_int32_t>(c.character));
}

// Sorts each run of marks by their combining classes. utf8proc's own sort is quadratic in the length of a
// run.
template <class Character>
void order_marks(std::vector<Character>& text) {
  std::vector<std::pair<int, size_t>> order;
  std::vector<Character> sorted;
  for (size_t begin = 0; begin < text.size(); ++begin) {
    if (mark_class(text[begin]) == 0) continue;
    order.clear();
    size_t end = begin;
    for (; end < text.size() && mark_class(text[end]) != 0; ++end)
      order.emplace_back(mark_class(text[end]), end);
    std::sort(order.begin(), order.end());
    sorted.clear();
    for (const auto& [ignored, place] : order) sorted.push_back(text[place]);
    std::copy(sorted.begin(), sorted.end(), text.begin() + static_cast<std::ptrdiff_t>(begin));
    begin = end;
  }
}

// Returns the composition of two characters, or std::nullopt if they have none.
std::optional<char32_t> composition(char32_t first, char32_t second) {
  Characters both{static_cast<utf8proc_int32_t>(first), static_cast<utf8proc_int32_t>(second)};
  compose(both);
  return both.size() == 1 ? std::optional(static_cast<char32_t>(both[0])) : std::nullopt;
}

// Composes each starter with the marks behind it, except marks that are blocked by one of the same or a
// higher class between them.
std::vector<NewCharacter> composed(const std::vector<NewCharacter>& text) {
  std::vector<NewCharacter> out;
  out.reserve(text.size());
  std::optional<size_t> starter;
  int last_class = -1;  // the class of the last character after the starter
  for (const auto& next : text) {
    const int its_class = mark_class(next);
    if (starter && last_class < its_class) {
      auto& [character, change] = out[*starter];
      if (const auto both = composition(character, next.character)) {
        character = *both;
        change += next.change - 1;
        continue;
      }
    }
    if (its_class == 0) starter = out.size();
    last_class = its_class == 0 ? -1 : its_class;
    out.push_back(next);
  }
  return out;
}

}  // namespace

void append_utf8(std::string& text, char32_t c) {
  utf8proc_uint8_t bytes[4];
  const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(count));
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  return c == 0x85 || between(category(c), UTF8PROC_CATEGORY_ZS, UTF8PROC_CATEGORY_ZP);
}

bool is_word(char32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  const auto kind = category(c);
  if (between(kind, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_NL) || kind == UTF8PROC_CATEGORY_PC) return true;
  // Letters in circles and squares are symbols, but count as alphabetic.
  return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

bool is_numeric(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
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

size_t grapheme_end(std::string_view text, size_t offset) {
  auto before = static_cast<utf8proc_int32_t>(next_char(text, offset));
  for (utf8proc_int32_t state = 0; offset < text.size();) {
    size_t end = offset;
    const auto next = static_cast<utf8proc_int32_t>(next_char(text, end));
    if (utf8proc_grapheme_break_stateful(before, next, &state)) return offset;
    before = next;
    offset = end;
  }
  return offset;
}

bool is_ascii(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080808080808080;
  size_t offset = 0;
  for (uint64_t bytes = 0; offset + 8 <= text.size(); offset += 8) {
    std::memcpy(&bytes, text.data() + offset, 8);
    if (bytes & kHighBits) return false;
  }
  return std::all_of(text.begin() + static_cast<ptrdiff_t>(offset), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

char32_t lower_case(char32_t c) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

std::string lower_case(std::string_view ascii) {
  std::string lower(ascii);
  for (auto& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
  return lower;
}

std::string normalize(std::string_view text, NormalForm form) {
  if (is_ascii(text)) return std::string(text);
  const auto options = decomposition(form);
  Characters characters;
  characters.reserve(text.size());
  for (size_t offset = 0; offset < text.size();) {
    decompose(next_char(text, offset), options, [&](utf8proc_int32_t c) { characters.push_back(c); });
  }
  order_marks(characters);
  if (is_composed(form)) compose(characters);
  std::string normal;
  normal.reserve(text.size());
  for (const auto c : characters) append_utf8(normal, static_cast<char32_t>(c));
  return normal;
}

std::vector<NewCharacter> normalize_by_character(std::string_view text, NormalForm form) {
  const auto options = decomposition(form);
  std::vector<NewCharacter> characters;
  characters.reserve(text.size());
  for (size_t offset = 0; offset < text.size();) {
    ptrdiff_t change = 0;
    decompose(next_char(text, offset), options, [&](utf8proc_int32_t c) {
      characters.push_back({static_cast<char32_t>(c), change});
      change = 1;
    });
  }
  order_marks(characters);
  return is_composed(form) ? composed(characters) : characters;
}

}  // namespace attentive::tokenizers

#include <set>

#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>

#include <attentive/text/char_tokenizer.h>

#include "base/strings.h"

namespace attentive {
namespace {

constexpr const char* kCharTokenizer = "CharTokenizer";

// The length of a UTF-8 sequence according to its first byte; 1 for a byte that cannot begin one.
size_t promised(unsigned char first) {
  if (first >= 0xc2 && first < 0xe0) return 2;
  if (first >= 0xe0 && first < 0xf0) return 3;
  if (first >= 0xf0 && first < 0xf5) return 4;
  return 1;
}

// The character that begins at `at`: a whole UTF-8 sequence or one stray byte.
std::string_view character(std::string_view text, size_t at) {
  const auto size = promised(static_cast<unsigned char>(text[at]));
  if (size > 1 && at + size <= text.size() && is_utf8(text.substr(at, size))) return text.substr(at, size);
  return text.substr(at, 1);
}

template <class Visit>
void for_each_character(std::string_view text, Visit visit) {
  for (size_t at = 0; at < text.size();) {
    const auto piece = character(text, at);
    visit(piece, at);
    at += piece.size();
  }
}

std::string printable(std::string_view piece) {
  if (piece.size() == 1 && (piece[0] < ' ' || piece[0] == 127)) return "byte 0x" + to_hex(piece);
  return is_utf8(piece) ? '"' + std::string(piece) + '"' : "byte 0x" + to_hex(piece);
}

}  // namespace

CharTokenizer CharTokenizer::train(std::string_view text) {
  TORCH_CHECK_VALUE(!text.empty(), kCharTokenizer,
                    ": expected a text with at least one character, got an empty one");
  std::set<std::string, std::less<>> seen;
  for_each_character(text, [&](std::string_view piece, size_t) {
    if (!seen.contains(piece)) seen.emplace(piece);
  });
  return CharTokenizer({seen.begin(), seen.end()});
}

CharTokenizer::CharTokenizer(std::vector<std::string> characters) : characters_(std::move(characters)) {
  TORCH_CHECK_VALUE(!characters_.empty(), kCharTokenizer, ": expected at least one character, got none");
  for (const auto& piece : characters_) {
    TORCH_CHECK_VALUE(!piece.empty() && character(piece, 0).size() == piece.size(), kCharTokenizer,
                      ": expected single characters, got the bytes \"", to_hex(piece), "\"");
    const bool fresh = ids_.emplace(piece, static_cast<int64_t>(ids_.size())).second;
    TORCH_CHECK_VALUE(fresh, kCharTokenizer, ": expected distinct characters, got ", printable(piece),
                      " twice");
  }
}

int64_t CharTokenizer::vocab_size() const {
  return static_cast<int64_t>(characters_.size());
}

std::vector<int64_t> CharTokenizer::encode(std::string_view text) const {
  std::vector<int64_t> ids;
  ids.reserve(text.size());
  for_each_character(text, [&](std::string_view piece, size_t at) {
    const auto found = ids_.find(piece);
    TORCH_CHECK_VALUE(found != ids_.end(), kCharTokenizer, ": expected characters of its vocabulary of ",
                      vocab_size(), ", got ", printable(piece), " at byte ", at);
    ids.push_back(found->second);
  });
  return ids;
}

std::string_view CharTokenizer::bytes(int64_t id) const {
  TORCH_CHECK_VALUE(id >= 0 && id < vocab_size(), kCharTokenizer, ": expected ids in [0, ", vocab_size(),
                    "), got ", id);
  return characters_[static_cast<size_t>(id)];
}

std::string CharTokenizer::to_json() const {
  nlohmann::json characters = nlohmann::json::array();
  for (const auto& piece : characters_) characters.push_back(to_hex(piece));
  return nlohmann::json{{"type", "char"}, {"characters", characters}}.dump();
}

}  // namespace attentive

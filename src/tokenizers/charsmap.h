#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attentive::tokenizers {

/// What SentencePiece compiles a normalization to: a trie of texts, as a double array, and what becomes of each
/// of them. The bytes are those of its `precompiled_charsmap`: the size of the array, the array, and the
/// replacements, each with a zero byte at its end.
/// Source: https://github.com/google/sentencepiece (normalizer.cc), https://github.com/s-yata/darts-clone
class Charsmap {
 public:
  /// Throws Refusal unless every step that the array knows, and every replacement, lies within the bytes: then
  /// no lookup leaves them.
  explicit Charsmap(std::string_view bytes);

  /// The replacement of the shortest text that `text` begins with; none if it begins with none. A lookup
  /// reads no more bytes than `text` has.
  std::optional<std::string_view> find(std::string_view text) const;
  /// Whether a text that begins with this ASCII character may have a replacement.
  bool knows_ascii(char c) const { return ascii_[static_cast<unsigned char>(c)]; }

 private:
  void check() const;

  std::vector<uint32_t> units_;
  std::string replacements_;
  std::vector<bool> ascii_;
};

/// The bytes of a text in base64, with its padding. Throws Refusal for anything else.
std::string from_base64(std::string_view text);

}  // namespace attentive::tokenizers

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizers/json_view.h"
#include "tokenizers/pieces.h"

namespace attentive::tokenizers {

/// The compiled form of a SentencePiece normalization: a trie of texts, stored as a double array, and a
/// replacement for each of them. The bytes are those of `precompiled_charsmap`: the size of the array, the
/// array, and the replacements, each with a zero byte at its end.
/// Source: https://github.com/google/sentencepiece (normalizer.cc), https://github.com/s-yata/darts-clone
class Charsmap {
 public:
  /// Throws Refusal unless every transition of the array and every replacement lie within the bytes, so that
  /// no lookup can read outside them.
  explicit Charsmap(std::string_view bytes);

  /// The replacement of the shortest text of the trie with which `text` begins; std::nullopt if there is
  /// none. A lookup reads no more bytes than `text` has.
  std::optional<std::string_view> find(std::string_view text) const;
  /// Whether a text that begins with this ASCII character may have a replacement.
  bool knows_ascii(char c) const { return ascii_[static_cast<unsigned char>(c)]; }

 private:
  void check() const;

  std::vector<uint32_t> units_;
  std::string replacements_;
  std::vector<bool> ascii_;
};

/// Decodes base64 text with padding. Throws Refusal for any other text.
std::string from_base64(std::string_view text);

/// Returns the normalized version of a piece, which may be the piece itself; new text is stored in the
/// Pieces.
using Normalizer = std::function<Piece(const Piece&, Pieces&)>;

/// Reads the file's "normalizer"; the result is empty if it is null.
Normalizer parse_normalizer(const JsonView& json);

/// Returns the normalized text, or the same text if the normalizer is empty.
std::string normalized_text(const Normalizer& normalizer, std::string_view text);

}  // namespace attentive::tokenizers

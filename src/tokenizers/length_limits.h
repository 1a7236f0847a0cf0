#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

#include <attentive/tokenizers/pretrained_tokenizer.h>

#include "tokenizers/json_view.h"
#include "tokenizers/post_processor.h"
#include "tokenizers/spelled_text.h"

namespace attentive::tokenizers {

/// Shortens encodings to a largest number of tokens, special ones included.
class Truncation {
 public:
  /// Reads the file's "truncation".
  Truncation(const JsonView& json, const PostProcessor& post_processor);
  Truncation(const TruncationOptions& options, const PostProcessor& post_processor);

  /// Returns the options as a file states them.
  nlohmann::json to_json() const;

  /// The number of tokens of a lone text that can matter; std::nullopt if all must be known. For a pair all
  /// of them matter, because they decide which text is the longer one.
  std::optional<size_t> enough() const;
  bool keeps_end() const { return options_.side == TextSide::Left; }
  /// Shortens one sequence, or two, such that `added` more tokens fit. Throws Refusal if the strategy names
  /// the second of one, or a sequence that is too short to lose that many tokens.
  void apply(std::vector<SpelledText>& sequences, int64_t added) const;

 private:
  void shorten_both(SpelledText& first, SpelledText& second, size_t most) const;
  void shorten(SpelledText& text, size_t size) const;

  TruncationOptions options_;
};

/// Pads encodings to a length that is rounded up to a multiple.
class Padding {
 public:
  /// Reads the file's "padding".
  explicit Padding(const JsonView& json);
  explicit Padding(const PaddingOptions& options);

  nlohmann::json to_json() const;

  /// Pads an encoding of a batch whose longest encoding has `longest` tokens.
  void apply(Encoding& encoding, size_t longest, Detail detail) const;

 private:
  PaddingOptions options_;
};

/// The limits of the lengths of encodings, which a file or the caller states.
struct LengthLimits {
  std::optional<Truncation> truncation;
  std::optional<Padding> padding;
};

}  // namespace attentive::tokenizers

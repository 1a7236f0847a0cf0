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

/// How many tokens at most, special ones included, and where the rest is taken from.
class Truncation {
 public:
  /// The file's "truncation".
  Truncation(const JsonView& json, const PostProcessor& post_processor);
  Truncation(const TruncationOptions& options, const PostProcessor& post_processor);

  /// As a file states it.
  nlohmann::json to_json() const;

  /// How many tokens of a lone text can matter, none if it needs to know all. Of a pair all of them matter: they tell
  /// which text is the longer one.
  std::optional<size_t> enough() const;
  bool keeps_end() const { return options_.side == TextSide::Left; }
  /// Shortens one sequence, or two, such that `added` more tokens fit. Throws Refusal where the strategy names
  /// the second of one, or a sequence that is too short.
  void apply(std::vector<SpelledText>& sequences, int64_t added) const;

 private:
  void shorten_both(SpelledText& first, SpelledText& second, size_t most) const;
  void shorten(SpelledText& text, size_t size) const;

  TruncationOptions options_;
};

/// Fills up to a length, and to a multiple of another.
class Padding {
 public:
  /// The file's "padding".
  explicit Padding(const JsonView& json);
  explicit Padding(const PaddingOptions& options);

  nlohmann::json to_json() const;

  /// Of texts that become one batch, of which the longest has so many tokens.
  void apply(Encoding& encoding, size_t longest, Detail detail) const;

 private:
  PaddingOptions options_;
};

/// What a file, or the caller, says of the lengths of encodings.
struct LengthLimits {
  std::optional<Truncation> truncation;
  std::optional<Padding> padding;
};

}  // namespace attentive::tokenizers

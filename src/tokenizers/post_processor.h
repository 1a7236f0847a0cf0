#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <attentive/tokenizers/pretrained_tokenizer.h>

#include "tokenizers/json_view.h"

namespace attentive::tokenizers {

/// Selects the members of an Encoding that are computed.
enum class Detail { Ids, Masks, Offsets };

/// The numbers of white space characters, among which Ġ counts, at the ends of a token.
struct Blanks {
  uint32_t leading = 0, trailing = 0;
};

/// The tokens of one text before special tokens are added.
struct SpelledText {
  std::vector<int64_t> ids;
  std::vector<TextSpan> offsets;  // of each token, where they are wanted
  std::vector<Blanks> blanks;     // of each token, where the post-processor trims offsets

  /// Keeps only the tokens [begin, end).
  void keep(size_t begin, size_t end) {
    const auto shorten = [&](auto& values) {
      if (values.empty()) return;
      values.resize(end);
      values.erase(values.begin(), values.begin() + static_cast<ptrdiff_t>(begin));
    };
    shorten(ids);
    shorten(offsets);
    shorten(blanks);
  }
};

/// One part of a template: a sequence or special tokens.
struct TemplatePiece {
  int sequence = -1;         // 0, 1, or -1: special tokens
  std::vector<int64_t> ids;  // the ids of the special tokens
  int64_t type_id = 0;
};

/// Counts the white space at the ends of a token as its vocabulary writes it.
Blanks blanks_of(std::string_view token);

/// A step that excludes white space from the offsets of tokens.
struct Trim {
  bool prefix_space;  // a single blank of the first token was inserted by the pre-tokenizer
  /// Whether an earlier processor has put a special token before the first or the second text.
  std::array<bool, 2> behind_a_special;
};

/// The file's "post_processor", which adds special tokens to one sequence or a pair. The default, for a file
/// without one, adds nothing.
class PostProcessor {
 public:
  PostProcessor();
  explicit PostProcessor(const JsonView& json);

  /// The number of tokens that it adds to one sequence or to two.
  int64_t added(size_t sequences) const;
  /// Whether it needs the counts of white space at the ends of tokens.
  bool trims() const { return !trims_.empty(); }
  /// Joins one sequence, or two, to one encoding, and trims its offsets.
  Encoding apply(std::vector<SpelledText> sequences, bool add_special_tokens, Detail detail) const;

 private:
  using Template = std::vector<TemplatePiece>;

  void parse(const JsonView& json);
  void parse_trim(const JsonView& json);
  void parse_bert(const JsonView& json, bool roberta);
  void parse_templates(const JsonView& json);
  void parse_sequence(const JsonView& json);

  Template single_, pair_;
  std::vector<Trim> trims_;
  std::array<bool, 2> behind_a_special_{};
};

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

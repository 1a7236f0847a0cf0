#pragma once

#include <array>
#include <string_view>
#include <vector>

#include <attentive/tokenizers/pretrained_tokenizer.h>

#include "tokenizers/json_view.h"
#include "tokenizers/spelled_text.h"

namespace attentive::tokenizers {

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

}  // namespace attentive::tokenizers

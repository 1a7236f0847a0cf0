#pragma once

#include <vector>

#include <attentive/tokenizers/pretrained_tokenizer.h>

#include "tokenizers/json_view.h"

namespace attentive::tokenizers {

/// One part of a template: a sequence, or special tokens.
struct TemplatePiece {
  int sequence = -1;         // 0, 1, or -1: special tokens
  std::vector<int64_t> ids;  // of special tokens
  int64_t type_id = 0;
};

/// What the file's "post_processor" makes of one sequence, and of a pair. The default, of a file without one,
/// adds nothing.
class PostProcessor {
 public:
  PostProcessor();
  explicit PostProcessor(const JsonView& json);

  /// How many tokens it adds to one sequence, or to two.
  int64_t added(size_t sequences) const;
  /// The ids of one sequence, or of two, as one.
  Encoding apply(const std::vector<std::vector<int64_t>>& sequences, bool add_special_tokens) const;

 private:
  using Template = std::vector<TemplatePiece>;

  void parse(const JsonView& json);
  void parse_bert(const JsonView& json, bool roberta);
  void parse_templates(const JsonView& json);
  void parse_sequence(const JsonView& json);

  Template single_, pair_;
};

}  // namespace attentive::tokenizers

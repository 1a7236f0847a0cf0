#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <attentive/tokenizers/pretrained_tokenizer.h>

#include "tokenizers/json_view.h"
#include "tokenizers/post_processor.h"

namespace attentive::tokenizers {

/// The file's "truncation": how many tokens at most, special ones included, and where the rest is taken from.
class Truncation {
 public:
  enum class From { LongestFirst, OnlyFirst, OnlySecond };

  Truncation(const JsonView& json, const PostProcessor& post_processor);

  /// How many tokens of a sequence can matter; none if all of them do.
  std::optional<size_t> enough(size_t sequence) const;
  bool keeps_end() const { return keeps_end_; }
  /// Shortens one sequence, or two, such that `added` more tokens fit. Throws Refusal where the file names
  /// the second of one, or a sequence that is too short.
  void apply(std::vector<std::vector<int64_t>>& sequences, int64_t added) const;

 private:
  void shorten_both(std::vector<int64_t>& first, std::vector<int64_t>& second, size_t most) const;
  void shorten(std::vector<int64_t>& ids, size_t size) const;

  size_t most_ = 0;
  From from_ = From::LongestFirst;
  bool keeps_end_ = false;  // drops tokens from the start
};

/// The file's "padding": up to a length, and to a multiple of another.
class Padding {
 public:
  explicit Padding(const JsonView& json);

  void apply(Encoding& encoding) const;

 private:
  size_t length_ = 0;  // 0: that of the longest text of a batch; ours are of one
  size_t multiple_ = 1;
  bool before_ = false;
  int64_t id_ = 0, type_id_ = 0;
};

}  // namespace attentive::tokenizers

#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tokenizers/models.h"
#include "tokenizers/piece_trie.h"

namespace attentive::tokenizers {

/// The Unigram model chooses, among all ways to spell a piece with the vocabulary, the one with the largest
/// sum of scores. A character that the vocabulary lacks is unknown and scores 10 less than the lowest piece.
/// Unknown neighbours become one token, or with `byte_fallback` the tokens of their bytes, such as "<0xE2>".
///
/// A piece of n bytes costs O(n L), where L is the number of bytes of the longest token, and 16 n bytes of
/// memory.
/// Source: Kudo 2018, https://arxiv.org/abs/1804.10959
class UnigramModel final : public Model {
 public:
  explicit UnigramModel(const JsonView& json);

  void encode(std::string_view piece, std::vector<Token>& tokens) const override;

 private:
  /// The last token of the best way to spell a piece up to a place.
  struct Arrival {
    double score;
    uint32_t begin;
    int32_t id;
  };

  std::vector<Arrival> best_arrivals(std::string_view piece) const;
  void spell_unknown(std::string_view text, uint32_t begin, std::vector<Token>& tokens) const;
  int64_t unknown_or_refuse() const;

  PieceTrie trie_;
  std::vector<double> scores_;  // by id
  double unknown_score_ = 0;
  std::optional<int32_t> unknown_;
  std::vector<int32_t> bytes_;  // the id of each byte's token; empty without byte_fallback
};

}  // namespace attentive::tokenizers

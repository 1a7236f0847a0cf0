#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizers/models.h"

namespace attentive::tokenizers {

/// A cache of the tokens of words: a text repeats its words, and so do the texts of a batch. The cache is
/// cleared when it would grow beyond about 16 MB. Only one thread may use it at a time.
class WordCache {
 public:
  explicit WordCache(const Model& model) : model_(model), slots_(kFewestSlots) {}

  /// Returns the tokens of a word, valid until the next call. Throws what the model throws.
  std::span<const Token> spell(std::string_view word);

 private:
  struct Slot {
    uint64_t hash = 0;  // 0: free
    uint32_t word = 0, word_size = 0, tokens = 0, token_count = 0;
  };
  static constexpr size_t kFewestSlots = 64;

  /// Returns the slot of a word, or the free one for it; null if too many other words have the same place.
  Slot* find(std::string_view word, uint64_t hash);
  void grow();
  void forget();

  const Model& model_;
  std::vector<Slot> slots_;  // their number is a power of two; at most half of them are used
  size_t used_ = 0;
  std::string words_;
  std::vector<Token> tokens_;
  std::vector<Token> fresh_;
};

}  // namespace attentive::tokenizers

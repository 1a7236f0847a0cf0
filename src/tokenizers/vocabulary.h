#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizers/json_view.h"

namespace attentive::tokenizers {

/// The tokens of a model and their ids. The tokens are stored in one string, sorted by id: a vocabulary of
/// 256,000 pieces takes about 10 MB.
class Vocabulary {
 public:
  /// Reads an object of tokens and ids, in which each id must have one token.
  explicit Vocabulary(const JsonView& json);
  /// Takes a list, in which ids are indices. If tokens are equal, `id_of` returns the id of the last one.
  explicit Vocabulary(const std::vector<std::string_view>& tokens);

  size_t size() const { return begins_.size() - 1; }
  int64_t largest_id() const;                  // -1 if there is none
  size_t longest() const { return longest_; }  // bytes of the longest token
  std::optional<int64_t> id_of(std::string_view token) const;
  /// The token of an id, or std::nullopt. The text lives as long as the vocabulary.
  std::optional<std::string_view> token_of(int64_t id) const;

  /// Calls `visit(token, id)` for every token, sorted by id.
  template <class Visit>
  void for_each(Visit visit) const {
    for (size_t i = 0; i < size(); ++i) visit(text_at(i), id_at(i));
  }

 private:
  struct Slot {
    uint32_t hash, place;
  };

  std::string_view text_at(size_t place) const {
    return std::string_view(text_).substr(begins_[place], begins_[place + 1] - begins_[place]);
  }
  int64_t id_at(size_t place) const { return ids_.empty() ? static_cast<int64_t>(place) : ids_[place]; }
  void append(std::string_view token);
  void index();

  std::string text_;
  std::vector<uint32_t> begins_{0};
  std::vector<int32_t> ids_;  // empty if ids are indices
  std::vector<Slot> slots_;   // a hash table of the indices of tokens
  size_t longest_ = 0;
};

}  // namespace attentive::tokenizers

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "tokenizers/json_view.h"

namespace attentive::tokenizers {

struct HashText {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

/// The tokens of a model: each has one id, and each id at most one token.
class Vocabulary {
 public:
  /// From an object of tokens and ids.
  explicit Vocabulary(const JsonView& json);
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  size_t size() const { return ids_.size(); }
  int64_t largest_id() const { return largest_id_; }  // -1 if there is none
  size_t longest() const { return longest_; }         // bytes of the longest token
  std::optional<int64_t> id_of(std::string_view token) const;
  /// Null if no token has this id.
  const std::string* token_of(int64_t id) const;

  /// Visits every token and its id, in no order.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const auto& [token, id] : ids_) visit(token, id);
  }

 private:
  std::unordered_map<std::string, int64_t, HashText, std::equal_to<>> ids_;
  std::unordered_map<int64_t, const std::string*> tokens_;
  int64_t largest_id_ = -1;
  size_t longest_ = 0;
};

}  // namespace attentive::tokenizers

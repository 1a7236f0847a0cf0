#include "tokenizers/vocabulary.h"

#include <algorithm>

#include "io/refusal.h"

namespace attentive::tokenizers {

Vocabulary::Vocabulary(const JsonView& json) {
  if (!json.raw().is_object()) json.expected("an object of tokens and ids");
  ids_.reserve(json.raw().size());
  tokens_.reserve(json.raw().size());
  for (const auto& [token, value] : json.raw().items()) {
    // A view only where there is something to say: a vocabulary has 100,000 entries.
    const bool plain = value.is_number_unsigned() && value.get<uint64_t>() < (uint64_t{1} << 31);
    const auto id = plain ? value.get<int64_t>() : json.at(token).integer();
    const auto [entry, fresh] = ids_.emplace(token, id);
    const auto [other, free] = tokens_.emplace(id, &entry->first);
    if (!free)
      refuse("{}: expected an id a token, got {} for two: {} and {}", json.path(), id, *other->second, token);
    largest_id_ = std::max(largest_id_, id);
    longest_ = std::max(longest_, token.size());
  }
}

std::optional<int64_t> Vocabulary::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

const std::string* Vocabulary::token_of(int64_t id) const {
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? nullptr : found->second;
}

}  // namespace attentive::tokenizers

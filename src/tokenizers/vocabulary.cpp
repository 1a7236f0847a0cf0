#include "tokenizers/vocabulary.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

#include "base/refusal.h"

namespace attentive::tokenizers {
namespace {

constexpr uint32_t kFree = std::numeric_limits<uint32_t>::max();

struct NamedId {
  int64_t id;
  std::string_view token;
};

}  // namespace

Vocabulary::Vocabulary(const JsonView& json) {
  if (!json.raw().is_object()) json.expected("an object of tokens and ids");
  std::vector<NamedId> all;
  all.reserve(json.raw().size());
  for (const auto& [token, value] : json.raw().get_ref<const nlohmann::json::object_t&>()) {
    // A view is made only for an error, because a vocabulary may have 100,000 entries.
    const bool plain = value.is_number_unsigned() && value.get<uint64_t>() < (uint64_t{1} << 31);
    all.push_back({plain ? value.get<int64_t>() : json.at(token).integer(), token});
  }
  std::ranges::stable_sort(all, {}, &NamedId::id);
  const auto twice = std::ranges::adjacent_find(all, {}, &NamedId::id);
  if (twice != all.end()) {
    refuse("{}: expected an id a token, got {} for two: {} and {}", json.path(), twice->id, twice->token,
           (twice + 1)->token);
  }
  begins_.reserve(all.size() + 1);
  for (const auto& one : all) append(one.token);
  if (largest_id() != (all.empty() ? -1 : all.back().id)) {
    for (const auto& one : all) ids_.push_back(static_cast<int32_t>(one.id));
  }
  index();
}

Vocabulary::Vocabulary(const std::vector<std::string_view>& tokens) {
  begins_.reserve(tokens.size() + 1);
  for (const auto token : tokens) append(token);
  index();
}

void Vocabulary::append(std::string_view token) {
  if (text_.size() + token.size() > std::numeric_limits<uint32_t>::max()) {
    refuse("expected a vocabulary of less than 4 GB");
  }
  text_ += token;
  begins_.push_back(static_cast<uint32_t>(text_.size()));
  longest_ = std::max(longest_, token.size());
}

void Vocabulary::index() {
  text_.shrink_to_fit();
  slots_.assign(std::bit_ceil(size() + size() / 2 + 1), {0, kFree});
  const size_t mask = slots_.size() - 1;
  for (size_t place = 0; place < size(); ++place) {
    const auto token = text_at(place);
    const auto hash = std::hash<std::string_view>()(token);
    const auto rest = static_cast<uint32_t>(hash >> 32);
    const auto other = [&](const Slot& slot) { return slot.hash != rest || text_at(slot.place) != token; };
    size_t at = hash & mask;
    while (slots_[at].place != kFree && other(slots_[at])) at = (at + 1) & mask;
    slots_[at] = {rest, static_cast<uint32_t>(place)};
  }
}

int64_t Vocabulary::largest_id() const {
  return size() == 0 ? -1 : id_at(size() - 1);
}

std::optional<int64_t> Vocabulary::id_of(std::string_view token) const {
  const auto hash = std::hash<std::string_view>()(token);
  const size_t mask = slots_.size() - 1;
  for (size_t slot = hash & mask; slots_[slot].place != kFree; slot = (slot + 1) & mask) {
    if (slots_[slot].hash == hash >> 32 && text_at(slots_[slot].place) == token) {
      return id_at(slots_[slot].place);
    }
  }
  return std::nullopt;
}

std::optional<std::string_view> Vocabulary::token_of(int64_t id) const {
  if (id < 0 || id > largest_id()) return std::nullopt;
  if (ids_.empty()) return text_at(static_cast<size_t>(id));
  const auto found = std::ranges::lower_bound(ids_, id);
  if (*found != id) return std::nullopt;
  return text_at(static_cast<size_t>(found - ids_.begin()));
}

}  // namespace attentive::tokenizers

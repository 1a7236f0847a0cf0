#include "tokenizers/added_tokens.h"

#include <algorithm>

#include "base/refusal.h"
#include "tokenizers/unicode.h"

namespace attentive::tokenizers {
namespace {

constexpr size_t kLongest = 1024;  // in bytes; a search may read this many at each place of a text

// These two functions find where the white space before `end` begins, and where that after `begin` ends.
size_t space_before(std::string_view text, size_t end) {
  while (end > 0 && is_space(previous_char(text, end))) end = previous_start(text, end);
  return end;
}
size_t space_after(std::string_view text, size_t begin) {
  for (size_t offset = begin; offset < text.size(); begin = offset) {
    if (!is_space(next_char(text, offset))) break;
  }
  return begin;
}

bool is_single_word(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && is_word(previous_char(text, begin))) return false;
  return end == text.size() || !is_word(next_char(text, end));
}

}  // namespace

void TextSet::add(std::string_view text, int64_t id) {
  if (!text.empty()) first_bytes_[static_cast<unsigned char>(text[0])] = true;
  size_t node = 0;
  for (const char c : text) {
    const auto [entry, fresh] = nodes_[node].next.try_emplace(c, nodes_.size());
    node = entry->second;
    if (fresh) nodes_.emplace_back();
  }
  if (nodes_[node].id < 0) nodes_[node].id = id;
}

std::pair<int64_t, size_t> TextSet::longest_at(std::string_view text) const {
  std::pair<int64_t, size_t> best{-1, 0};
  size_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto found = nodes_[node].next.find(text[i]);
    if (found == nodes_[node].next.end()) break;
    node = found->second;
    if (nodes_[node].id >= 0) best = {nodes_[node].id, i + 1};
  }
  return best;
}

AddedTokens::AddedTokens(const JsonView& json, const Vocabulary& model, const Normalizer& normalizer) {
  auto next_id = static_cast<int64_t>(model.size());
  for (const auto& item : json.items()) {
    item.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    const auto& content = item.at("content").string();
    if (content.empty() || content.size() > kLongest) {
      item.at("content").expected(fmt::format("1 to {} bytes", kLongest));
    }
    const auto in_model = model.id_of(content);
    const auto id = in_model ? *in_model : next_id++;
    if (item.at("id").integer() != id || (!in_model && model.token_of(id))) {
      item.at("id").expected(fmt::format("the id that follows from the vocabulary, {}", id));
    }
    add(item, normalizer);
  }
}

void AddedTokens::add(const JsonView& json, const Normalizer& normalizer) {
  const auto id = json.at("id").integer();
  AddedToken token;
  token.content = json.at("content").string();
  token.single_word = json.at("single_word").boolean();
  token.lstrip = json.at("lstrip").boolean();
  token.rstrip = json.at("rstrip").boolean();
  token.normalized = json.at("normalized").boolean();
  token.special = json.at("special").boolean();
  token.decoded = token.normalized ? normalized_text(normalizer, token.content) : token.content;
  if (token.decoded.empty() || token.decoded.size() > kLongest) {
    json.at("content").expected("a text of which the normalizer leaves something");
  }
  if (!ids_.emplace(token.content, id).second)
    json.at("content").expected("another text than an earlier token's");
  (token.normalized ? normalized_ : plain_).add(token.decoded, id);
  tokens_.emplace(id, std::move(token));
  largest_id_ = std::max(largest_id_, id);
}

// These rules are Python's. A match that is not a single word, for a token that must be one, is skipped as a
// whole. A token that strips to its left does not take white space that the previous token has taken, but a
// token whose own text begins with white space may take it a second time.
void AddedTokens::extract(const Piece& piece, const TextSet& set, std::vector<Piece>& out) const {
  const auto text = piece.text;
  size_t done = 0;
  const auto emit = [&](size_t begin, size_t end, int64_t id) {
    if (begin >= end) return;
    out.push_back(piece.part(begin, end - begin));
    out.back().added_id = id;
  };
  for (size_t offset = 0; !set.empty() && offset < text.size();) {
    if (!set.may_begin_with(text[offset])) {
      ++offset;
      continue;
    }
    const auto [id, size] = set.longest_at(text.substr(offset));
    if (size == 0) {
      ++offset;
      continue;
    }
    const auto& token = tokens_.at(id);
    size_t begin = offset, end = offset + size;
    offset = end;
    if (token.single_word && !is_single_word(text, begin, end)) continue;
    if (token.lstrip) begin = std::max(space_before(text, begin), done);
    if (token.rstrip) end = space_after(text, end);
    emit(done, begin, -1);
    emit(begin, end, id);
    done = end;
  }
  emit(done, text.size(), -1);
}

void AddedTokens::extract(Pieces& pieces, const Normalizer& normalizer) const {
  pieces.change_text([&](const Piece& piece, std::vector<Piece>& out) { extract(piece, plain_, out); });
  pieces.change_text([&](const Piece& piece, std::vector<Piece>& out) {
    extract(normalizer ? normalizer(piece, pieces) : piece, normalized_, out);
  });
}

const AddedToken* AddedTokens::find(int64_t id) const {
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? nullptr : &found->second;
}

std::optional<int64_t> AddedTokens::id_of(std::string_view content) const {
  const auto found = ids_.find(content);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

bool AddedTokens::is_special(std::string_view content) const {
  const auto id = id_of(content);
  return id && tokens_.at(*id).special;
}

}  // namespace attentive::tokenizers

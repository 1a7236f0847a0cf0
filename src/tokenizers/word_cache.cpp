#include "tokenizers/word_cache.h"

#include <cstring>

namespace attentive::tokenizers {
namespace {

constexpr size_t kLongestWord = 256;          // in bytes; longer words are rare and seldom repeated
constexpr size_t kMostSlots = 1 << 17;        // 3 MiB
constexpr size_t kMostCachedBytes = 1 << 22;  // the bytes of all words
constexpr size_t kMostTokens = 1 << 19;       // 8 MiB
constexpr size_t kMostProbes = 16;            // bounds a search for any text

// The hash mixes eight bytes at a time. A product carries upwards only: after one round, the last of eight
// bytes would not reach the bits that choose a slot, and the words "interXYZ" would share a few slots.
uint64_t hash_of(std::string_view word) {
  uint64_t hash = word.size();
  const auto mix = [&](uint64_t bytes) {
    hash = (hash ^ bytes) * 0x9E3779B97F4A7C15;
    hash ^= hash >> 32;
  };
  uint64_t bytes = 0;
  for (; word.size() > 8; word.remove_prefix(8)) {
    std::memcpy(&bytes, word.data(), 8);
    mix(bytes);
  }
  bytes = 0;
  std::memcpy(&bytes, word.data(), word.size());
  mix(bytes);
  mix(0);
  return hash == 0 ? 1 : hash;
}

}  // namespace

WordCache::Slot* WordCache::find(std::string_view word, uint64_t hash) {
  const size_t mask = slots_.size() - 1;
  for (size_t step = 0; step < kMostProbes; ++step) {
    auto& slot = slots_[(hash + step) & mask];
    if (slot.hash == 0) return &slot;
    if (slot.hash == hash && std::string_view(words_).substr(slot.word, slot.word_size) == word) return &slot;
  }
  return nullptr;
}

void WordCache::grow() {
  std::vector<Slot> before(2 * slots_.size());
  before.swap(slots_);
  used_ = 0;
  for (const auto& slot : before) {
    if (slot.hash == 0) continue;
    auto* place = find(std::string_view(words_).substr(slot.word, slot.word_size), slot.hash);
    if (!place) continue;
    *place = slot;
    ++used_;
  }
}

void WordCache::forget() {
  slots_.assign(slots_.size(), {});
  used_ = 0;
  words_.clear();
  tokens_.clear();
}

std::span<const Token> WordCache::spell(std::string_view word) {
  const bool kept = word.size() <= kLongestWord;
  const auto hash = kept ? hash_of(word) : 0;
  auto* slot = kept ? find(word, hash) : nullptr;
  if (slot && slot->hash != 0)
    return std::span<const Token>(tokens_).subspan(slot->tokens, slot->token_count);

  fresh_.clear();
  model_.encode(word, fresh_);
  if (!slot) return fresh_;
  if (words_.size() + word.size() > kMostCachedBytes || tokens_.size() + fresh_.size() > kMostTokens ||
      2 * (used_ + 1) > kMostSlots) {
    forget();
    slot = find(word, hash);
  } else if (2 * (used_ + 1) > slots_.size()) {
    grow();
    slot = find(word, hash);
    if (!slot) return fresh_;
  }
  *slot = {hash, static_cast<uint32_t>(words_.size()), static_cast<uint32_t>(word.size()),
           static_cast<uint32_t>(tokens_.size()), static_cast<uint32_t>(fresh_.size())};
  ++used_;
  words_ += word;
  tokens_.insert(tokens_.end(), fresh_.begin(), fresh_.end());
  return fresh_;
}

}  // namespace attentive::tokenizers

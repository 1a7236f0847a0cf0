#include "tokenizers/pipeline.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "base/refusal.h"
#include "base/strings.h"
#include "tokenizers/pieces.h"
#include "tokenizers/pre_tokenizers.h"

namespace attentive::tokenizers {
namespace {

const nlohmann::json kNull;
const auto kNone = nlohmann::json::array();

// Returns a part of the document; an absent part is read like null.
JsonView part(const JsonView& document, const char* key, const nlohmann::json& absent = kNull) {
  return document.has(key) ? document.at(key) : JsonView(absent, key);
}

std::unique_ptr<const Model> checked_model(const JsonView& document) {
  document.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                 "post_processor", "decoder", "model"});
  if (document.has("version") && document.at("version").raw() != "1.0")
    document.at("version").expected("\"1.0\"");
  return parse_model(document.at("model"));
}

// The bytes that the decoder may make of one byte. Without a limit, a few steps could take all memory.
constexpr double kMostOfOneByte = 4096;

constexpr size_t kLongestWithOffsets = std::numeric_limits<uint32_t>::max();

// Spells pieces; the returned tokens are valid until the next call.
class Speller {
 public:
  explicit Speller(WordCache& words) : words_(words) {}

  std::span<const Token> spell(const Piece& piece) {
    if (piece.added_id < 0) return words_.spell(piece.text);
    added_ = {piece.added_id, 0, static_cast<uint32_t>(piece.text.size())};
    return {&added_, 1};
  }

 private:
  WordCache& words_;
  Token added_{};
};

// Returns as many pieces, from the first one on or from the last one back, as are needed for `enough` tokens.
std::span<const Piece> enough_pieces(Speller& speller, std::span<const Piece> pieces, size_t enough,
                                     bool from_end) {
  size_t count = 0, tokens = 0;
  while (count < pieces.size()) {
    const auto& piece = from_end ? pieces[pieces.size() - 1 - count] : pieces[count];
    ++count;
    tokens += speller.spell(piece).size();
    if (tokens >= enough) break;
  }
  return from_end ? pieces.last(count) : pieces.first(count);
}

}  // namespace

Pipeline::Pipeline(const JsonView& document)
    : model_(checked_model(document)),
      normalizer_(parse_normalizer(part(document, "normalizer"))),
      pre_tokenizer_(parse_pre_tokenizer(part(document, "pre_tokenizer"))),
      added_(part(document, "added_tokens", kNone), model_->vocabulary(), normalizer_),
      post_processor_(part(document, "post_processor")),
      decoder_(parse_decoder(part(document, "decoder"))) {
  const auto cuts = part(document, "pre_tokenizer");
  needs_origins_ = signs_beginning_only(cuts) && (normalizer_ || cuts.type() == "Sequence");
  if (decoder_.growth > kMostOfOneByte) {
    part(document, "decoder")
        .expected(fmt::format("decoders that make at most {} bytes of one", kMostOfOneByte));
  }
  if (const auto json = document.find("truncation")) limits_.truncation.emplace(*json, post_processor_);
  if (const auto json = document.find("padding")) limits_.padding.emplace(*json);
  if (!decoder_.byte_level) return;
  model_->vocabulary().for_each([&](std::string_view token, int64_t id) {
    if (auto bytes = from_visible(token)) bytes_.emplace(id, std::move(*bytes));
  });
}

void Pipeline::cut_into_pieces(std::string_view text, bool with_origins, Pieces& pieces) const {
  const auto good = utf8_prefix(text);
  if (good != text.size()) refuse("expected text in UTF-8, got a bad byte at offset {}", good);
  pieces.start(text.size());
  Piece whole{text};
  if (with_origins) {
    if (text.size() > kLongestWithOffsets)
      refuse("expected a text of at most {} bytes, got {}", kLongestWithOffsets, text.size());
    whole.origins = pieces.keep(origins_of(text));
  }
  if (!text.empty()) pieces.list.push_back(whole);
  added_.extract(pieces, normalizer_);
  if (pre_tokenizer_) pre_tokenizer_(pieces);
}

std::vector<int64_t> Pipeline::encode_whole(std::string_view text) const {
  auto scratch = workspace();
  return spell(text, Detail::Ids, nullptr, scratch).ids;
}

SpelledText Pipeline::spell(std::string_view text, Detail detail, const Truncation* stop,
                            Workspace& workspace) const {
  const bool offsets = detail == Detail::Offsets;
  cut_into_pieces(text, offsets || needs_origins_, workspace.pieces);
  Speller speller(workspace.words);
  std::span<const Piece> wanted = workspace.pieces.list;
  if (const auto enough = stop ? stop->enough() : std::nullopt)
    wanted = enough_pieces(speller, wanted, *enough, stop->keeps_end());

  SpelledText spelled;
  if (!offsets) {
    for (const auto& piece : wanted) {
      for (const auto& token : speller.spell(piece)) spelled.ids.push_back(token.id);
    }
    return spelled;
  }
  const CharacterPlaces places(text);
  for (const auto& piece : wanted) {
    if (piece.text.size() > kLongestWithOffsets)
      refuse("expected pieces of at most {} bytes, got {}", kLongestWithOffsets, piece.text.size());
    for (const auto& token : speller.spell(piece)) {
      spelled.ids.push_back(token.id);
      spelled.offsets.push_back(places.characters(origin_of(piece, token.begin, token.end)));
      if (!post_processor_.trims()) continue;
      const auto written = piece.added_id < 0 ? model_->vocabulary().token_of(token.id) : std::nullopt;
      spelled.blanks.push_back(blanks_of(written.value_or(piece.text)));
    }
  }
  return spelled;
}

Encoding Pipeline::encode(std::span<const std::string_view> texts, bool add_special_tokens, Detail detail,
                          const std::optional<Truncation>& truncation, Workspace& workspace) const {
  const auto* const stop = truncation && texts.size() == 1 ? &*truncation : nullptr;
  std::vector<SpelledText> sequences;
  for (const auto text : texts) sequences.push_back(spell(text, detail, stop, workspace));
  if (truncation) truncation->apply(sequences, add_special_tokens ? post_processor_.added(texts.size()) : 0);
  return post_processor_.apply(std::move(sequences), add_special_tokens, detail);
}

// The text that the decoder gets for an id.
std::string_view Pipeline::token_of(int64_t id) const {
  if (const auto* added = added_.find(id)) return added->decoded;
  const auto token = model_->vocabulary().token_of(id);
  if (!token) refuse("expected ids of its vocabulary of {}, got {}", vocab_size(), id);
  return *token;
}

std::optional<std::string_view> Pipeline::token_to_decode(int64_t id, bool skip_special_tokens) const {
  const auto token = token_of(id);
  return skip_special_tokens && added_.is_special(token) ? std::nullopt : std::optional(token);
}

std::string Pipeline::decode(std::span<const int64_t> ids, bool skip_special_tokens) const {
  std::vector<std::string> tokens;
  for (const auto id : ids) {
    if (const auto token = token_to_decode(id, skip_special_tokens)) tokens.emplace_back(*token);
  }
  decoder_.apply(tokens);
  std::string text;
  for (const auto& token : tokens) text += token;
  return text;
}

int64_t Pipeline::vocab_size() const {
  return std::max(model_->vocabulary().largest_id(), added_.largest_id()) + 1;
}

std::string_view Pipeline::bytes(int64_t id) const {
  if (const auto* added = added_.find(id)) return added->content;
  const auto found = bytes_.find(id);
  return found == bytes_.end() ? token_of(id) : found->second;
}

std::optional<int64_t> Pipeline::token_to_id(std::string_view token) const {
  const auto added = added_.id_of(token);
  return added ? added : model_->vocabulary().id_of(token);
}

bool Pipeline::is_special(int64_t id) const {
  const auto* added = added_.find(id);
  return added && added->special;
}

namespace {

// The most texts that a thread takes at once: few enough that all threads finish at about the same time.
constexpr size_t kMostAtOnce = 32;

class TextQueue {
 public:
  TextQueue(size_t count, size_t threads, const std::function<void(size_t thread, size_t text)>& work)
      : count_(count), at_once_(std::clamp<size_t>(count / (8 * threads), 1, kMostAtOnce)), work_(work) {}

  // Takes texts in order until none is left. All texts before one that fails are therefore processed too, and
  // the first error is known.
  void run(size_t thread) {
    for (;;) {
      const size_t begin = next_.fetch_add(at_once_), end = std::min(begin + at_once_, count_);
      if (begin >= count_) return;
      for (size_t text = begin; text < end; ++text) {
        if (text > first_bad_) return;
        try {
          work_(thread, text);
        } catch (...) {
          report(text);
          return;
        }
      }
    }
  }

  void rethrow() const {
    if (!error_) return;
    try {
      std::rethrow_exception(error_);
    } catch (const Refusal& refusal) {
      refuse("texts[{}]: {}", first_bad_.load(), refusal.what());
    }
  }

 private:
  void report(size_t text) {
    const std::lock_guard lock(mutex_);
    if (text >= first_bad_) return;
    first_bad_ = text;
    error_ = std::current_exception();
  }

  size_t count_, at_once_;
  const std::function<void(size_t thread, size_t text)>& work_;
  std::atomic<size_t> next_{0};
  std::atomic<size_t> first_bad_{~size_t{0}};
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace

void for_each_text(size_t count, size_t threads,
                   const std::function<void(size_t thread, size_t text)>& work) {
  threads = std::max<size_t>(1, std::min(threads, count));
  TextQueue queue(count, threads, work);
  std::vector<std::thread> others;
  try {
    others.reserve(threads - 1);
    while (others.size() + 1 < threads)
      others.emplace_back([&, thread = others.size() + 1] { queue.run(thread); });
  } catch (const std::system_error&) {  // the system refused a thread: those that run do the work
  }
  queue.run(0);
  for (auto& thread : others) thread.join();
  queue.rethrow();
}

}  // namespace attentive::tokenizers

#include <algorithm>
#include <set>
#include <system_error>

#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>

#include <attentive/text/bpe_tokenizer.h>
#include <attentive/text/tokenizer.h>

#include "base/files.h"
#include "base/strings.h"

namespace attentive {
namespace {

// The JSON formats are {"type": "char", "characters": ["61", "c3a9", ...]}, with each character as
// hexadecimal bytes, and {"type": "bpe", "merges": [[104, 101], ...]}.
constexpr const char* kParseTokenizer = "parse_tokenizer";

const nlohmann::json& member(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  TORCH_CHECK_VALUE(found != object.end() && found->is_array(), kParseTokenizer, ": expected an array \"",
                    key, "\"");
  return *found;
}

CharTokenizer parse_characters(const nlohmann::json& object) {
  std::vector<std::string> characters;
  for (const auto& item : member(object, "characters")) {
    TORCH_CHECK_VALUE(item.is_string(), kParseTokenizer, ": expected characters as strings, got ",
                      item.dump());
    characters.push_back(from_hex(kParseTokenizer, item.get_ref<const std::string&>()));
  }
  return CharTokenizer(std::move(characters));
}

BpeTokenizer parse_merges(const nlohmann::json& object) {
  std::vector<BpeTokenizer::Merge> merges;
  for (const auto& item : member(object, "merges")) {
    TORCH_CHECK_VALUE(
        item.is_array() && item.size() == 2 && item[0].is_number_integer() && item[1].is_number_integer(),
        kParseTokenizer, ": expected merges as pairs of integers, got ", item.dump());
    merges.emplace_back(item[0].get<int64_t>(), item[1].get<int64_t>());
  }
  return BpeTokenizer(std::move(merges));
}

}  // namespace

std::string Tokenizer::decode(std::span<const int64_t> ids) const {
  std::string text;
  for (const int64_t id : ids) text += bytes(id);
  return text;
}

std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view json) {
  const auto object = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  TORCH_CHECK_VALUE(object.is_object(), kParseTokenizer, ": expected a JSON object");
  TORCH_CHECK_VALUE(!object.contains("model"), kParseTokenizer,
                    ": expected a tokenizer of this package, got Hugging Face's tokenizer.json; "
                    "load_any_tokenizer of the component attentive::tokenizers reads both");
  const auto type = object.find("type");
  TORCH_CHECK_VALUE(type != object.end() && (*type == "char" || *type == "bpe"), kParseTokenizer,
                    ": expected \"type\" to be \"char\" or \"bpe\", got ",
                    type == object.end() ? std::string("none") : type->dump());
  if (*type == "char") return std::make_unique<CharTokenizer>(parse_characters(object));
  return std::make_unique<BpeTokenizer>(parse_merges(object));
}

void save_tokenizer(const std::filesystem::path& path, const Tokenizer& tokenizer) {
  const auto text = tokenizer.to_json() + '\n';
  try {
    AtomicFile file(path);
    file.write(text.data(), text.size());
    file.commit();
  } catch (const std::system_error& error) {
    TORCH_CHECK_VALUE(false, "save_tokenizer: ", path.string(), ": ", error.what());
  }
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path) {
  std::string text;
  try {
    text = read_file(path);
  } catch (const std::system_error& error) {
    TORCH_CHECK_VALUE(false, "load_tokenizer: ", error.what());
  }
  try {
    return parse_tokenizer(text);
  } catch (const c10::Error& error) {
    TORCH_CHECK_VALUE(false, "load_tokenizer: ", path.string(), ": ", error.what_without_backtrace());
  }
}

namespace {

constexpr const char* kStreamingDecoder = "StreamingDecoder";

bool continues_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

// Returns the tokens' bytes unchanged, except that a character's bytes are returned together.
class BytesDecoder final : public StreamingDecoder {
 public:
  BytesDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
      : tokenizer_(tokenizer), skips_(skip_special_tokens) {}

 private:
  std::string next_text(int64_t id) override {
    held_ += shown_bytes(id);
    const auto certain = held_.size() - unfinished_utf8(held_);
    auto text = held_.substr(0, certain);
    held_.erase(0, certain);
    return text;
  }

  std::string last_text() override { return std::move(held_); }

  std::string whole_text(std::span<const int64_t> ids) const override {
    std::string text;
    for (const auto id : ids) text += shown_bytes(id);
    return text;
  }

  // Throws for an id without meaning, be it special or not.
  std::string_view shown_bytes(int64_t id) const {
    const auto bytes = tokenizer_.bytes(id);
    return skips_ && tokenizer_.is_special(id) ? std::string_view() : bytes;
  }

  const Tokenizer& tokenizer_;
  bool skips_;
  std::string held_;
};

}  // namespace

void StreamingDecoder::follow(std::span<const int64_t> ids) {
  TORCH_CHECK_VALUE(state_ == State::Fresh, kStreamingDecoder,
                    ": expected follow before any other call, got it after one");
  seen_ = whole_text(ids);  // throws for an invalid id before anything changes
  size_t certain = 0;
  for (const auto id : ids) certain += next_text(id).size();
  seen_.erase(0, certain);
  state_ = State::Open;
}

std::string StreamingDecoder::push(int64_t id) {
  TORCH_CHECK_VALUE(state_ != State::Finished, kStreamingDecoder,
                    ": expected no push after finish, got the token ", id);
  auto text = unseen(next_text(id));
  state_ = State::Open;
  return text;
}

std::string StreamingDecoder::finish() {
  TORCH_CHECK_VALUE(state_ != State::Finished, kStreamingDecoder,
                    ": expected one call of finish, got another one");
  state_ = State::Finished;
  return unseen(last_text());
}

// Removes the text that was output already. If the two differ (for instance where half a character has become
// a whole one), the text is new from that character on.
std::string StreamingDecoder::unseen(std::string text) {
  const auto [here, there] = std::ranges::mismatch(text, seen_);
  auto common = static_cast<size_t>(here - text.begin());
  if (here == text.end() || there == seen_.end()) {
    seen_.erase(0, common);
  } else {
    while (common > 0 && continues_character(text[common])) --common;
    seen_.clear();
  }
  return text.erase(0, common);
}

std::unique_ptr<StreamingDecoder> Tokenizer::streaming_decoder(bool skip_special_tokens) const {
  return std::make_unique<BytesDecoder>(*this, skip_special_tokens);
}

namespace {

constexpr const char* kCharTokenizer = "CharTokenizer";

// The length of a UTF-8 sequence according to its first byte; 1 for a byte that cannot begin one.
size_t promised(unsigned char first) {
  if (first >= 0xc2 && first < 0xe0) return 2;
  if (first >= 0xe0 && first < 0xf0) return 3;
  if (first >= 0xf0 && first < 0xf5) return 4;
  return 1;
}

// The character that begins at `at`: a whole UTF-8 sequence or one stray byte.
std::string_view character(std::string_view text, size_t offset) {
  const auto size = promised(static_cast<unsigned char>(text[offset]));
  if (size > 1 && offset + size <= text.size() && is_utf8(text.substr(offset, size)))
    return text.substr(offset, size);
  return text.substr(offset, 1);
}

template <class Visit>
void for_each_character(std::string_view text, Visit visit) {
  for (size_t offset = 0; offset < text.size();) {
    const auto piece = character(text, offset);
    visit(piece, offset);
    offset += piece.size();
  }
}

std::string printable(std::string_view piece) {
  if (piece.size() == 1 && (piece[0] < ' ' || piece[0] == 127)) return "byte 0x" + to_hex(piece);
  return is_utf8(piece) ? '"' + std::string(piece) + '"' : "byte 0x" + to_hex(piece);
}

}  // namespace

CharTokenizer CharTokenizer::train(std::string_view text) {
  TORCH_CHECK_VALUE(!text.empty(), kCharTokenizer,
                    ": expected a text with at least one character, got an empty one");
  std::set<std::string, std::less<>> seen;
  for_each_character(text, [&](std::string_view piece, size_t) {
    if (!seen.contains(piece)) seen.emplace(piece);
  });
  return CharTokenizer({seen.begin(), seen.end()});
}

CharTokenizer::CharTokenizer(std::vector<std::string> characters) : characters_(std::move(characters)) {
  TORCH_CHECK_VALUE(!characters_.empty(), kCharTokenizer, ": expected at least one character, got none");
  for (const auto& piece : characters_) {
    TORCH_CHECK_VALUE(!piece.empty() && character(piece, 0).size() == piece.size(), kCharTokenizer,
                      ": expected single characters, got the bytes \"", to_hex(piece), "\"");
    const bool fresh = ids_.emplace(piece, static_cast<int64_t>(ids_.size())).second;
    TORCH_CHECK_VALUE(fresh, kCharTokenizer, ": expected distinct characters, got ", printable(piece),
                      " twice");
  }
}

int64_t CharTokenizer::vocab_size() const {
  return static_cast<int64_t>(characters_.size());
}

std::vector<int64_t> CharTokenizer::encode(std::string_view text) const {
  std::vector<int64_t> ids;
  ids.reserve(text.size());
  for_each_character(text, [&](std::string_view piece, size_t offset) {
    const auto found = ids_.find(piece);
    TORCH_CHECK_VALUE(found != ids_.end(), kCharTokenizer, ": expected characters of its vocabulary of ",
                      vocab_size(), ", got ", printable(piece), " at byte ", offset);
    ids.push_back(found->second);
  });
  return ids;
}

std::string_view CharTokenizer::bytes(int64_t id) const {
  TORCH_CHECK_VALUE(id >= 0 && id < vocab_size(), kCharTokenizer, ": expected ids in [0, ", vocab_size(),
                    "), got ", id);
  return characters_[static_cast<size_t>(id)];
}

std::string CharTokenizer::to_json() const {
  nlohmann::json characters = nlohmann::json::array();
  for (const auto& piece : characters_) characters.push_back(to_hex(piece));
  return nlohmann::json{{"type", "char"}, {"characters", characters}}.dump();
}

}  // namespace attentive

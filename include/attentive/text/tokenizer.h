#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attentive {

class StreamingDecoder;

/// Converts text to token ids and back. Text is a string of arbitrary bytes, which may include invalid UTF-8
/// and NULs, unless a tokenizer says otherwise.
///
/// For CharTokenizer and BpeTokenizer `decode(encode(text)) == text`, byte for byte. A PretrainedTokenizer
/// (tokenizers/pretrained_tokenizer.h) takes UTF-8 only, and forgets what its normalizer and WordPiece
/// forget: letter case, accents, white space.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual int64_t vocab_size() const = 0;
  /// Throws c10::ValueError if the text holds something that the vocabulary cannot spell.
  virtual std::vector<int64_t> encode(std::string_view text) const = 0;
  /// The bytes of one token. Throws c10::ValueError unless 0 <= id < vocab_size().
  virtual std::string_view bytes(int64_t id) const = 0;
  /// The tokenizer as JSON text (ASCII only), which `parse_tokenizer` reads, unless a tokenizer says
  /// otherwise.
  virtual std::string to_json() const = 0;

  /// The ids of a text with the tokens that a model expects around it, if the tokenizer knows any.
  virtual std::vector<int64_t> encode_with_special_tokens(std::string_view text) const {
    return encode(text);
  }
  /// The ids of a text of any length, without special tokens: as `encode`, whatever length a file asks for.
  virtual std::vector<int64_t> encode_whole(std::string_view text) const { return encode(text); }
  /// True for a token that is no text, such as an end of text.
  virtual bool is_special(int64_t) const { return false; }

  /// The tokenizer as Hugging Face's `tokenizer.json`, which Python's `tokenizers` reads and with which it gives
  /// the same ids. Throws c10::ValueError for one that has no such form.
  virtual std::string to_python_json() const;

  /// The text of a sequence of tokens. Throws c10::ValueError for an id outside the vocabulary.
  virtual std::string decode(std::span<const int64_t> ids) const;

  /// Decodes tokens that come one at a time (text/streaming_decoder.h); the tokenizer outlives it.
  /// skip_special_tokens: leave out tokens that are no text. A tokenizer whose `decode` is not the bytes of its
  /// tokens one after the other overrides this, too.
  virtual std::unique_ptr<StreamingDecoder> streaming_decoder(bool skip_special_tokens) const;
};

/// Reads what `CharTokenizer::to_json` or `BpeTokenizer::to_json` wrote. Throws c10::ValueError saying what
/// is wrong with the text, or that it is Hugging Face's `tokenizer.json`, which the component
/// attentive::tokenizers reads.
///
///   auto tokenizer = attentive::parse_tokenizer(text);
std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view json);

/// Writes a tokenizer to a file, all or nothing. Throws c10::ValueError if the file cannot be written.
void save_tokenizer(const std::filesystem::path& path, const Tokenizer& tokenizer);

/// Reads a file that `save_tokenizer` wrote. Throws c10::ValueError with the path and what is wrong.
///
///   auto tokenizer = attentive::load_tokenizer("run/step-00002000/tokenizer.json");
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);

}  // namespace attentive

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
/// For CharTokenizer and BpeTokenizer, `decode(encode(text)) == text`, byte for byte. A PretrainedTokenizer
/// (tokenizers/pretrained_tokenizer.h) accepts UTF-8 only, and loses what its normalizer and WordPiece
/// discard: letter case, accents, white space.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual int64_t vocab_size() const = 0;
  /// Converts a text to ids. Throws c10::ValueError if the vocabulary cannot spell the text.
  virtual std::vector<int64_t> encode(std::string_view text) const = 0;
  /// The bytes of one token. Throws c10::ValueError unless 0 <= id < vocab_size().
  virtual std::string_view bytes(int64_t id) const = 0;
  /// The tokenizer as JSON text (ASCII only) for `parse_tokenizer`, unless a derived class says otherwise.
  virtual std::string to_json() const = 0;

  /// Converts a text to ids and adds the special tokens that a model expects around it, if the tokenizer has
  /// any.
  virtual std::vector<int64_t> encode_with_special_tokens(std::string_view text) const {
    return encode(text);
  }
  /// Converts a text of any length to ids, without special tokens and without the truncation that a file may
  /// request.
  virtual std::vector<int64_t> encode_whole(std::string_view text) const { return encode(text); }
  /// Whether a token stands for no text, such as an end-of-text token.
  virtual bool is_special(int64_t) const { return false; }

  /// The tokenizer as Hugging Face's `tokenizer.json`; Python's `tokenizers` reads it and gives the same ids.
  /// Throws c10::ValueError if the tokenizer cannot be written in that format.
  virtual std::string to_python_json() const;

  /// Converts ids to text. Throws c10::ValueError for an id outside the vocabulary.
  virtual std::string decode(std::span<const int64_t> ids) const;

  /// Makes a decoder for tokens that come one at a time (text/streaming_decoder.h). The tokenizer must
  /// outlive it. skip_special_tokens: leave out tokens that stand for no text. A derived class whose `decode`
  /// does more than join the tokens' bytes must override this, too.
  virtual std::unique_ptr<StreamingDecoder> streaming_decoder(bool skip_special_tokens) const;
};

/// Reads the output of `CharTokenizer::to_json` or `BpeTokenizer::to_json`. Throws c10::ValueError saying
/// what is wrong with the text, or that it is Hugging Face's `tokenizer.json`, which the component
/// attentive::tokenizers reads.
///
///   auto tokenizer = attentive::parse_tokenizer(text);
std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view json);

/// Writes a tokenizer to a file, all or nothing. Throws c10::ValueError if the file cannot be written.
void save_tokenizer(const std::filesystem::path& path, const Tokenizer& tokenizer);

/// Reads a file that `save_tokenizer` wrote. Throws c10::ValueError with the path and the reason.
///
///   auto tokenizer = attentive::load_tokenizer("run/step-00002000/tokenizer.json");
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);

}  // namespace attentive

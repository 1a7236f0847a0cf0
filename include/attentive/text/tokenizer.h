#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
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

  /// Makes a decoder for tokens that come one at a time. The tokenizer must outlive it. skip_special_tokens:
  /// leave out tokens that stand for no text. A derived class whose `decode` does more than join the tokens'
  /// bytes must override this, too.
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

/// Decodes tokens that come one at a time, as from `generate`. Each call returns the text that later tokens
/// can no longer change.
///
/// All returned texts, joined, equal the tokenizer's `decode` of all ids. A character whose bytes come in
/// several tokens is returned once it is complete. Text that depends on the next token, such as the space for
/// BPE's "</w>", is returned with that token. A run of tokens that spell bytes, such as "<0xE2>", is returned
/// when it ends or can no longer become UTF-8. A call costs O(bytes of the token), however long the text is.
/// Memory: O(bytes of a token, or of a run of bytes). There is one exception: if the decoder of a
/// `tokenizer.json` is a Sequence in which ByteLevel, WordPiece or a Replace of a regular expression follows
/// ByteLevel or Fuse, it needs the whole text; then memory is O(text), and `finish` returns the text.
/// Source: DecodeStream of https://huggingface.co/docs/tokenizers
///
///   auto decoder = tokenizer.streaming_decoder(/*skip_special_tokens=*/true);
///   decoder->follow(prompt);  // its text has been output already
///   generate(model, prompt, {.on_token = [&](int64_t id) { return bool(std::cout << decoder->push(id)); }});
///   std::cout << decoder->finish();
class StreamingDecoder {
 public:
  virtual ~StreamingDecoder() = default;

  /// Sets the tokens that precede the first `push` and whose text has been output already: they influence how
  /// later tokens are spelled, for instance with a space in front. The texts returned afterwards, joined, are
  /// `decode` of all ids without the prefix that it shares with `decode(ids)`.
  /// Throws c10::ValueError for an id outside the vocabulary, and after a `push`, `follow` or `finish`.
  void follow(std::span<const int64_t> ids);
  /// Adds a token and returns the text that has become final, often none. Throws c10::ValueError for an id
  /// outside the vocabulary, which changes nothing, and after `finish`.
  std::string push(int64_t id);
  /// Ends the text and returns the rest. Throws c10::ValueError if it was called before.
  std::string finish();

 protected:
  StreamingDecoder() = default;
  StreamingDecoder(const StreamingDecoder&) = default;
  StreamingDecoder& operator=(const StreamingDecoder&) = default;

 private:
  /// Implements `push` and `finish` in the absence of `follow`.
  virtual std::string next_text(int64_t id) = 0;
  virtual std::string last_text() = 0;
  /// Decodes some tokens as one text.
  virtual std::string whole_text(std::span<const int64_t> ids) const = 0;

  std::string unseen(std::string text);

  enum class State { Fresh, Open, Finished };
  State state_ = State::Fresh;
  // Text of followed tokens that was output already and that the decoder is still to repeat.
  std::string seen_;
};

/// A tokenizer with one token per character: the distinct characters of a text, in the order of their code
/// points.
///
/// A character is a well-formed UTF-8 sequence. A byte outside of such sequences is a token of its own, so
/// that any text round-trips. On valid UTF-8 the ids equal those of Python's `sorted(set(text))`.
/// Memory: O(distinct characters).
///
///   auto tokenizer = attentive::CharTokenizer::train("hello");
///   auto ids = tokenizer.encode("hole");  // {1, 3, 2, 0}
class CharTokenizer final : public Tokenizer {
 public:
  /// Throws c10::ValueError if the text is empty.
  static CharTokenizer train(std::string_view text);
  /// The characters by id. Throws c10::ValueError if there are none, if one is empty, or if one occurs twice.
  explicit CharTokenizer(std::vector<std::string> characters);

  int64_t vocab_size() const override;
  std::vector<int64_t> encode(std::string_view text) const override;
  std::string_view bytes(int64_t id) const override;
  std::string to_json() const override;
  /// A WordLevel model; Python gives a text the same ids as `encode`, and also reports an error for a
  /// character that is not in the vocabulary. Throws c10::ValueError if a token is a stray byte.
  std::string to_python_json() const override;

 private:
  std::vector<std::string> characters_;
  std::map<std::string, int64_t, std::less<>> ids_;
};

}  // namespace attentive

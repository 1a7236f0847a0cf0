#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace attentive {

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

}  // namespace attentive

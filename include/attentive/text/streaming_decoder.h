#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace attentive {

/// The text of tokens that come one at a time, as from `generate`: each call returns what no later token can
/// change any more.
///
/// All texts returned, joined, are what the tokenizer's `decode` makes of all ids. A character whose bytes
/// come in several tokens is returned when it is whole; what follows a word, such as the space that BPE's
/// "</w>" stands for, when the next token decides it; a run of tokens that spell bytes, such as "<0xE2>", when
/// it ends or cannot become UTF-8 any more. A call costs O(bytes of the token), however long the text is.
/// Memory: O(bytes of a token, or of a run of bytes). The decoders of a `tokenizer.json` that are a Sequence in
/// which ByteLevel, WordPiece or a Replace of a regular expression comes after ByteLevel or Fuse work on the
/// whole text: there, O(text), which `finish` returns.
/// Source: DecodeStream of https://huggingface.co/docs/tokenizers
///
///   auto decoder = tokenizer.streaming_decoder(/*skip_special_tokens=*/true);
///   decoder->follow(prompt);  // its text stands there already
///   generate(model, prompt, {.on_token = [&](int64_t id) { return bool(std::cout << decoder->push(id)); }});
///   std::cout << decoder->finish();
class StreamingDecoder {
 public:
  virtual ~StreamingDecoder() = default;

  /// The tokens before the first `push`, whose text is there already: they decide how the next ones are
  /// spelled, such as with a space in front. What is returned afterwards is `decode` of all ids without
  /// what it has in common with `decode(ids)` at its start.
  /// Throws c10::ValueError for an id outside the vocabulary, and after a `push`, `follow` or `finish`.
  void follow(std::span<const int64_t> ids);
  /// The text that has become certain; often none. Throws c10::ValueError for an id outside the vocabulary,
  /// which changes nothing, and after `finish`.
  std::string push(int64_t id);
  /// The rest: nothing comes any more. Throws c10::ValueError if it was called before.
  std::string finish();

 protected:
  StreamingDecoder() = default;
  StreamingDecoder(const StreamingDecoder&) = default;
  StreamingDecoder& operator=(const StreamingDecoder&) = default;

 private:
  /// What `push` and `finish` return, without `follow`.
  virtual std::string next_text(int64_t id) = 0;
  virtual std::string last_text() = 0;
  /// The whole text of some tokens.
  virtual std::string whole_text(std::span<const int64_t> ids) const = 0;

  std::string unseen(std::string text);

  enum class State { Fresh, Open, Finished };
  State state_ = State::Fresh;
  std::string seen_;  // stands there already, and has yet to come
};

}  // namespace attentive

#pragma once

#include <map>

#include <attentive/text/tokenizer.h>

namespace attentive {

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

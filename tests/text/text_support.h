#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <attentive/text/tokenizer.h>

// Texts that every tokenizer must restore byte for byte.

namespace attentive::test {

inline std::vector<std::string> awkward_texts() {
  std::string every_byte;
  for (int i = 0; i < 256; ++i) every_byte += static_cast<char>(i);
  std::string random;
  std::mt19937 draw(5);
  for (int i = 0; i < 4000; ++i) random += static_cast<char>(draw() & 255);
  using namespace std::string_literals;
  return {"a",
          "To be, or not to be: that is the question.\n\n  Whether 'tis 12 times   nobler \t\n",
          "caf\xc3\xa9 \xe6\xbc\xa2\xe5\xad\x97 \xf0\x9f\x8e\xad",
          "NUL\0in the\0middle\0"s,
          "cut off \xe6\xbc",
          "overlong \xc0\xaf and surrogate \xed\xa0\x80",
          std::string(5000, 'x') + std::string(3000, ' '),
          every_byte,
          random};
}

// Compares tokens that are decoded one at a time with tokens decoded together.
inline std::vector<int64_t> drawn(const std::vector<int64_t>& vocabulary, size_t count, std::mt19937& draw) {
  std::vector<int64_t> ids;
  for (size_t i = 0; i < count; ++i) ids.push_back(vocabulary[draw() % vocabulary.size()]);
  return ids;
}

// The texts that the calls return for a text's ids; the last one comes from `finish`.
inline std::vector<std::string> streamed(const Tokenizer& tokenizer, const std::vector<int64_t>& ids,
                                         bool skip_special_tokens = false) {
  std::vector<std::string> parts;
  const auto decoder = tokenizer.streaming_decoder(skip_special_tokens);
  for (const auto id : ids) parts.push_back(decoder->push(id));
  parts.push_back(decoder->finish());
  return parts;
}
inline std::vector<std::string> streamed(const Tokenizer& tokenizer, std::string_view text) {
  return streamed(tokenizer, tokenizer.encode(text));
}

inline std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const auto& part : parts) text += part;
  return text;
}

// `whole` without the leading characters that it shares with `seen`.
inline std::string beyond(const std::string& seen, const std::string& whole) {
  auto common = static_cast<size_t>(std::ranges::mismatch(whole, seen).in1 - whole.begin());
  const auto continues = [&] { return (static_cast<unsigned char>(whole[common]) & 0xC0) == 0x80; };
  while (common < seen.size() && common > 0 && common < whole.size() && continues()) --common;
  return whole.substr(common);
}

// Describes where streaming differs from `decode`, for the ids alone and after each prefix of the ids as
// context; empty if it never does. decode(ids): the whole text.
template <class Decode>
std::string streaming_difference(const Tokenizer& tokenizer, const std::vector<int64_t>& ids,
                                 bool skip_special_tokens, Decode decode) {
  const auto whole = decode(ids);
  const auto alone = joined(streamed(tokenizer, ids, skip_special_tokens));
  if (alone != whole) return "expected " + whole + ", got " + alone;
  const auto step = std::max<size_t>(1, ids.size() / 7);
  for (size_t before = 0; before <= ids.size(); before += step) {
    const std::vector<int64_t> context(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(before));
    const auto decoder = tokenizer.streaming_decoder(skip_special_tokens);
    decoder->follow(context);
    std::string rest;
    for (size_t i = before; i < ids.size(); ++i) rest += decoder->push(ids[i]);
    rest += decoder->finish();
    const auto expected = beyond(decode(context), whole);
    if (rest != expected) {
      return "behind " + std::to_string(before) + " tokens: expected " + expected + ", got " + rest;
    }
  }
  return "";
}
inline std::string streaming_difference(const Tokenizer& tokenizer, const std::vector<int64_t>& ids,
                                        bool skip_special_tokens) {
  return streaming_difference(tokenizer, ids, skip_special_tokens,
                              [&](const auto& all) { return tokenizer.decode(all); });
}

}  // namespace attentive::test

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizers/json_view.h"

namespace attentive::tokenizers {

/// Decodes tokens that arrive one at a time. The texts that it appends to `out`, joined, equal the text that
/// `Decoder::apply` makes of all tokens at once.
class DecoderStream {
 public:
  virtual ~DecoderStream() = default;
  virtual void push(std::string token, std::vector<std::string>& out) = 0;
  virtual void finish(std::vector<std::string>&) {}
};

/// Turns tokens into parts of a text, which are then joined.
struct Decoder {
  std::function<void(std::vector<std::string>&)> apply;
  /// Creates a stream. `whole`: each token must be written in one piece, because a later decoder needs whole
  /// tokens.
  std::function<std::unique_ptr<DecoderStream>(bool whole)> stream;
  /// Creates a stream for a single token that arrives in parts of whole characters. Null if the result
  /// depends on the token's end.
  std::function<std::unique_ptr<DecoderStream>()> stream_of_one;
  bool byte_level = false;  // tokens stand for bytes
  bool joins = false;       // joins all tokens to one
  bool only_joins = false;  // changes no text
  double growth = 1;        // the bytes that it makes of one byte, at most
};

/// Reads the file's "decoder". Null joins the tokens with spaces.
Decoder parse_decoder(const JsonView& json);

/// Returns the bytes that the characters of a token stand for (the inverse of `to_visible`); std::nullopt if
/// a character stands for no byte.
std::optional<std::string> from_visible(std::string_view token);

}  // namespace attentive::tokenizers

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tokenizers/json_view.h"

namespace attentive::tokenizers {

/// A decoder at work on tokens that come one at a time. What it appends to `out` in the end, joined, is what
/// `Decoder::apply` makes of all tokens.
class DecoderStream {
 public:
  virtual ~DecoderStream() = default;
  virtual void push(std::string token, std::vector<std::string>& out) = 0;
  virtual void finish(std::vector<std::string>&) {}
};

/// Turns tokens into parts of a text, which are then joined.
struct Decoder {
  std::function<void(std::vector<std::string>&)> apply;
  /// whole: each token comes out in one piece, because a further decoder needs it so.
  std::function<std::unique_ptr<DecoderStream>(bool whole)> stream;
  /// At work on a single token, which comes in parts of whole characters. Null where only the token's end
  /// shows what becomes of it.
  std::function<std::unique_ptr<DecoderStream>()> stream_of_one;
  bool byte_level = false;  // tokens stand for bytes
  bool joins = false;       // makes one token of all
  bool only_joins = false;  // and changes nothing
};

/// Reads the file's "decoder". Null joins the tokens with spaces.
Decoder parse_decoder(const JsonView& json);

}  // namespace attentive::tokenizers

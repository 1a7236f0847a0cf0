#pragma once

#include <functional>
#include <string>

#include "tokenizers/json_view.h"
#include "tokenizers/pieces.h"

namespace attentive::tokenizers {

using PreTokenizer = std::function<void(Pieces&)>;

/// Reads the file's "pre_tokenizer"; the result is empty if it is null.
PreTokenizer parse_pre_tokenizer(const JsonView& json);

/// Whether a file's "pre_tokenizer" inserts a sign only where the given text begins. In text that a
/// normalizer or an earlier step changed, only origins tell which piece stands there.
bool signs_beginning_only(const JsonView& pre_tokenizer);

enum class Prepends { Always, First, Never };

/// How a Metaspace writes spaces, as a pre-tokenizer and as a decoder.
struct MetaspaceRule {
  std::string sign;  // one character
  Prepends prepends = Prepends::Always;
  bool cuts = true;
};
MetaspaceRule parse_metaspace_rule(const JsonView& json);

}  // namespace attentive::tokenizers

#pragma once

// How a failing test shows encodings and where they come from. Found by the namespaces of what is shown.

#include <ostream>

#include <attentive/tokenizers/pretrained_tokenizer.h>

#include "tokenizers/pieces.h"

namespace attentive {

inline std::ostream& operator<<(std::ostream& stream, const TextSpan& span) {
  return stream << '[' << span.begin << ", " << span.end << ')';
}

inline std::ostream& operator<<(std::ostream& stream, const Encoding& encoding) {
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    stream << encoding.ids[i];
    if (i < encoding.offsets.size()) stream << encoding.offsets[i];
    stream << ' ';
  }
  return stream;
}

namespace tokenizers {

inline std::ostream& operator<<(std::ostream& stream, const Origin& origin) {
  return stream << '[' << origin.begin << ", " << origin.end << ')';
}

}  // namespace tokenizers
}  // namespace attentive

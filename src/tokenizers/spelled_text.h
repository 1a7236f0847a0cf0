#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <attentive/tokenizers/text_span.h>

namespace attentive::tokenizers {

/// How much of an Encoding is wanted.
enum class Detail { Ids, Masks, Offsets };

/// The characters of white space at the ends of a token, of which Ġ is one.
struct Blanks {
  uint32_t leading = 0, trailing = 0;
};

/// The tokens of one text, before special ones are added.
struct SpelledText {
  std::vector<int64_t> ids;
  std::vector<TextSpan> offsets;  // of each token, where they are wanted
  std::vector<Blanks> blanks;     // of each token, where the post-processor trims offsets

  /// Leaves the tokens [begin, end).
  void keep(size_t begin, size_t end) {
    const auto shorten = [&](auto& values) {
      if (values.empty()) return;
      values.resize(end);
      values.erase(values.begin(), values.begin() + static_cast<ptrdiff_t>(begin));
    };
    shorten(ids);
    shorten(offsets);
    shorten(blanks);
  }
};

}  // namespace attentive::tokenizers

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <attentive/tokenizers/text_span.h>

namespace attentive::tokenizers {

/// Selects the members of an Encoding that are computed.
enum class Detail { Ids, Masks, Offsets };

/// The numbers of white space characters, among which Ġ counts, at the ends of a token.
struct Blanks {
  uint32_t leading = 0, trailing = 0;
};

/// The tokens of one text before special tokens are added.
struct SpelledText {
  std::vector<int64_t> ids;
  std::vector<TextSpan> offsets;  // of each token, where they are wanted
  std::vector<Blanks> blanks;     // of each token, where the post-processor trims offsets

  /// Keeps only the tokens [begin, end).
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

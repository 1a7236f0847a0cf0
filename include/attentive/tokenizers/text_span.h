#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace attentive {

/// A part of a text, [begin, end). Python's offsets count characters (code points), not bytes.
struct TextSpan {
  int64_t begin = 0, end = 0;

  bool operator==(const TextSpan&) const = default;
};

/// Converts spans that count the characters of a text in UTF-8 into spans that count its bytes, in the same
/// order; `text.substr(begin, end - begin)` is then the text of a span. Throws c10::ValueError for text that
/// is not UTF-8, and for a span that does not lie in the text, with its index and the number of characters.
/// Costs O(n + spans), and 8 bytes of memory for each character of a text that is not ASCII.
///
///   const auto encoding = tokenizer.encode_text("Änderung");
///   const auto bytes = attentive::byte_spans("Änderung", encoding.offsets);
std::vector<TextSpan> byte_spans(std::string_view text, const std::vector<TextSpan>& spans);

}  // namespace attentive

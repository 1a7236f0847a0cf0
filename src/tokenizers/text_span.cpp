#include <c10/util/Exception.h>

#include <attentive/tokenizers/text_span.h>

#include "base/strings.h"
#include "tokenizers/unicode.h"

namespace attentive {

std::vector<TextSpan> byte_spans(std::string_view text, const std::vector<TextSpan>& spans) {
  const auto good = utf8_prefix(text);
  TORCH_CHECK_VALUE(good == text.size(), "byte_spans: expected text in UTF-8, got a bad byte at offset ",
                    good);
  std::vector<size_t> starts;  // the starts of the characters, and the end of the text; empty for ASCII
  if (!tokenizers::is_ascii(text)) {
    for (size_t at = 0; at < text.size(); ++at) {
      if (tokenizers::begins_character(text[at])) starts.push_back(at);
    }
    starts.push_back(text.size());
  }
  const auto size = static_cast<int64_t>(starts.empty() ? text.size() : starts.size() - 1);
  const auto byte_of = [&](int64_t character) {
    return starts.empty() ? character : static_cast<int64_t>(starts[static_cast<size_t>(character)]);
  };
  std::vector<TextSpan> bytes;
  bytes.reserve(spans.size());
  for (const auto& [begin, end] : spans) {
    TORCH_CHECK_VALUE(begin >= 0 && begin <= end && end <= size, "byte_spans: expected spans of a text of ",
                      size, " characters, got [", begin, ", ", end, ") at ", bytes.size());
    bytes.push_back({byte_of(begin), byte_of(end)});
  }
  return bytes;
}

}  // namespace attentive

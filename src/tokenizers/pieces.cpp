#include "tokenizers/pieces.h"

#include <algorithm>

#include "tokenizers/unicode.h"

namespace attentive::tokenizers {
namespace {

struct Span {
  size_t begin, end;
  bool match;
};

// The matches and what lies between them, in order: together the whole text.
std::vector<Span> spans_of(std::string_view text, const FindMatches& find, bool invert) {
  std::vector<Span> spans;
  size_t end_of_last = 0;
  find(text, [&](size_t begin, size_t end) {
    if (end_of_last != begin) spans.push_back({end_of_last, begin, invert});
    spans.push_back({begin, end, !invert});
    end_of_last = end;
  });
  if (end_of_last != text.size()) spans.push_back({end_of_last, text.size(), invert});
  return spans;
}

// Joins a span with the one before it where `joins(span is a match, span before is a match)`; before the
// first span stands no match.
template <class Joins>
void join_pieces(std::vector<Span>& spans, Joins joins) {
  std::vector<Span> joined;
  bool previous = false;
  for (const auto& span : spans) {
    if (joins(span.match, previous) && !joined.empty()) {
      joined.back().begin = std::min(joined.back().begin, span.begin);
      joined.back().end = std::max(joined.back().end, span.end);
    } else {
      joined.push_back(span);
    }
    previous = span.match;
  }
  spans = std::move(joined);
}

void apply(Behavior behavior, std::vector<Span>& spans) {
  const auto lone_match = [](bool match, bool previous) { return match && !previous; };
  switch (behavior) {
    case Behavior::Isolated:
      return;
    case Behavior::Removed:
      std::erase_if(spans, [](const Span& span) { return span.match; });
      return;
    case Behavior::Contiguous:
      join_pieces(spans, [](bool match, bool previous) { return match == previous; });
      return;
    case Behavior::MergedWithPrevious:
      join_pieces(spans, lone_match);
      return;
    case Behavior::MergedWithNext:
      std::reverse(spans.begin(), spans.end());
      join_pieces(spans, lone_match);
      std::reverse(spans.begin(), spans.end());
  }
}

}  // namespace

void cut(Pieces& pieces, const FindMatches& find, bool invert, Behavior behavior) {
  pieces.change_text([&](std::string_view text, std::vector<Piece>& out) {
    auto spans = spans_of(text, find, invert);
    apply(behavior, spans);
    for (const auto& span : spans) {
      if (span.begin != span.end) out.push_back({text.substr(span.begin, span.end - span.begin)});
    }
  });
}

FindMatches each_char(bool (*is_match)(char32_t)) {
  return [is_match](std::string_view text, const VisitMatch& visit) {
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      if (is_match(next_char(text, at))) visit(begin, at);
    }
  };
}

}  // namespace attentive::tokenizers

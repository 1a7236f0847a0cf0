#include "tokenizers/pieces.h"

#include <algorithm>

#include <c10/util/Exception.h>

#include <attentive/tokenizers/pretrained_tokenizer.h>

#include "base/refusal.h"
#include "base/strings.h"
#include "tokenizers/unicode.h"

namespace attentive::tokenizers {
namespace {

struct Span {
  size_t begin, end;
  bool match;
};

// Returns the matches and the spans between them, in order; together they are the whole text.
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

// Joins a span with the previous one if `joins(span is a match, previous span is a match)`. The first span
// counts as preceded by a span that is not a match.
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

std::vector<Origin> origins_of(std::string_view text) {
  std::vector<Origin> origins;
  origins.reserve(text.size());
  for (size_t offset = 0; offset < text.size();) {
    const size_t begin = offset;
    (void)next_char(text, offset);
    origins.insert(origins.end(), offset - begin,
                   {static_cast<uint32_t>(begin), static_cast<uint32_t>(offset)});
  }
  return origins;
}

void Pieces::start(size_t bytes) {
  constexpr size_t kGrowth = 256, kLeast = size_t{1} << 20;
  list.clear();
  texts.clear();
  origins.clear();
  most_ = room_ = kGrowth * bytes + kLeast;
}

void Pieces::check_room(size_t bytes) const {
  if (bytes > room_) refuse("expected a text of which the tokenizer makes at most {} bytes, got more", most_);
}

const Origin* Pieces::keep(std::vector<Origin> all) {
  all.reserve(1);  // so that the origins of an empty text are not null
  return origins.emplace_back(std::move(all)).data();
}

Rewrite::Rewrite(const Piece& piece, Pieces& pieces) : piece_(piece), pieces_(pieces) {
  text_.reserve(piece.text.size());
  if (piece.origins) origins_.reserve(piece.text.size());
}

void Rewrite::skip(size_t characters) {
  for (; characters > 0 && at_ < piece_.text.size(); --characters) (void)next_char(piece_.text, at_);
}

void Rewrite::put(char32_t character, ptrdiff_t change) {
  const size_t before = text_.size();
  if (character < 0x80) {
    text_ += static_cast<char>(character);
  } else {
    append_utf8(text_, character);
  }
  if (piece_.origins) {
    // A file can lead to more replacements than the text has characters; a character written behind the
    // last one gets the origin of the last one.
    const bool inserted = change > 0 || at_ == piece_.text.size();
    const Origin start{piece_.begin, piece_.begin};
    const Origin origin = !inserted ? piece_.origins[at_] : at_ == 0 ? start : piece_.origins[at_ - 1];
    origins_.insert(origins_.end(), text_.size() - before, origin);
  }
  if (change > 0) pieces_.check_room(text_.size());
  if (change <= 0) skip(static_cast<size_t>(1 - change));
}

void Rewrite::keep(size_t bytes) {
  text_ += piece_.text.substr(at_, bytes);
  if (piece_.origins) origins_.insert(origins_.end(), piece_.origins + at_, piece_.origins + at_ + bytes);
  at_ += bytes;
}

Piece Rewrite::done() {
  Piece piece = piece_;
  piece.text = pieces_.keep(std::move(text_));
  if (piece.origins) piece.origins = pieces_.keep(std::move(origins_));
  return piece;
}

Piece prepended(const Piece& piece, std::string_view text, Pieces& pieces) {
  if (piece.text.empty() || text.empty()) return piece;
  Rewrite rewrite(piece, pieces);
  for (size_t offset = 0; offset < text.size();) {
    const ptrdiff_t change = offset > 0 ? 1 : 0;
    rewrite.put(next_char(text, offset), change);
  }
  size_t first = 0;
  rewrite.put(next_char(piece.text, first), 1);
  rewrite.keep(piece.text.size() - first);
  return rewrite.done();
}

Origin origin_of(const Piece& piece, uint32_t begin, uint32_t end) {
  if (begin == end) return {piece.begin + begin, piece.begin + end};
  if (end > piece.text.size()) return {begin, end};
  return {piece.origins[begin].begin, piece.origins[end - 1].end};
}

void cut(Pieces& pieces, const FindMatches& find, bool invert, Behavior behavior) {
  pieces.change_text([&](const Piece& piece, std::vector<Piece>& out) {
    auto spans = spans_of(piece.text, find, invert);
    apply(behavior, spans);
    for (const auto& span : spans) {
      if (span.begin != span.end) out.push_back(piece.part(span.begin, span.end - span.begin));
    }
  });
}

FindMatches each_char(bool (*is_match)(char32_t)) {
  return [is_match](std::string_view text, const VisitMatch& visit) {
    for (size_t offset = 0; offset < text.size();) {
      const size_t begin = offset;
      if (is_match(next_char(text, offset))) visit(begin, offset);
    }
  };
}

CharacterPlaces::CharacterPlaces(std::string_view text) : size_(text.size()) {
  if (is_ascii(text)) return;
  places_.reserve(text.size());
  uint32_t place = 0;
  for (size_t offset = 0; offset < text.size(); ++offset) {
    if (offset > 0 && begins_character(text[offset])) ++place;
    places_.push_back(place);
  }
}

TextSpan CharacterPlaces::characters(Origin bytes) const {
  const auto place = [&](uint32_t byte) {
    return static_cast<int64_t>(places_.empty() ? byte : places_[byte]);
  };
  if (bytes.begin >= size_) return {bytes.begin, bytes.end};
  const int64_t begin = place(bytes.begin);
  if (bytes.end < size_) return {begin, place(bytes.end)};
  return {begin, bytes.end == size_ ? place(bytes.end - 1) + 1 : begin + 2};
}

}  // namespace attentive::tokenizers

namespace attentive {

std::vector<TextSpan> byte_spans(std::string_view text, const std::vector<TextSpan>& spans) {
  const auto good = utf8_prefix(text);
  TORCH_CHECK_VALUE(good == text.size(), "byte_spans: expected text in UTF-8, got a bad byte at offset ",
                    good);
  std::vector<size_t> starts;  // the starts of the characters, and the end of the text; empty for ASCII
  if (!tokenizers::is_ascii(text)) {
    for (size_t offset = 0; offset < text.size(); ++offset) {
      if (tokenizers::begins_character(text[offset])) starts.push_back(offset);
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

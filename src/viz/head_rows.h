#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <attentive/viz/head_statistics.h>

namespace attentive::viz {

/// The weights of one head as plain memory: a row of keys for each query, and which of them the query sees.
struct HeadRows {
  const float* weights;  // (queries, keys), contiguous
  const bool* visible;   // the same; null: all are visible
  int64_t queries;
  int64_t keys;

  bool sees(int64_t query, int64_t key) const { return !visible || visible[query * keys + key]; }
  float weight(int64_t query, int64_t key) const { return weights[query * keys + key]; }
};

/// The keys that a query sees lie in [begin, end); both are 0 if there is none.
struct Span {
  int32_t begin;
  int32_t end;
};
std::vector<Span> spans_of(const HeadRows& rows);

/// A bit for each key of each span, one row after the other, the lowest bit of a byte first: 1 where the key
/// is hidden although it lies in the span. Empty if there is no such key.
std::vector<uint8_t> holes_of(const HeadRows& rows, const std::vector<Span>& spans);

/// The largest weight of each row.
std::vector<float> row_maxima(const HeadRows& rows);

/// A byte for each key of each span, one row after the other: round(weight / largest of the row * levels), 0
/// for a hidden key.
std::vector<uint8_t> quantised(const HeadRows& rows, const std::vector<Span>& spans,
                               const std::vector<float>& maxima, int levels);

/// For each row the `count` visible keys of largest weight, the largest first, of equal ones the lower key
/// first; -1 where a row sees fewer.
std::vector<int32_t> top_keys(const HeadRows& rows, int64_t count);

/// For each of `top_keys` its place among the visible keys of as many steps that are not named before it in
/// its row, in the order of the keys: with the steps, that is which key it is. Seven bits a byte, the lowest
/// first, the top bit set where more follow; nothing for -1. Most places are 0, as steps most often tell
/// weights apart. `steps` is what `quantised` returns.
std::vector<uint8_t> top_places(const HeadRows& rows, const std::vector<Span>& spans,
                                const std::vector<uint8_t>& steps, const std::vector<int32_t>& top);

/// The numbers byte by byte: the highest byte of each, then the next, as bytes of one kind resemble each
/// other.
std::vector<uint8_t> byte_planes(std::span<const float> numbers);

/// The head in small: height x width cells, which divide queries and keys evenly. Each is the largest weight
/// / largest of its row in it, times 255. Cells of which no query's span reaches a key are left out.
std::vector<uint8_t> thumbnail(const HeadRows& rows, const std::vector<Span>& spans,
                               const std::vector<float>& maxima, int64_t height, int64_t width);

/// What `head_statistics` returns, of a head that was checked.
HeadStatistics statistics_of(const HeadRows& rows, int64_t key_origin);

}  // namespace attentive::viz

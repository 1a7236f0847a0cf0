#include "viz/head_rows.h"

#include <algorithm>
#include <cmath>

namespace attentive::viz {
namespace {

// The weight in steps of the row's largest one.
uint8_t steps(float weight, float largest, int levels) {
  if (!(largest > 0)) return 0;
  return static_cast<uint8_t>(
      std::lround(static_cast<double>(weight) / static_cast<double>(largest) * levels));
}

}  // namespace

std::vector<Span> spans_of(const HeadRows& rows) {
  std::vector<Span> spans;
  spans.reserve(static_cast<size_t>(rows.queries));
  for (int64_t i = 0; i < rows.queries; ++i) {
    int64_t begin = 0, end = rows.keys;
    while (begin < end && !rows.sees(i, begin)) ++begin;
    while (end > begin && !rows.sees(i, end - 1)) --end;
    if (begin == end) begin = end = 0;
    spans.push_back({static_cast<int32_t>(begin), static_cast<int32_t>(end)});
  }
  return spans;
}

std::vector<uint8_t> holes_of(const HeadRows& rows, const std::vector<Span>& spans) {
  std::vector<uint8_t> bits;
  int64_t place = 0;
  bool any = false;
  for (int64_t i = 0; i < rows.queries; ++i) {
    const auto span = spans[static_cast<size_t>(i)];
    for (int64_t j = span.begin; j < span.end; ++j, ++place) {
      if (place % 8 == 0) bits.push_back(0);
      if (rows.sees(i, j)) continue;
      bits.back() = static_cast<uint8_t>(bits.back() | (1U << (place % 8)));
      any = true;
    }
  }
  return any ? bits : std::vector<uint8_t>{};
}

std::vector<float> row_maxima(const HeadRows& rows) {
  std::vector<float> maxima;
  for (int64_t i = 0; i < rows.queries; ++i) {
    const auto* row = rows.weights + i * rows.keys;
    maxima.push_back(*std::max_element(row, row + rows.keys));
  }
  return maxima;
}

std::vector<uint8_t> quantised(const HeadRows& rows, const std::vector<Span>& spans,
                               const std::vector<float>& maxima, int levels) {
  std::vector<uint8_t> bytes;
  for (int64_t i = 0; i < rows.queries; ++i) {
    const auto span = spans[static_cast<size_t>(i)];
    const float largest = maxima[static_cast<size_t>(i)];
    for (int64_t j = span.begin; j < span.end; ++j)
      bytes.push_back(rows.sees(i, j) ? steps(rows.weight(i, j), largest, levels) : uint8_t{0});
  }
  return bytes;
}

std::vector<int32_t> top_keys(const HeadRows& rows, int64_t count) {
  std::vector<int32_t> top, seen;
  for (int64_t i = 0; i < rows.queries; ++i) {
    seen.clear();
    for (int64_t j = 0; j < rows.keys; ++j) {
      if (rows.sees(i, j)) seen.push_back(static_cast<int32_t>(j));
    }
    const auto* row = rows.weights + i * rows.keys;
    const auto best = std::min(static_cast<size_t>(count), seen.size());
    std::partial_sort(seen.begin(), seen.begin() + static_cast<std::ptrdiff_t>(best), seen.end(),
                      [row](int32_t a, int32_t b) { return row[a] != row[b] ? row[a] > row[b] : a < b; });
    seen.resize(best);
    top.insert(top.end(), seen.begin(), seen.end());
    top.insert(top.end(), static_cast<size_t>(count) - best, -1);
  }
  return top;
}

std::vector<uint8_t> thumbnail(const HeadRows& rows, const std::vector<float>& maxima, int64_t height,
                               int64_t width) {
  std::vector<uint8_t> cells(static_cast<size_t>(height * width), 0);
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t i = y * rows.queries / height; i < (y + 1) * rows.queries / height; ++i) {
      const float largest = maxima[static_cast<size_t>(i)];
      for (int64_t x = 0; x < width; ++x) {
        auto& cell = cells[static_cast<size_t>(y * width + x)];
        for (int64_t j = x * rows.keys / width; j < (x + 1) * rows.keys / width; ++j)
          cell = std::max(cell, steps(rows.weight(i, j), largest, 255));
      }
    }
  }
  return cells;
}

}  // namespace attentive::viz
